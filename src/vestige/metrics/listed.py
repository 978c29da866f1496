r"""Listed texts or users against a reference: scores of equal length, and how many were used.

**Equal length.** A score over few tokens has a larger variance than one over many: compared with
longer texts, short ones would look used too often. So a text and its reference texts are cut to the
same number of tokens, the largest of a ladder that the text reaches; shorter reference texts are
left out (`compare`). This number depends on lengths only, and the rule is the same for all lists.
If few reference texts are as long, it is the largest number that enough of them reach. Each author
of reference texts has the same weight, so the p-value is that of a text by another author (Lee,
Barber and Willett 2023, "Distribution-free inference with hierarchical data", section 3).

**Share used** (`share_used`). The number u of used texts among n listed ones is bounded by the
number above a threshold t, the k-th largest of m scores of unused texts. The n - u unused listed
texts are exchangeable with these, so the number of them above t is

.. math:: X_0 \sim \mathrm{BetaBinomial}(n - u, k, m + 1 - k)

for any distribution of scores (Wilks 1941, "Determination of Sample Sizes for Setting Tolerance
Limits"). If a of n listed texts are above t, all u are refuted for which X_0 is improbably as large
as a - u: a **lower bound**. An **upper bound** needs h texts that are known to be used, like those
listed. If u of the listed texts were used, a - X_0 of them are above t. They are compared with the
number c of the h above t by Fisher's exact test (1935) of two samples. Each bound is the best of a
few thresholds, fixed in advance as shares of the reference, which share its error (Bonferroni).
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from vestige.metrics.estimates import Floats, finite_scores

Integers = NDArray[np.int64]

STEP = 2 ** (1 / 8)
"""Ratio of one number of tokens to the next: a text loses at most 8% of its tokens."""

SHARES = (0.01, 0.05, 0.25)
"""Share of the reference above each threshold; small shares are best for informative scores."""


def ladder(longest: int) -> Integers:
    """Numbers of tokens that texts are cut to, ascending to `longest`: ..., 152, 166, 181, 197."""
    steps = np.arange(int(np.log(longest) / np.log(STEP) + 1e-9) + 1)
    return np.unique(np.rint(STEP**steps)).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class CutScores:
    """Scores of n texts over their first tokens.

    Attributes:
        lengths: (n,) tokens of each text, at least 1.
        rungs: (r,) ascending numbers of tokens, from 1.
        scores: (n, r) high for members; NaN if a text has fewer tokens.
    """

    lengths: Integers
    rungs: Integers
    scores: Floats

    @classmethod
    def of(
        cls, score: Callable[[Integers, int], Floats], lengths: ArrayLike, rungs: ArrayLike
    ) -> "CutScores":
        """Scores of all rungs; `score(texts, n)` scores texts, by index, over n first tokens."""
        tokens, cuts = np.asarray(lengths, dtype=np.int64), np.asarray(rungs, dtype=np.int64)
        scores = np.full((tokens.size, cuts.size), np.nan)
        for rung, cut in enumerate(cuts.tolist()):
            long_enough = np.flatnonzero(tokens >= cut)
            if long_enough.size:
                scores[long_enough, rung] = score(long_enough, cut)
        return cls(lengths=tokens, rungs=cuts, scores=scores)

    @classmethod
    def whole(cls, scores: ArrayLike) -> "CutScores":
        """Scores (n,) of texts that are not cut."""
        values = np.asarray(scores, dtype=np.float64)
        ones = np.ones(values.size, dtype=np.int64)
        return cls(lengths=ones, rungs=ones[:1], scores=values[:, None])

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, indices: ArrayLike) -> "CutScores":
        index = np.asarray(indices, dtype=np.int64)
        return CutScores(lengths=self.lengths[index], rungs=self.rungs, scores=self.scores[index])

    def __add__(self, other: "CutScores") -> "CutScores":
        return CutScores(
            lengths=np.concatenate([self.lengths, other.lengths]),
            rungs=self.rungs,
            scores=np.concatenate([self.scores, other.scores]),
        )

    def cut_at(self, most: int) -> Integers:
        """(n,) index of the rung at which each text is compared, at most `most`."""
        reached = np.searchsorted(self.rungs, self.lengths, side="right") - 1
        return cast("Integers", np.minimum(reached, most))

    def last_rung(self, fewest: int) -> int:
        """Index of the largest rung that at least `fewest` texts reach."""
        longest = int(np.sort(self.lengths)[-fewest])
        return int(np.searchsorted(self.rungs, longest, side="right")) - 1


class Compared(NamedTuple):
    """Texts against a reference, (n,) each; `others`: number of reference texts, or authors."""

    p_values: Floats
    scores: Floats
    tokens: Integers
    others: Integers


def compare(
    texts: CutScores,
    reference: CutScores,
    *,
    most: int,
    authors: ArrayLike | None = None,
    among: bool = False,
) -> Compared:
    r"""Conformal p-values of texts against reference texts with as many tokens.

    .. math:: p = \frac{1 + \sum_a \frac{1}{n_a} \#\{i \in a : c_i \ge s\}}{1 + A}

    for A authors a with n_a texts; without authors, each text has its own.

    Args:
        texts: n texts.
        reference: m texts, with the same rungs.
        most: index of the last rung to use.
        authors: (m,) of the reference.
        among: the texts are the reference: each one is compared with those of other authors.
    """
    cuts = texts.cut_at(most)
    author_of = np.arange(len(reference)) if authors is None else np.asarray(authors)
    text_scores = texts.scores[np.arange(len(texts)), cuts]
    p_values, others = np.empty(len(texts)), np.empty(len(texts), dtype=np.int64)
    for cut in np.unique(cuts).tolist():
        at_cut = np.flatnonzero(cuts == cut)
        long_enough = np.flatnonzero(reference.lengths >= reference.rungs[cut])
        scores = reference.scores[long_enough, cut]
        _, groups, sizes = np.unique(
            author_of[long_enough], return_inverse=True, return_counts=True
        )
        order = np.argsort(scores)
        weight_above = np.append(np.cumsum((1 / sizes[groups])[order][::-1])[::-1], 0.0)
        as_high = weight_above[np.searchsorted(scores[order], text_scores[at_cut], side="left")]
        others[at_cut] = sizes.size
        if among:
            own = _share_as_high(scores, groups, sizes)
            as_high -= own[np.searchsorted(long_enough, at_cut)]
            others[at_cut] -= 1
        p_values[at_cut] = (1 + as_high) / (1 + others[at_cut])
    return Compared(np.minimum(p_values, 1.0), text_scores, texts.rungs[cuts], others)


def _share_as_high(scores: Floats, groups: Integers, sizes: Integers) -> Floats:
    """(m,) share of the texts in each text's group that score at least as high, itself included."""
    _, ranks = np.unique(scores, return_inverse=True)
    keys = groups * (ranks.max() + 1) + ranks
    below = np.searchsorted(np.sort(keys), keys) - (np.cumsum(sizes) - sizes)[groups]
    return cast("Floats", 1 - below / sizes[groups])


@dataclass(frozen=True, kw_only=True)
class ShareUsed:
    """Bounds on the number of used texts; `at_most` is None without known used texts."""

    listed: int
    at_least: int
    at_most: int | None

    @property
    def consistent(self) -> bool:
        """Whether both bounds can hold; if not, known used texts differ from the listed ones."""
        return self.at_most is None or self.at_least <= self.at_most


def share_used(
    listed: ArrayLike,
    reference: ArrayLike,
    used: ArrayLike | None = None,
    *,
    confidence: float = 0.95,
) -> ShareUsed:
    """Bounds on the number of used texts among some listed texts.

    Args:
        listed: (n,) scores, high for used texts.
        reference: (m,) scores of unused texts, like the unused ones that are listed.
        used: (h,) scores of used texts, like the used ones that are listed.
        confidence: of each bound, in (0, 1).

    Raises:
        ValueError: there are no scores, or some are not finite.
    """
    scores, unused = finite_scores(listed, "listed"), np.sort(finite_scores(reference, "reference"))
    controls = None if used is None else finite_scores(used, "used")
    ranks = sorted({max(1, round(share * (unused.size + 1))) for share in SHARES})
    ranks = [rank for rank in ranks if rank <= unused.size]
    error = (1 - confidence) / len(ranks)
    lower, upper = 0, scores.size
    for rank in ranks:
        threshold, unused_above = unused[-rank], _UnusedAbove(rank, unused.size)
        # Scores equal to the threshold help neither bound.
        above = int((scores > threshold).sum())
        lower = max(lower, _lower_bound(above, scores.size, unused_above, error))
        if controls is not None:
            above = int((scores >= threshold).sum())
            hits = int((controls > threshold).sum())
            counts = (hits, controls.size)
            upper = min(upper, _upper_bound(above, scores.size, counts, unused_above, error))
    at_most = None if controls is None else upper
    return ShareUsed(listed=scores.size, at_least=lower, at_most=at_most)


@dataclass(frozen=True)
class _UnusedAbove:
    """Distribution of the number of n unused texts above the `rank`-th largest reference score.

    At least x are above it if and only if fewer than `rank` reference texts are among the
    x + rank - 1 largest of all, a hypergeometric number. This is faster than a beta-binomial sum.
    """

    rank: int
    reference: int

    def at_least(self, x: int, n: int) -> float:
        """Probability that at least x of n are above."""
        if x <= 0:
            return 1.0
        largest = x + self.rank - 1
        total = n + self.reference
        return float(stats.hypergeom.cdf(self.rank - 1, total, self.reference, largest))

    def lower_quantile(self, n: int, error: float) -> int:
        """The largest x such that at least x of n are above with probability over 1 - error."""
        return bisect_left(range(n), True, key=lambda x: self.at_least(x + 1, n) <= 1 - error)


def _lower_bound(above: int, listed: int, unused_above: _UnusedAbove, error: float) -> int:
    """The smallest number of used texts that `above` listed texts over the threshold allow."""
    return bisect_left(
        range(above),
        True,
        key=lambda used: unused_above.at_least(above - used, listed - used) > error,
    )


def _upper_bound(
    above: int, listed: int, controls: tuple[int, int], unused_above: _UnusedAbove, error: float
) -> int:
    """The largest number of used texts that `above` listed texts over the threshold allow.

    Args:
        controls: texts known to be used: how many are above the threshold, and how many there are.
    """
    hits, total = controls

    def possible(low: int, high: int) -> bool:
        """Whether a number from low to high may be possible; for low = high, whether it is.

        The p-value grows with the number of used texts that may be above, and falls with the number
        of used texts. So one test can exclude all numbers of an interval.
        """
        # Half of the error is for the number of unused texts above the threshold.
        used_above = min(above - unused_above.lower_quantile(listed - high, error / 2), high)
        if used_above < 0:
            return False
        most = min(used_above, low)
        p = stats.hypergeom.cdf(most, low + total, most + hits, low)
        return bool(p > error / 2)

    intervals = [(0, listed)]  # bisected until one number remains, the largest first
    while intervals:
        low, high = intervals.pop()
        if not possible(low, high):
            continue
        if low == high:
            return high
        middle = (low + high) // 2
        intervals += [(low, middle), (middle + 1, high)]
    return 0
