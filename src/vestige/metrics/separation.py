r"""Area under the ROC curve of membership scores, with DeLong's interval.

The chance that a member's score is above another's, ties counting half: the area under the ROC
curve, by Mann and Whitney (1947). Its interval is that of DeLong, DeLong and Clarke-Pearson (1988),
"Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves",
Biometrics 44(3), equation 4, which assumes no shape of either side:

.. math:: V = \frac{S_{10}}{n} + \frac{S_{01}}{m}

with the variances, over members, of the share of others that each is above, and over others, of
the share of members that are above each.

Differs from the paper: both sides are given one more user below all and one above all before
variance and centre are computed, as Agresti and Caffo (2000), "Simple and Effective Confidence
Intervals for Proportions", American Statistician 54(4), do for rates. So the interval keeps a width
when scores separate perfectly, and room for a few members who were not drawn and score low.
`benchmarks/auc_intervals.py` measures how often it covers the truth, also where the spreads of the
two sides differ.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

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
        >>> found = separation([3.0, 2.0], [1.0, 2.0])
        >>> round(found.value, 3), [round(end, 2) for end in found.interval]
        (0.875, [0.14, 1.0])
    """
    inside, outside = finite_scores(members, "members"), finite_scores(others, "others")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    value = float(_shares_below(inside, outside).mean())
    ends = [-np.inf, np.inf]
    inside, outside = np.append(inside, ends), np.append(outside, ends)
    above = _shares_below(inside, outside)  # (n + 2,) of the others, of each member
    below = 1 - _shares_below(outside, inside)  # (m + 2,) of the members, of each other
    variance = above.var(ddof=1) / above.size + below.var(ddof=1) / below.size
    margin = float(ndtri((1 + confidence) / 2)) * math.sqrt(variance)
    centre = float(above.mean())
    low, high = max(0.0, centre - margin), min(1.0, centre + margin)
    return Separation(value, Interval(min(low, value), max(high, value)))


def finite_scores(scores: ArrayLike, name: str) -> np.ndarray:
    """(n,) float64; ValueError naming the argument unless there are some and all are finite."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be an array (n,) with n at least 1, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def _shares_below(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(n,) the share of the others below each score, equal ones counting half."""
    ordered = np.sort(others)
    lower, upper = (np.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
    return (lower + upper) / (2 * others.size)
