"""Whether the words of texts differ from those of a reference, as far as a classifier can tell.

If words alone separate audited texts from the reference, by topic, time or kind, so may any score,
and a small p-value says nothing about membership. Most published membership results on language
models are explained so (Duan et al. 2024, "Do Membership Inference Attacks Work on Large Language
Models?"; Meeus et al. 2025, "SoK: Membership Inference Attacks on LLMs are Rushing Nowhere"; Das,
Zhang and Tramèr 2025, "Blind Baselines Beat Membership Inference Attacks for Foundation Models").

The classifier is a ridge regression on weighted counts of words and pairs of words. Every text is
scored by one that was fitted without it, and without others of its author. Cross-validated scores
depend on each other, and the area under their ROC curve varies twice as much by chance as that of
independent ones. So sides are permuted among whole texts, or whole authors, and all is repeated,
which a ridge regression makes cheap: its predictions are linear in the labels (Golland and Fischl
2003, "Permutation Tests for Classification").

Length is a separate check (`claims.comparable`): all texts are cut to the same number of words, the
smaller of both medians, and shorter ones are left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

FOLDS = 5
MOST = 1000
"""Texts of a side that the classifier sees."""

PERMUTATIONS = 399
_RIDGE = 1.0

Floats = NDArray[np.float64]


class WordShift(NamedTuple):
    """How well words separate the audited texts from the reference.

    Attributes:
        auc: probability that an audited text looks more like the audited ones than a reference
            text does.
        p_value: of a permutation of sides.
        words: first words of each text that are compared.
    """

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

    Args:
        texts: n of them.
        reference: m of them.
        authors: (n,) of the texts; those of one author stay together.
        reference_authors: (m,) of the reference.
        seed: of folds and permutations.

    Returns:
        None if either side has fewer texts, or authors, than there are folds.
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
    """(d,) areas under the ROC curve of held-out scores, for each division of units into sides.

    Args:
        read: t texts.
        units: (t,) the unit of each, a text or an author.
        sides: (d, u) whether a unit is on the audited side.
    """
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
