"""Are audited texts and reference comparable, or do they differ in more than membership?

Case, script, length, words and the scores of a model that saw neither are compared, each at a fifth
of the level (Bonferroni). Case, script and length count only if the difference is large: scores are
compared at equal length, and small differences do not change them.

Words: if words alone separate audited texts from the reference, by topic, time or kind, other
scores may separate them, too, and a small p-value is no evidence of membership. This explains most
published membership results on language models (Duan et al. 2024, "Do Membership Inference Attacks
Work on Large Language Models?"; Meeus et al. 2025, "SoK: Membership Inference Attacks on LLMs are
Rushing Nowhere"; Das, Zhang and Tramèr 2025, "Blind Baselines Beat Membership Inference Attacks
for Foundation Models").

The classifier is a ridge regression on weighted counts of words and pairs of words. Each text is
scored by a regression that was fitted without it and without other texts of its author.
Cross-validated scores are dependent, and the area under their ROC curve varies twice as much as
that of independent scores. So the test permutes the labels of texts, or of authors, and repeats the
cross-validation. This is cheap because predictions of a ridge regression are linear in the labels
(Golland and Fischl 2003, "Permutation Tests for Classification"). All texts are cut to the same
number of words, the smaller of both medians; shorter texts are left out.
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
"""Range of AUCs that are small differences of case, script or length."""

TRAITS: Mapping[str, Callable[[str], float]] = {
    "upper case": lambda text: _share(text, str.isupper),
    "script": lambda text: _share(text, lambda letter: ord(letter) > 127),
    "length": lambda text: float(len(text.split())),
}

FOLDS = 5
MAX_TEXTS = 1000
"""Most texts of a side for the classifier."""

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
        base: scores of both under a model that saw neither.
        who: this model in a sentence.
        seed: of folds and permutations.
    """
    authors, reference_authors = ([str(unit) for unit in np.asarray(side)] for side in units)
    words = word_shift(
        texts, reference, authors=authors, reference_authors=reference_authors, seed=seed
    )
    differences = ["words"] if words is not None and words.p_value <= LEVEL / TESTS else []
    for name, trait in TRAITS.items():
        ranks = _ranks([trait(text) for text in texts], [trait(text) for text in reference])
        small = SMALL[0] <= _auc(*ranks) <= SMALL[1]
        if not small and _p_value(*ranks, units, seed) <= LEVEL / TESTS:
            differences.append(name)
    if base is not None and _p_value(*_ranks(*base), units, seed) <= LEVEL / TESTS:
        differences.append(f"how well {who} predicts them")
    if differences:
        return Check(
            "comparable", "failed",
            f"The texts differ from the reference in {_and(differences)}: their scores can differ "
            "without training on them.",
        )  # fmt: skip
    if words is None:
        return Check(
            "comparable", "could not run",
            "Too few texts to compare their words with the words of the reference.",
        )  # fmt: skip
    same = "words, case, script and length"
    same += "" if base is None else f", and {who} predicts both alike"
    return Check("comparable", "passed", f"Texts and reference are alike in {same}.")


def _share(text: str, predicate: Callable[[str], bool]) -> float:
    """Share of the letters of a text that have a property."""
    letters = [character for character in text if character.isalpha()]
    return sum(map(predicate, letters)) / max(1, len(letters))


def _ranks(values: ArrayLike, reference: ArrayLike) -> tuple[Floats, Floats]:
    """Ranks of both sides in the pooled sample."""
    pooled = [np.asarray(side, dtype=np.float64) for side in (values, reference)]
    ranks = rankdata(np.concatenate(pooled))
    return ranks[: pooled[0].size], ranks[pooled[0].size :]


def _auc(ranks: Floats, reference_ranks: Floats) -> float:
    return float((ranks.mean() - (ranks.size + 1) / 2) / reference_ranks.size)


def _p_value(
    ranks: Floats, reference_ranks: Floats, units: tuple[ArrayLike, ArrayLike], seed: int
) -> float:
    """Two-sided p-value of the mean ranks of units."""
    means = means_by_group(ranks, units[0])
    reference_means = means_by_group(reference_ranks, units[1])
    tails = [
        unit_permutation_test(sign * means, sign * reference_means, seed=seed, permutations=1999)
        for sign in (1, -1)
    ]
    return min(1.0, 2 * min(tails))


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


class WordShift(NamedTuple):
    """How well the first `words` words of each text separate audited texts from the reference."""

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
    """Classify texts by their words as audited or reference, with cross-validation.

    Texts of an author are in the same fold. None if a side has fewer texts, or authors, than folds.
    """
    generator = np.random.default_rng(seed)
    sides = [[text.split() for text in side] for side in (texts, reference)]
    length = max(1, min(int(np.median([len(words) for words in side])) for side in sides))
    authors_by_side = (
        authors or range(len(texts)),
        reference_authors or range(len(reference)),
    )
    cut_texts: list[str] = []
    unit_names: list[tuple[int, str]] = []
    for side, (rows, row_authors) in enumerate(zip(sides, authors_by_side, strict=True)):
        long_enough = np.flatnonzero([len(words) >= length for words in rows])
        selected = np.sort(generator.permutation(long_enough)[:MAX_TEXTS]).tolist()
        cut_texts += [" ".join(rows[index][:length]) for index in selected]
        unit_names += [(side, str(row_authors[index])) for index in selected]
    names = sorted(set(unit_names))
    unit_of = {name: unit for unit, name in enumerate(names)}
    units = np.array([unit_of[name] for name in unit_names])
    audited = np.array([side == 0 for side, _ in names])
    if min(audited.sum(), (~audited).sum()) < FOLDS:
        return None
    permuted = generator.permuted(np.tile(audited, (PERMUTATIONS, 1)), axis=1)
    aucs = _aucs(cut_texts, units, np.vstack([audited, permuted]), generator)
    return WordShift(float(aucs[0]), float((aucs >= aucs[0] - 1e-9).mean()), length)


def _aucs(
    texts: Sequence[str],
    units: NDArray[np.int64],
    labels: NDArray[np.bool_],
    generator: np.random.Generator,
) -> Floats:
    """(d,) areas under the ROC curve of cross-validated scores, for labels (d, u) of the units."""
    text_labels = labels[:, units].T.astype(np.float64)  # (t, d)
    similarity = _similarity(texts)
    folds = generator.permutation(np.arange(labels.shape[1]) % FOLDS)[units]
    scores = np.empty_like(text_labels)
    for fold in range(FOLDS):
        test, train = folds == fold, folds != fold
        ridge = similarity[np.ix_(train, train)] + _RIDGE * np.eye(train.sum())
        targets = text_labels[train] - text_labels[train].mean(axis=0)
        predictions = similarity[np.ix_(test, train)] @ np.linalg.solve(ridge, targets)
        # Each fold has its own model, so scores are comparable only within a fold.
        scores[test] = rankdata(np.round(predictions, 9), axis=0) / test.sum()
    counts = np.bincount(units)
    sums = np.zeros((counts.size, text_labels.shape[1]))
    np.add.at(sums, units, scores)
    ranks = rankdata(sums / counts[:, None], axis=0)  # (u, d)
    unit_labels = labels.T
    n = unit_labels.sum(axis=0)
    u = (ranks * unit_labels).sum(axis=0) - n * (n + 1) / 2  # Mann and Whitney's statistic
    return np.asarray(u / (n * (counts.size - n)), dtype=np.float64)


def _similarity(texts: Sequence[str]) -> Floats:
    """(t, t) cosine similarities of weighted counts of words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(
        token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), sublinear_tf=True
    )
    weights = vectorizer.fit_transform(texts)
    return np.asarray((weights @ weights.T).toarray(), dtype=np.float64)
