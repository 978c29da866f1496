"""Intervals of a mean over words, resampled by user or text.

Efron (1979), "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics 7(1): units
(users or texts) are drawn with replacement, each with all of its words. Rao and Wu (1988),
"Resampling Inference With Complex Survey Data", Journal of the American Statistical Association
83(401): n - 1 of n units are drawn, so that the variance of a mean is right for few units, too.

A statistic is an array with its resamples: the first row is its value, the other r rows are its
values in the resamples. Differences and ratios of two statistics are taken row by row.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
_CELLS = 2**22
_MISSING = 0.05  # largest share of resamples without a value


def draw_counts(n: int, resamples: int, generator: np.random.Generator) -> Floats:
    """(r, n) how often each of n > 1 units is drawn, in n - 1 draws with replacement."""
    drawn = generator.integers(n, size=(resamples, n - 1)) + n * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * n).reshape(resamples, n).astype(float)


def resampled_sums(sums: ArrayLike, *, resamples: int, generator: np.random.Generator) -> Floats:
    """(1 + r, ...) sums of n units (n, ...), and in r resamples of n - 1 units each.

    One unit has no spread, so its resamples are NaN. A ratio of two sums needs no scaling.

    Example:
        >>> result = resampled_sums([1, 3], resamples=4, generator=np.random.default_rng(0))
        >>> float(result[0]), sorted(set(result[1:].tolist()))
        (4.0, [1.0, 3.0])
    """
    values = np.asarray(sums, dtype=np.float64)
    n, flat = len(values), values.reshape(len(values), -1)
    result = np.full((1 + resamples, flat.shape[1]), np.nan)
    result[0] = flat.sum(0)
    rows = max(1, _CELLS // n)
    for first in range(1, 1 + resamples, rows) if n > 1 else ():
        block = min(rows, 1 + resamples - first)
        result[first : first + block] = draw_counts(n, block, generator) @ flat
    return result.reshape(1 + resamples, *values.shape[1:])


def ratio(numerators: ArrayLike, denominators: ArrayLike) -> Floats:
    """The ratios; NaN for a denominator of zero."""
    top, bottom = np.broadcast_arrays(
        np.asarray(numerators, float), np.asarray(denominators, float)
    )
    ratios = np.full(top.shape, np.nan)
    np.divide(top, bottom, out=ratios, where=bottom != 0)
    return ratios


def percentiles(draws: Floats, *, confidence: float = 0.95) -> Floats:
    """(3, ...) values, and the percentiles of their resamples (1 + r, ...) as intervals.

    A value is NaN if there was nothing to count. The ends are NaN if more than one resample in
    twenty has no value, or if all have the same: a share of 0 in a few units has no known spread.

    Example:
        >>> percentiles(np.array([7.0, *range(101)]), confidence=0.9).round(3).tolist()
        [7.0, 5.0, 95.0]
    """
    tail = (1 - confidence) / 2
    no_ends = np.isnan(draws[1:]).mean(0) > _MISSING
    no_ends |= (draws[1:] == draws[0]).all(0)
    ends = np.nanquantile(np.where(no_ends, 0.0, draws[1:]), [tail, 1 - tail], axis=0)
    return np.stack([draws[0], *np.where(no_ends, np.nan, ends)])
