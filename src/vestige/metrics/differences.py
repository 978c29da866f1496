r"""Differences with intervals: of two means, of two perplexities, of two kinds of training.

Welch (1947), "The Generalization of Student's Problem when Several Different Population Variances
are Involved", Biometrika 34(1): two samples of unequal spread. Two models read the same documents,
so their perplexities are compared document by document: how hard a document is drops out. The
interval is that of a ratio of sums with documents as clusters (Cochran 1977, "Sampling
Techniques", section 2.11), since the tokens of one document are not independent.

Two ways of training are compared by several trainings each, which all answer for the same items
(canaries, documents). Both were drawn: `crossed_difference` has the trainings' part by Welch's t
over trainings, the items' part by Student's t over items, and adds the two margins as variances
add. What trainings and items do together is counted in both, so that the interval is wide rather
than narrow (Owen 2007, "The Pigeonhole Bootstrap", Annals of Applied Statistics 1(2), has the
same excess for its resampling of both).
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from vestige.metrics.intervals import Interval, ratio_of_sums

EVERYTHING = Interval(-math.inf, math.inf)
"""The interval of an unknown value."""


def difference_of_means(
    first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95
) -> Interval | None:
    """The interval of mean(first) - mean(second), by Welch's t.

    Args:
        first: independent measurements, in any unit.
        second: others, in the same unit.
        confidence: how often the interval covers the true difference, in (0, 1).

    Returns:
        two ends, or None where a sample has fewer than two values.

    Raises:
        ValueError: confidence is out of range.

    Example:
        >>> [round(end, 3) for end in difference_of_means([1, 2, 3], [0, 2])]
        [-4.977, 6.977]
    """
    _check(confidence)
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if min(a.size, b.size) < 2:
        return None
    middle = float(a.mean() - b.mean())
    va, vb = float(a.var(ddof=1)) / a.size, float(b.var(ddof=1)) / b.size
    if va + vb == 0:
        return Interval(middle, middle)
    freedom = (va + vb) ** 2 / (va**2 / (a.size - 1) + vb**2 / (b.size - 1))
    margin = float(stats.t.isf((1 - confidence) / 2, freedom)) * math.sqrt(va + vb)
    return Interval(middle - margin, middle + margin)


def perplexity_ratio(
    first: ArrayLike, second: ArrayLike, tokens: ArrayLike, *, confidence: float = 0.95
) -> tuple[float, Interval | None]:
    r"""How many times the second model's perplexity is over the first's, on the same documents.

    .. math:: \exp\left(\frac{\sum_i (\ell'_i - \ell_i)}{\sum_i n_i}\right)

    Args:
        first: (d,) summed loss of each document under the first model, in nats.
        second: (d,) under the second.
        tokens: (d,) predicted tokens of each.
        confidence: of the interval, in (0, 1).

    Returns:
        (ratio above 0, its interval; None for one document).

    Raises:
        ValueError: the arrays do not fit, a loss is not finite, or there is no token.

    Example:
        >>> perplexity_ratio([1.0, 2.0], [1.0, 2.0], [1, 1])
        (1.0, Interval(low=1.0, high=1.0))
    """
    _check(confidence)
    before, after = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    counts = np.asarray(tokens, dtype=np.float64)
    if before.ndim != 1 or not before.shape == after.shape == counts.shape:
        raise ValueError(
            "first, second and tokens must be (d,) arrays of one length, "
            f"got {before.shape}, {after.shape} and {counts.shape}"
        )
    difference = after - before
    if not np.isfinite(difference).all():
        raise ValueError("first and second must be finite, got a loss that is not")
    if not (total := float(counts.sum())) > 0:
        raise ValueError(f"tokens must have a positive sum, got {total:.0f}")
    middle, interval = ratio_of_sums(difference, counts, confidence=confidence)
    if interval is None:
        return _exp(middle), None
    return _exp(middle), Interval(_exp(interval.low), _exp(interval.high))


def crossed_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    confidence: float = 0.95,
) -> tuple[float, Interval]:
    r"""How much more the second way of training gives than the first, on average over items.

    .. math:: \bar y - \bar x \pm \sqrt{m_{trainings}^2 + m_{items}^2}

    Args:
        first: (k, n) values of n items under each of k trainings.
        second: (l, n) of the same items under each of l others.
        weights: (n,) what each item's values are sums over, such as a document's tokens: means are
            then ratios of sums. None: 1 each.
        confidence: of the interval, in (0, 1).

    Returns:
        (difference, its interval; `EVERYTHING` with fewer than two trainings on a side, or fewer
        than two items).

    Raises:
        ValueError: the arrays do not fit, a value is not finite, or confidence is out of range.

    Example:
        >>> value, interval = crossed_difference([[1, 2], [2, 3]], [[5, 5], [6, 6]])
        >>> value, [round(end, 2) for end in interval]
        (3.5, [-3.54, 10.54])
    """
    _check(confidence)
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or not a.size or not b.size:
        raise ValueError(
            "first and second must be (trainings, items) arrays of the same items, "
            f"got {a.shape} and {b.shape}"
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("first and second must be finite, got a value that is not")
    parts = np.ones(a.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    total = parts.sum()
    middle, over_items = ratio_of_sums(b.mean(0) - a.mean(0), parts, confidence=confidence)
    over_trainings = difference_of_means(b.sum(1) / total, a.sum(1) / total, confidence=confidence)
    return middle, widened(middle, over_trainings, over_items)


def difference_by_margins(
    first: float, first_interval: Interval, second: float, second_interval: Interval
) -> Interval:
    r"""The interval of a difference of two independent estimates from the interval of each.

    .. math:: L = \hat x - \hat y - \sqrt{(\hat x - l_x)^2 + (u_y - \hat y)^2}

    and likewise above: Newcombe (1998), "Interval estimation for the difference between independent
    proportions", method 10; Zou and Donner (2008), MOVER. With 0 of few on both sides it has a
    width, as it must.

    Args:
        first: an estimate.
        first_interval: its two ends.
        second: another, in the same unit.
        second_interval: its two ends.

    Returns:
        two ends of first - second.

    Example:
        >>> found = difference_by_margins(0.5, Interval(0.2, 0.8), 0.5, Interval(0.1, 0.9))
        >>> [round(end, 3) for end in found]
        [-0.5, 0.5]
    """
    middle = first - second
    below = math.hypot(first - first_interval.low, second_interval.high - second)
    above = math.hypot(first_interval.high - first, second - second_interval.low)
    return Interval(middle - below, middle + above)


def widened(middle: float, *intervals: Interval | None) -> Interval:
    """An interval around a value with the margins of several, added as variances add.

    Args:
        middle: the value, about which each of them is symmetric.
        intervals: one for each thing that was drawn; None where nothing is known of its spread.

    Returns:
        two ends; `EVERYTHING` where one is None.

    Example:
        >>> widened(0.0, Interval(-3, 3), Interval(-4, 4))
        Interval(low=-5.0, high=5.0)
        >>> widened(0.0, Interval(-3, 3), None)
        Interval(low=-inf, high=inf)
    """
    known = [one for one in intervals if one is not None]
    if len(known) < len(intervals):
        return EVERYTHING
    margin = math.hypot(*((one.high - one.low) / 2 for one in known))
    return Interval(middle - margin, middle + margin)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _check(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
