"""Whether texts differ from a reference in more than membership, as far as no model is asked.

Where the words alone tell audited texts from the reference, by topic, time or kind, so may any
score, and a small p-value says nothing of membership. Most published membership results on language
models are explained so (Duan et al. 2024, "Do Membership Inference Attacks Work on Large Language
Models?"; Meeus et al. 2025, "SoK: Membership Inference Attacks on LLMs are Rushing Nowhere"; Das,
Zhang and Tramèr 2025, "Blind Baselines Beat Membership Inference Attacks for Foundation Models").

The classifier is a ridge regression on weighted counts of words and pairs of words. Every text is
scored by one that was fitted without it, and without others of its author. Scores that are
cross-validated depend on each other, and the area under their ROC curve spreads twice as far by
chance as that of independent ones. So chance is computed: sides are dealt anew to whole texts, or
to whole authors, and all is repeated, which a ridge regression makes cheap, since its predictions
are linear in the labels (Golland and Fischl 2003, "Permutation Tests for Classification").

Length is a question of its own (`claims.comparable`), since scores are compared at one length: all
texts are cut to the same number of words, the smaller of both medians, and shorter ones take no
part.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

FOLDS = 5
MOST = 1000
"""Texts of a side that the classifier sees."""

DEALS = 399
"""How often sides are dealt anew."""

LEVEL = 0.025

_RIDGE = 1.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class WordShift:
    """How well words tell the audited texts from the reference.

    Attributes:
        auc: chance that an audited text looks more like the audited ones than one of the reference.
        p_value: how often it is as high where sides are dealt at random.
        by_chance: what it then reaches at most, but for the share `LEVEL` of deals.
        words: how many first words of each text were looked at.
        texts, reference: how many of each took part.
    """

    auc: float
    p_value: float
    by_chance: float
    words: int
    texts: int
    reference: int

    @property
    def told_apart(self) -> bool:
        """Whether words tell the two apart better than chance."""
        return self.p_value <= LEVEL


def word_shift(
    texts: Sequence[str],
    reference: Sequence[str],
    *,
    authors: Sequence[str] | None = None,
    reference_authors: Sequence[str] | None = None,
    seed: int,
) -> WordShift | None:
    """Try to tell texts from a reference by their words, cross-validated.

    Args:
        texts: n of them.
        reference: m of them.
        authors: (n,) of the texts; those of one author stay together.
        reference_authors: (m,) of the reference.
        seed: of folds and deals.

    Returns:
        None where either side has fewer texts, or authors, than there are folds.
    """
    generator = np.random.default_rng(seed)
    sides = [[text.split() for text in side] for side in (texts, reference)]
    cut = max(1, min(int(np.median([len(words) for words in side])) for side in sides))
    owners = (authors or range(len(texts)), reference_authors or range(len(reference)))
    read: list[str] = []
    groups: list[tuple[int, str]] = []
    kept = []
    for side, (own, by) in enumerate(zip(sides, owners, strict=True)):
        places = np.flatnonzero([len(words) >= cut for words in own])
        chosen = np.sort(generator.permutation(places)[:MOST]).tolist()
        read += [" ".join(own[place][:cut]) for place in chosen]
        groups += [(side, str(by[place])) for place in chosen]
        kept.append(len(chosen))
    names = sorted(set(groups))
    place_of = {name: place for place, name in enumerate(names)}
    units = np.array([place_of[name] for name in groups])
    audited = np.array([side == 0 for side, _ in names])
    if min(audited.sum(), (~audited).sum()) < FOLDS:
        return None
    deals = generator.permuted(np.tile(audited, (DEALS, 1)), axis=1)
    aucs = _aucs(read, units, np.vstack([audited, deals]), generator)
    return WordShift(
        auc=float(aucs[0]),
        p_value=float((aucs >= aucs[0] - 1e-9).mean()),
        by_chance=float(np.quantile(aucs[1:], 1 - LEVEL)),
        words=cut,
        texts=kept[0],
        reference=kept[1],
    )


def _aucs(
    read: Sequence[str],
    units: NDArray[np.int64],
    deals: NDArray[np.bool_],
    generator: np.random.Generator,
) -> Floats:
    """(d,) areas under the ROC curve of held-out scores, for each deal of sides to units.

    Args:
        read: t texts.
        units: (t,) the unit of each, a text or an author.
        deals: (d, u) whether a unit stands on the audited side.
    """
    labels = deals[:, units].T.astype(np.float64)  # (t, d)
    alike = _likeness(read)
    folds = generator.permutation(np.arange(deals.shape[1]) % FOLDS)[units]
    scores = np.empty_like(labels)
    for fold in range(FOLDS):
        held, fitted = folds == fold, folds != fold
        ridge = alike[np.ix_(fitted, fitted)] + _RIDGE * np.eye(fitted.sum())
        known = labels[fitted] - labels[fitted].mean(axis=0)
        found = alike[np.ix_(held, fitted)] @ np.linalg.solve(ridge, known)
        # Folds have models of their own, whose scores compare only within a fold.
        scores[held] = rankdata(np.round(found, 9), axis=0) / held.sum()
    counts = np.bincount(units)
    sums = np.zeros((counts.size, labels.shape[1]))
    np.add.at(sums, units, scores)
    ranks = rankdata(sums / counts[:, None], axis=0)  # (u, d)
    inside = deals.T
    n = inside.sum(axis=0)
    above = (ranks * inside).sum(axis=0) - n * (n + 1) / 2  # Mann and Whitney's statistic
    return np.asarray(above / (n * (counts.size - n)), dtype=np.float64)


def _likeness(read: Sequence[str]) -> Floats:
    """(t, t) cosines of the texts' weighted counts of words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    counted = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), sublinear_tf=True)
    weights = counted.fit_transform(read)
    return np.asarray((weights @ weights.T).toarray(), dtype=np.float64)
