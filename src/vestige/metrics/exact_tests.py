r"""Exact combination of a few p-values.

A rank among n things that could have stood in its place gives an exact p-value, rank / n: uniform
on 1/n, 2/n, ..., 1 where all of them are alike. Fisher (1932), "Statistical Methods for Research
Workers", section 21.1, takes several together:

.. math:: T = -2 \sum_i \ln p_i

Bates, Candès, Lei, Romano and Sesia (2023), "Testing for Outliers with Conformal p-values",
correct its distribution for p-values that share their calibration scores.

Differs from the papers: the distribution of T is that of discrete p-values, by convolution, where
they are few: three of least 1/2 come to 1/8, and not to the 0.66 of chi square.
"""

from collections.abc import Sequence
from math import ceil, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from vestige import _validate
from vestige.metrics.separation import finite_scores

FEW = 12
"""So many p-values or fewer have their exact distribution; for more, chi square is near it."""

_BIN = 0.01
"""Nats: sums are rounded up to bins of this, so that p-values are never too small."""

Floats = NDArray[np.float64]


def together(p_values: ArrayLike, places: Sequence[int], *, shared: int | None = None) -> float:
    """One p-value of many, for evidence in all of them and for strong evidence in a single one.

    Twice the smaller of Fisher's and Bonferroni's; of one p-value, itself.

    Args:
        p_values: (m,) in (0, 1].
        places: (m,) n of each: it is one of 1/n, 2/n, ..., 1.
        shared: calibration scores that all have in common; None for independent p-values.

    Returns:
        a probability, at least as large as chance would have it.

    Raises:
        ValueError: there is none, one is out of range, or the two differ in length.

    Example:
        >>> round(together([0.5, 0.5, 0.5], [2, 2, 2]), 3), round(together([0.01], [100]), 3)
        (0.25, 0.01)
        >>> round(together([1 / 120] * 3, [120] * 3), 8)
        1.16e-06
    """
    values = finite_scores(p_values, "p_values")
    if values.min() <= 0 or values.max() > 1:
        raise ValueError(f"p_values must lie in (0, 1], got {values.min()} to {values.max()}")
    if len(places) != values.size:
        raise ValueError(f"places must be {values.size}, one for each p-value, got {len(places)}")
    _validate.at_least(1, places=min(places))
    if values.size == 1:
        return float(values[0])
    bonferroni = values.size * float(values.min())
    few = shared is None and values.size <= FEW
    fisher = _exact_fisher(values, places) if few else _fisher(values, shared)
    return min(1.0, 2 * min(fisher, bonferroni))


def least_together(places: Sequence[int], *, shared: int | None = None) -> float:
    """What `together` gives where every p-value is as small as it can be.

    Example:
        >>> round(least_together([2, 2, 2]), 3)
        0.25
    """
    return together([1 / n for n in places], places, shared=shared)


def standing_out(p_values: ArrayLike, level: float) -> NDArray[np.bool_]:
    """Which p-values are small by themselves, wrongly any of them at most as often as `level`.

    Holm (1979), "A Simple Sequentially Rejective Multiple Test Procedure".

    Example:
        >>> standing_out([0.01, 0.2, 0.02], 0.05).tolist()
        [True, False, True]
    """
    values = finite_scores(p_values, "p_values")
    order = values.argsort(kind="stable")
    passed = values[order] <= level / np.arange(values.size, 0, -1)
    kept = np.zeros(values.size, dtype=bool)
    kept[order[: values.size if passed.all() else int(passed.argmin())]] = True
    return kept


def _fisher(values: Floats, shared: int | None) -> float:
    """By chi square; of shared calibration with the variance that it adds."""
    number, statistic = values.size, float(-2 * np.log(values).sum())
    more = sqrt(1 + number / shared) if shared else 1.0
    return float(stats.chi2.sf((statistic + 2 * number * (more - 1)) / more, 2 * number))


def _exact_fisher(values: Floats, places: Sequence[int]) -> float:
    """P(sum of -ln U_i >= that seen), U_i uniform on 1/n_i, ..., 1; sums are binned upwards."""
    seen = float(-np.log(values).sum())
    chances = np.ones(1)
    for n in places:
        steps = np.ceil(-np.log(np.arange(1, n + 1) / n) / _BIN - 1e-9).astype(np.int64)
        chances = np.convolve(chances, np.bincount(steps) / n)
    # a sum binned upwards may pass what it equals: as many as do are counted
    first = max(0, ceil(seen / _BIN - 1e-6))
    return float(min(1.0, chances[first:].sum()))
