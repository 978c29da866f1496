r"""Intervals of a mean over words, resampled by user.

Efron (1979), "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics 7(1): units
(people, or texts) are drawn anew with replacement, each with all of its words. Rao and Wu (1988),
"Resampling Inference With Complex Survey Data", Journal of the American Statistical Association
83(401): n - 1 of n units are drawn, so that the variance of a mean is right for few units, too.

A statistic travels with its resamples: an array whose first row is its value and whose other r
rows are what it is in each resample. Differences and ratios of two are taken row by row.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate

Floats = NDArray[np.float64]
_CELLS = 2**22
_MISSING = 0.05


def drawn_counts(n: int, resamples: int, generator: np.random.Generator) -> Floats:
    """How often each of n units is drawn: n - 1 draws with replacement, in each resample.

    Args:
        n: units, at least two.
        resamples: r.
        generator: draws.

    Returns:
        (r, n), rows that sum to n - 1.

    Raises:
        ValueError: there are fewer than two units, or no resamples.
    """
    _validate.at_least(2, n=n)
    _validate.at_least(1, resamples=resamples)
    drawn = generator.integers(n, size=(resamples, n - 1)) + n * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * n).reshape(resamples, n).astype(float)


def resampled_sums(sums: ArrayLike, *, resamples: int, generator: np.random.Generator) -> Floats:
    """Sums over n units and over units that are drawn anew.

    Args:
        sums: (n, ...) what each unit adds.
        resamples: r.
        generator: draws.

    Returns:
        (1 + r, ...): the sums, then those of each resample; NaN there with one unit, which says
        nothing about its own spread. A ratio of two sums needs no scaling; a resampled sum alone
        is one of n - 1 units.

    Raises:
        ValueError: there are no units, or no resamples.

    Example:
        >>> found = resampled_sums([1, 3], resamples=4, generator=np.random.default_rng(0))
        >>> float(found[0]), sorted(set(found[1:].tolist()))
        (4.0, [1.0, 3.0])
    """
    values = np.asarray(sums, dtype=np.float64)
    _validate.at_least(1, resamples=resamples, units=len(values) if values.ndim else 0)
    n, flat = len(values), values.reshape(len(values), -1)
    found = np.full((1 + resamples, flat.shape[1]), np.nan)
    found[0] = flat.sum(0)
    rows = max(1, _CELLS // n)
    for first in range(1, 1 + resamples, rows) if n > 1 else ():
        block = min(rows, 1 + resamples - first)
        found[first : first + block] = drawn_counts(n, block, generator) @ flat
    return found.reshape(1 + resamples, *values.shape[1:])


def ratio(parts: ArrayLike, wholes: ArrayLike) -> Floats:
    """Parts over wholes, NaN where a whole is zero."""
    top, below = np.broadcast_arrays(np.asarray(parts, float), np.asarray(wholes, float))
    found = np.full(top.shape, np.nan)
    np.divide(top, below, out=found, where=below != 0)
    return found


def percentiles(draws: ArrayLike, *, confidence: float = 0.95) -> Floats:
    """Values, and the percentiles of their resamples as intervals.

    Args:
        draws: (1 + r, ...) values, then what they are in each resample.
        confidence: of the intervals, in (0, 1).

    Returns:
        (3, ...) value, low and high; NaN where there was nothing to count. The ends are NaN where
        more than one resample in twenty has no value, and where all have the same: a share of 0 in
        some units says nothing of its spread.

    Example:
        >>> percentiles([7.0, *range(101)], confidence=0.9).round(3).tolist()
        [7.0, 5.0, 95.0]
    """
    _validate.open_fraction(confidence=confidence)
    values = np.asarray(draws, dtype=np.float64)
    tail = (1 - confidence) / 2
    lacking = np.isnan(values[1:]).mean(0) > _MISSING
    lacking |= (values[1:] == values[0]).all(0)
    ends = np.nanquantile(np.where(lacking, 0.0, values[1:]), [tail, 1 - tail], axis=0)
    return np.stack([values[0], *np.where(lacking, np.nan, ends)])
