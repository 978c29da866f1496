r"""Exact permutation tests: whether some values of a pool are lower than a random subset of it.

Exact permutation tests (Fisher 1935; Wilcoxon 1945; with strata van Elteren 1960). For a random
subset, every choice of the same size is as likely; two figures of a choice are compared with all
others: the sum of its ranks, which many middling values make small, and its lowest rank, which one
value alone makes small. Asking both costs a factor of 2,

.. math:: p = \min(1, 2 \min(p_{sum}, p_{first})),

and of a single value both are the conformal p-value (1 + others at most as large) / (1 + others).
Equal values have their mean rank, so that a tie never helps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import comb, prod

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from vestige.metrics.separation import finite_scores

Whole = NDArray[np.int64]
Floats = NDArray[np.float64]

_WORK = 2 * 10**8  # additions that the distribution of a sum may take
_LONGEST = 20_000  # sums that are told apart


@dataclass(frozen=True, kw_only=True)
class PermutationTest:
    """Probability that a random subset is as low.

    Attributes:
        p_value: of both questions together.
        of_sum: that their ranks have so small a sum.
        of_first: that the lowest of them is as low.
        least: the p-value of values that stand before all others; no values can have less.
    """

    p_value: float
    of_sum: float
    of_first: float
    least: float


def permutation_test(strata: Sequence[tuple[ArrayLike, ArrayLike]]) -> PermutationTest:
    """Compare values with others of their kind, stratum by stratum.

    A rank counts as a share of its stratum. Where the sum of ranks has too many possible values,
    neighbouring ranks are made equal, which leaves the test exact and the least bit coarser.

    Args:
        strata: values tested (k,) and others (c,) of each, finite; low is what is looked for.

    Raises:
        ValueError: there is no stratum, or one of its sides is empty or not finite.

    Example:
        >>> permutation_test([([1.0], [2.0, 3.0, 4.0])]).p_value
        0.25
        >>> round(permutation_test([([1.0, 2.0], [3.0, 4.0, 5.0])]).p_value, 3)
        0.2
    """
    if not strata:
        raise ValueError("strata must hold at least one, got none")
    pairs = [(finite_scores(own, "tested"), finite_scores(c, "others")) for own, c in strata]
    pools = [rankdata(np.concatenate(pair)) for pair in pairs]
    most = max(pool.size for pool in pools)
    # Twice a mean rank is whole; shares of the largest pool keep ranks of the others apart.
    places = [np.floor(2 * pool * (most + 1) / (pool.size + 1) + 0.5).astype(int) for pool in pools]
    sizes = [own.size for own, _ in pairs]
    of_sum, of_first = _sum_probability(places, sizes), _first_probability(places, sizes)
    times = 1 if sum(sizes) == 1 else 2
    choices = prod(comb(pool.size, k) for pool, k in zip(pools, sizes, strict=True))
    return PermutationTest(
        p_value=min(1.0, times * min(of_sum, of_first)),
        of_sum=of_sum,
        of_first=of_first,
        least=min(1.0, times / choices),
    )


def _first_probability(places: Sequence[Whole], sizes: Sequence[int]) -> float:
    """That the lowest of those picked, (k,) first in each pool, is as low."""
    lowest = min(int(pool[:k].min()) for pool, k in zip(places, sizes, strict=True))
    behind = prod(
        comb(pool.size - int((pool <= lowest).sum()), k)
        for pool, k in zip(places, sizes, strict=True)
    )
    every = prod(comb(pool.size, k) for pool, k in zip(places, sizes, strict=True))
    return (every - behind) / every


def _sum_probability(places: Sequence[Whole], sizes: Sequence[int]) -> float:
    """That those picked have as small a sum."""
    total = sum(int(pool[:k].sum()) for pool, k in zip(places, sizes, strict=True))
    steps = sum(pool.size * k for pool, k in zip(places, sizes, strict=True) if k > 1)
    width = max(1, -(-total // _LONGEST), -(-steps * total // _WORK))
    places = [-(-pool // width) for pool in places]
    total = sum(int(pool[:k].sum()) for pool, k in zip(places, sizes, strict=True))
    shares = [_sums(pool, k, total) for pool, k in zip(places, sizes, strict=True)]
    found: Floats = reduce(lambda a, b: np.convolve(a, b)[: total + 1], shares)
    return min(1.0, float(found.sum()))


def _sums(pool: Whole, picked: int, most: int) -> Floats:
    """How likely each sum (0 to most) of so many values drawn at random from a pool is."""
    if picked == 1:
        counts: Floats = np.bincount(pool[pool <= most], minlength=1).astype(np.float64)
        return counts / pool.size
    shares: Floats = np.zeros((picked + 1, most + 1))
    shares[0, 0] = 1.0
    # Of the first i values, j are picked: with the i-th, j / i of all ways; without it, the rest.
    for i, value in enumerate(pool.tolist(), 1):
        for j in range(min(i, picked), 0, -1):
            shares[j] *= (i - j) / i
            if value <= most:
                shares[j, value:] += shares[j - 1, : most + 1 - value] * (j / i)
    likely: Floats = shares[picked]
    return likely
