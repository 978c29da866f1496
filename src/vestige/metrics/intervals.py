"""Confidence intervals of rates, means and ratios.

Clopper and Pearson (1934), "The Use of Confidence or Fiducial Limits Illustrated in the Case of
the Binomial", Biometrika 26(4): the exact interval of a rate, and Student (1908), "The Probable
Error of a Mean", Biometrika 6(1): the interval of a mean. Thompson (1936), "On Confidence Ranges
for the Median": that of a median. Cochran (1977), "Sampling Techniques", section 2.11: that of a
ratio of sums over clusters.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from vestige import _validate


class Interval(NamedTuple):
    """The two ends of a confidence interval."""

    low: float
    high: float


def columns(name: str, value: float | None, interval: Interval | None) -> dict[str, float | None]:
    """A number and the ends of its interval as entries of a summary.

    Example:
        >>> columns("auc", 0.7, Interval(0.6, 0.8))
        {'auc': 0.7, 'auc_low': 0.6, 'auc_high': 0.8}
        >>> columns("auc", None, None)
        {'auc': None, 'auc_low': None, 'auc_high': None}
    """
    low, high = interval or (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """The interval of a rate; it covers the true rate at least as often as it says.

    Both ends are quantiles of beta distributions: low of Beta(k, n - k + 1) and high of
    Beta(k + 1, n - k). No success gives 0 at the low end only, and n of n gives 1 at the high
    end only, so that the interval always has a width. Without trials nothing is known.

    Args:
        successes: k, a whole number in [0, trials].
        trials: n.
        confidence: how often the interval covers the true rate, in (0, 1).

    Returns:
        two fractions.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> [round(end, 4) for end in clopper_pearson(0, 10)]
        [0.0, 0.3085]
    """
    _validate.at_least(0, successes=successes, trials=trials)
    _check_confidence(confidence)
    if successes > trials:
        raise ValueError(f"successes must be at most trials = {trials}, got {successes}")
    tail = (1 - confidence) / 2
    misses = trials - successes
    low = float(stats.beta.ppf(tail, successes, misses + 1)) if successes else 0.0
    high = float(stats.beta.isf(tail, successes + 1, misses)) if misses else 1.0
    return Interval(low, high)


def mean_interval(
    values: Sequence[float] | NDArray[np.floating], *, confidence: float = 0.95
) -> Interval | None:
    """The interval of a mean, by Student's t with n - 1 degrees of freedom.

    Args:
        values: n independent measurements, in any unit.
        confidence: how often the interval covers the true mean, in (0, 1).

    Returns:
        two ends in the unit of the values, or None with fewer than two values: one value says
        nothing about its own spread.

    Raises:
        ValueError: a value is not finite, or confidence is out of range.

    Example:
        >>> [round(end, 3) for end in mean_interval([1.0, 2.0, 3.0])]
        [-0.484, 4.484]
    """
    _check_confidence(confidence)
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if not np.isfinite(numbers).all():
        raise ValueError(f"values must be finite, got {numbers[~np.isfinite(numbers)][0]}")
    if numbers.size < 2:
        return None
    mean, spread = float(numbers.mean()), float(numbers.std(ddof=1))
    reach = float(stats.t.isf((1 - confidence) / 2, numbers.size - 1))
    margin = reach * spread / math.sqrt(numbers.size)
    return Interval(mean - margin, mean + margin)


def median_interval(
    values: Sequence[float] | NDArray[np.floating], *, confidence: float = 0.95
) -> Interval | None:
    """The interval of a median, by order statistics: exact whatever the distribution.

    Thompson (1936), Annals of Mathematical Statistics 7(3): the k-th smallest and the k-th largest
    of n values lie on either side of the median but for 2 P(B < k), B binomial with n and 1/2.

    Args:
        values: n independent measurements, in any unit; they may be infinite.
        confidence: how often the interval covers the true median at least, in (0, 1).

    Returns:
        two of the values, or None where so few have no such interval: fewer than 6 at 95 %.

    Raises:
        ValueError: a value is no number, or confidence is out of range.

    Example:
        >>> median_interval([5.0, 1.0, 4.0, 2.0, 3.0, 6.0])
        Interval(low=1.0, high=6.0)
        >>> median_interval([1.0, 2.0, 3.0]) is None
        True
    """
    _check_confidence(confidence)
    numbers = np.sort(np.asarray(values, dtype=np.float64).reshape(-1))
    if np.isnan(numbers).any():
        raise ValueError("values must be numbers, got nan")
    if not numbers.size:
        return None
    below = stats.binom.cdf(np.arange(numbers.size), numbers.size, 0.5)
    outside = int((below <= (1 - confidence) / 2).sum())  # k: P(B < k) is small enough
    if not outside:
        return None
    return Interval(float(numbers[outside - 1]), float(numbers[-outside]))


def ratio_of_sums(
    parts: ArrayLike, wholes: ArrayLike, *, confidence: float = 0.95
) -> tuple[float, Interval | None]:
    r"""A ratio of two sums over the same clusters, with its interval.

    .. math:: R = \frac{\sum_i y_i}{\sum_i x_i}, \qquad
        R \pm t \, \frac{\sqrt{\frac{n}{n-1} \sum_i (y_i - R x_i)^2}}{\sum_i x_i}

    A micro-averaged F1 is one, with 2 · right slots over given and expected slots, utterance by
    utterance: slots of one utterance are not independent.

    Args:
        parts: (n,) y, finite.
        wholes: (n,) x, in any unit; their sum is positive.
        confidence: how often the interval covers the true ratio, in (0, 1).

    Returns:
        (ratio, its interval; None for one cluster).

    Raises:
        ValueError: the arrays do not fit, a part is not finite, the wholes have no positive sum,
            or confidence is out of range.

    Example:
        >>> ratio, interval = ratio_of_sums([2, 2, 4, 0], [2, 4, 4, 2])
        >>> round(ratio, 3), [round(end, 3) for end in interval]
        (0.667, [0.021, 1.312])
    """
    _check_confidence(confidence)
    values = np.asarray(parts, dtype=np.float64)
    weights = np.asarray(wholes, dtype=np.float64)
    if values.ndim != 1 or values.shape != weights.shape:
        raise ValueError(
            "parts and wholes must be (n,) arrays of one length, "
            f"got {values.shape} and {weights.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"parts must be finite, got {values[~np.isfinite(values)][0]}")
    if not (total := float(weights.sum())) > 0:
        raise ValueError(f"wholes must have a positive sum, got {total:g}")
    ratio = float(values.sum()) / total
    if (n := values.size) < 2:
        return ratio, None
    spread = math.sqrt(n / (n - 1) * float(((values - ratio * weights) ** 2).sum())) / total
    margin = float(stats.t.isf((1 - confidence) / 2, n - 1)) * spread
    return ratio, Interval(ratio - margin, ratio + margin)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
