"""Whether audited texts differ from the reference in more than membership.

Case, script, length, words and the scores of a model that saw neither are compared, each at a fifth
of the level (Bonferroni). Case, script and length count only where the difference is large, since
scores are compared at one length and small differences do not move them.

Words: if they alone separate audited texts from the reference, by topic, time or kind, so may any
score, and a small p-value says nothing about membership. Most published membership results on
language models are explained so (Duan et al. 2024, "Do Membership Inference Attacks Work on Large
Language Models?"; Meeus et al. 2025, "SoK: Membership Inference Attacks on LLMs are Rushing
Nowhere"; Das, Zhang and Tramèr 2025, "Blind Baselines Beat Membership Inference Attacks for
Foundation Models").

The classifier of words is a ridge regression on weighted counts of words and pairs of words. Every
text is scored by one that was fitted without it, and without others of its author. Cross-validated
scores depend on each other, and the area under their ROC curve varies twice as much by chance as
that of independent ones. So sides are permuted among whole texts, or whole authors, and all is
repeated, which a ridge regression makes cheap: its predictions are linear in the labels (Golland
and Fischl 2003, "Permutation Tests for Classification"). All texts are cut to the same number of
words, the smaller of both medians, and shorter ones are left out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from vestige.claims.claim import Check
from vestige.metrics.tests import means_by_group, unit_permutation_test

LEVEL = 0.05
TESTS = 5
SMALL = (0.4, 0.6)
"""AUCs between these are small differences of case, script or length."""

TRAITS: Mapping[str, Callable[[str], float]] = {
    "upper case": lambda text: _share(text, str.isupper),
    "script": lambda text: _share(text, lambda letter: ord(letter) > 127),
    "length": lambda text: float(len(text.split())),
}

FOLDS = 5
MOST = 1000
"""Texts of a side that the classifier sees."""

PERMUTATIONS = 399
_RIDGE = 1.0

Floats = NDArray[np.float64]


def comparable_texts(
    texts: Sequence[str],
    reference: Sequence[str],
    *,
    units: tuple[ArrayLike, ArrayLike],
    base: tuple[ArrayLike, ArrayLike] | None = None,
    who: str = "the base",
    seed: int,
) -> Check:
    """The check "comparable": audited texts and reference, without the audited model.

    Args:
        units: independent unit of each text and of each reference text.
        base: scores of a model that saw neither, `who` in a sentence.
        seed: of folds and permutations.
    """
    own, rest = ([str(one) for one in np.asarray(side)] for side in units)
    words = word_shift(texts, reference, authors=own, reference_authors=rest, seed=seed)
    apart = ["words"] if words is not None and words.p_value <= LEVEL / TESTS else []
    for name, trait in TRAITS.items():
        ranks = _ranks([trait(text) for text in texts], [trait(text) for text in reference])
        small = SMALL[0] <= _auc(*ranks) <= SMALL[1]
        if not small and _p_value(*ranks, units, seed) <= LEVEL / TESTS:
            apart.append(name)
    if base is not None and _p_value(*_ranks(*base), units, seed) <= LEVEL / TESTS:
        apart.append(f"how well {who} predicts them")
    if apart:
        return Check(
            "comparable", "failed",
            f"The texts differ from the reference in {_and(apart)}: their scores can differ "
            "without training on them.",
        )  # fmt: skip
    if words is None:
        return Check(
            "comparable", "could not run",
            "Too few texts to compare their words with the words of the reference.",
        )  # fmt: skip
    alike = "words, case, script and length"
    alike += "" if base is None else f", and {who} predicts both alike"
    return Check("comparable", "passed", f"Texts and reference are alike in {alike}.")


def _share(text: str, holds: Callable[[str], bool]) -> float:
    letters = [one for one in text if one.isalpha()]
    return sum(map(holds, letters)) / max(1, len(letters))


def _ranks(own: ArrayLike, rest: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ranks of both sides among all."""
    sides = np.asarray(own, dtype=np.float64), np.asarray(rest, dtype=np.float64)
    ranks = rankdata(np.concatenate(sides))
    return ranks[: sides[0].size], ranks[sides[0].size :]


def _auc(own: NDArray[np.float64], rest: NDArray[np.float64]) -> float:
    return float((own.mean() - (own.size + 1) / 2) / rest.size)


def _p_value(
    own: NDArray[np.float64],
    rest: NDArray[np.float64],
    units: tuple[ArrayLike, ArrayLike],
    seed: int,
) -> float:
    """Two-sided, of mean ranks by unit."""
    sides = means_by_group(own, units[0]), means_by_group(rest, units[1])
    tails = [
        unit_permutation_test(sign * sides[0], sign * sides[1], seed=seed, permutations=1999)
        for sign in (1, -1)
    ]
    return min(1.0, 2 * min(tails))


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


class WordShift(NamedTuple):
    """How well words separate the audited texts from the reference: the first `words` of each."""

    auc: float
    p_value: float
    words: int


def word_shift(
    texts: Sequence[str],
    reference: Sequence[str],
    *,
    authors: Sequence[str] | None = None,
    reference_authors: Sequence[str] | None = None,
    seed: int,
) -> WordShift | None:
    """Try to separate texts from a reference by their words, cross-validated.

    Texts of one author stay together. None if either side has fewer texts, or authors, than there
    are folds.
    """
    generator = np.random.default_rng(seed)
    sides = [[text.split() for text in side] for side in (texts, reference)]
    cut = max(1, min(int(np.median([len(words) for words in side])) for side in sides))
    owners = (authors or range(len(texts)), reference_authors or range(len(reference)))
    read: list[str] = []
    owner_of: list[tuple[int, str]] = []
    for side, (own, by) in enumerate(zip(sides, owners, strict=True)):
        long_enough = np.flatnonzero([len(words) >= cut for words in own])
        chosen = np.sort(generator.permutation(long_enough)[:MOST]).tolist()
        read += [" ".join(own[place][:cut]) for place in chosen]
        owner_of += [(side, str(by[place])) for place in chosen]
    names = sorted(set(owner_of))
    number = {name: place for place, name in enumerate(names)}
    units = np.array([number[name] for name in owner_of])
    audited = np.array([side == 0 for side, _ in names])
    if min(audited.sum(), (~audited).sum()) < FOLDS:
        return None
    permuted = generator.permuted(np.tile(audited, (PERMUTATIONS, 1)), axis=1)
    aucs = _aucs(read, units, np.vstack([audited, permuted]), generator)
    return WordShift(float(aucs[0]), float((aucs >= aucs[0] - 1e-9).mean()), cut)


def _aucs(
    read: Sequence[str],
    units: NDArray[np.int64],
    sides: NDArray[np.bool_],
    generator: np.random.Generator,
) -> Floats:
    """(d,) areas under the ROC curve of held-out scores, for each division of units into sides."""
    labels = sides[:, units].T.astype(np.float64)  # (t, d)
    alike = _similarity(read)
    folds = generator.permutation(np.arange(sides.shape[1]) % FOLDS)[units]
    scores = np.empty_like(labels)
    for fold in range(FOLDS):
        held, fitted = folds == fold, folds != fold
        ridge = alike[np.ix_(fitted, fitted)] + _RIDGE * np.eye(fitted.sum())
        known = labels[fitted] - labels[fitted].mean(axis=0)
        found = alike[np.ix_(held, fitted)] @ np.linalg.solve(ridge, known)
        # Each fold has its own model, so scores are comparable only within a fold.
        scores[held] = rankdata(np.round(found, 9), axis=0) / held.sum()
    counts = np.bincount(units)
    sums = np.zeros((counts.size, labels.shape[1]))
    np.add.at(sums, units, scores)
    ranks = rankdata(sums / counts[:, None], axis=0)  # (u, d)
    inside = sides.T
    n = inside.sum(axis=0)
    above = (ranks * inside).sum(axis=0) - n * (n + 1) / 2  # Mann and Whitney's statistic
    return np.asarray(above / (n * (counts.size - n)), dtype=np.float64)


def _similarity(read: Sequence[str]) -> Floats:
    """(t, t) cosines of the texts' weighted counts of words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    counted = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), sublinear_tf=True)
    weights = counted.fit_transform(read)
    return np.asarray((weights @ weights.T).toarray(), dtype=np.float64)
