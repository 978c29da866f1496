r"""Bounds on the share of a list that was used in training, in both directions.

How many of n listed texts were used, u, is bounded by how many score above a threshold t, the k-th
largest of m scores of texts that were never used. Of the n - u others, exchangeable with those,

.. math:: X_0 \sim \mathrm{BetaBinomial}(n - u, k, m + 1 - k)

lie above t, whatever the distribution of scores (Wilks 1941, "Determination of Sample Sizes for
Setting Tolerance Limits": the share above an order statistic is Beta(k, m + 1 - k)). So a of n
above t refute every u for which X_0 can hardly be a - u: a **lower bound** that needs to know
nothing of how used texts score.

An **upper bound** does: a used text may score low, and be counted as none. It takes h texts that
are known to have been used, as the listed ones would have been. If u of the listed were used, at
most a - X_0 of these u lie above t, beside c of the h: Fisher's exact test (1935) says whether two
samples of one kind can differ so, and those u that it refutes are too many.

Each bound is the best of a few thresholds, fixed in advance as shares of the reference, which
share its error (Bonferroni).
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from vestige import _validate
from vestige.metrics.estimates import finite_scores

SHARES = (0.01, 0.05, 0.25)
"""Of the reference above each threshold: few for scores that tell well, many for others."""


@dataclass(frozen=True, kw_only=True)
class ShareUsed:
    """How many of the listed texts were used.

    Attributes:
        listed: n.
        at_least: a lower bound on their number.
        at_most: an upper bound; None without texts that are known to have been used.
    """

    listed: int
    at_least: int
    at_most: int | None

    @property
    def consistent(self) -> bool:
        """Whether both bounds can be true; else used texts are unlike those known to be used."""
        return self.at_most is None or self.at_least <= self.at_most


def share_used(
    listed: ArrayLike,
    reference: ArrayLike,
    used: ArrayLike | None = None,
    *,
    confidence: float = 0.95,
) -> ShareUsed:
    """How many of some texts were used, at least and at most.

    Args:
        listed: (n,) scores, high for used texts.
        reference: (m,) scores of texts that were never used, else like those listed that were not.
        used: (h,) scores of texts that were used, like those listed that were.
        confidence: how often each of the two bounds holds, at least; in (0, 1).

    Returns:
        whole numbers of the n texts.

    Raises:
        ValueError: scores are none or not finite, or the confidence is out of range.

    Example:
        >>> never = [float(i) for i in range(100)]
        >>> share_used([200.0] * 12 + never[:28], never, [200.0] * 40)
        ShareUsed(listed=40, at_least=10, at_most=14)
    """
    _validate.open_fraction(confidence=confidence)
    asked, never = finite_scores(listed, "listed"), np.sort(finite_scores(reference, "reference"))
    known = None if used is None else finite_scores(used, "used")
    places = sorted({max(1, round(share * (never.size + 1))) for share in SHARES})
    places = [place for place in places if place <= never.size]
    error = (1 - confidence) / len(places)
    lower, upper = 0, asked.size
    for place in places:
        threshold, others = never[-place], _Others(place, never.size)
        # What equals the threshold counts for neither bound.
        above = int((asked > threshold).sum())
        lower = max(lower, _at_least(above, asked.size, others, error))
        if known is not None:
            reached, hits = int((asked >= threshold).sum()), int((known > threshold).sum())
            found = _at_most(reached, asked.size, (hits, known.size), others, error)
            upper = min(upper, found)
    return ShareUsed(listed=asked.size, at_least=lower, at_most=None if known is None else upper)


@dataclass(frozen=True)
class _Others:
    """How many of n texts lie above the `place`-th largest of `never`, all of one kind.

    At least x do if and only if fewer than `place` of the others are among the x + place - 1
    largest of all, a hypergeometric number: a cumulative sum, and not one of n terms for each x.
    """

    place: int
    never: int

    def reach(self, x: int, n: int) -> float:
        """Chance that at least x of n do."""
        if x <= 0:
            return 1.0
        drawn = x + self.place - 1
        return float(stats.hypergeom.cdf(self.place - 1, n + self.never, self.never, drawn))

    def surely(self, n: int, error: float) -> int:
        """The number that is reached but for a chance of at most `error`."""
        return bisect_left(range(n), True, key=lambda x: self.reach(x + 1, n) <= 1 - error)


def _at_least(above: int, listed: int, others: _Others, error: float) -> int:
    """The fewest used texts with which so many above the threshold are no wonder."""
    return bisect_left(
        range(above), True, key=lambda used: others.reach(above - used, listed - used) > error
    )


def _at_most(above: int, listed: int, known: tuple[int, int], others: _Others, error: float) -> int:
    """The most used texts with which so few above the threshold are no wonder.

    The chance that so few of `used` are above rises with how many may be and falls with `used`. So
    one question rules out all numbers between two, and the rest are halved until one is left: the
    most of 10^5 takes some hundred questions and no memory.
    """
    hits, controls = known

    def possible(fewest: int, used: int) -> bool:
        """Whether any number from `fewest` to `used` can be possible; of one: whether it is."""
        # At least so many of the others are above, but for half of the error.
        left = min(above - others.surely(listed - used, error / 2), used)
        if left < 0:
            return False
        of = min(left, fewest)
        return bool(stats.hypergeom.cdf(of, fewest + controls, of + hits, fewest) > error / 2)

    intervals = [(0, listed)]
    while intervals:
        fewest, used = intervals.pop()
        if not possible(fewest, used):
            continue
        if fewest == used:
            return used
        middle = (fewest + used) // 2
        intervals += [(fewest, middle), (middle + 1, used)]
    return 0
