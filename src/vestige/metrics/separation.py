r"""How well do scores tell members from the rest, whatever the threshold?

The chance that a member's score is above another's, ties counting half: the area under the ROC
curve, by Mann and Whitney (1947). Its interval solves
:math:`|\hat\theta - \theta| = z \sqrt{V(\theta)}` for the variance of Hanley and McNeil (1982),
both sample sizes in its numerator replaced by their mean: Newcombe (2006), "Confidence Intervals
for an Effect Size Measure Based on the Mann–Whitney Statistic. Part 2", method 5. Unlike intervals
from the variance at the estimate, it keeps a width when the scores separate perfectly.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import rankdata

from vestige.metrics.intervals import Interval


class Separation(NamedTuple):
    """The area under the ROC curve, 0.5 for scores that tell nothing, with its interval."""

    value: float
    interval: Interval


def separation(members: ArrayLike, others: ArrayLike, *, confidence: float = 0.95) -> Separation:
    """The chance that a member's score is above another's.

    Args:
        members: (n,) finite scores, n at least 1.
        others: (m,) finite scores, m at least 1.
        confidence: how often the interval covers the truth, about; in (0, 1).

    Returns:
        fractions in [0, 1].

    Raises:
        ValueError: an argument is empty, not finite or out of range.

    Example:
        >>> round(separation([3.0, 2.0], [1.0, 2.0]).value, 3)
        0.875
    """
    inside, outside = finite_scores(members, "members"), finite_scores(others, "others")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    n, m = inside.size, outside.size
    ranks = rankdata(np.concatenate([inside, outside]))[:n]
    value = float((ranks.sum() - n * (n + 1) / 2) / (n * m))
    z = float(ndtri((1 + confidence) / 2))
    low = 1 - _end(1 - value, n, m, z)
    return Separation(value, Interval(low, _end(value, n, m, z)))


def finite_scores(scores: ArrayLike, name: str) -> np.ndarray:
    """(n,) float64; ValueError naming the argument unless there are some and all are finite."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be an array (n,) with n at least 1, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def _end(estimate: float, n: int, m: int, z: float) -> float:
    """The largest area that is compatible with the estimate, by bisection."""
    mean = (n + m) / 2 - 1

    def compatible(area: float) -> bool:
        spread = area * (1 - area) / (n * m)
        variance = spread * (1 + mean * ((1 - area) / (2 - area) + area / (1 + area)))
        return area - estimate <= z * math.sqrt(variance)

    low, high = estimate, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if compatible(middle) else (low, middle)
    return high
