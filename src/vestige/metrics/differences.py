r"""By how much do two groups differ in the mean, and two models in perplexity?

Welch (1947), "The Generalization of Student's Problem when Several Different Population Variances
are Involved", Biometrika 34(1): two samples of unequal spread. Two models read the same documents,
so their perplexities are compared document by document: how hard a document is drops out. The
interval is that of a ratio of sums with documents as clusters (Cochran 1977, "Sampling
Techniques", section 2.11), since the tokens of one document are not independent.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from vestige.metrics.intervals import Interval, ratio_of_sums


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


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _check(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
