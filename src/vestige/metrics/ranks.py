r"""Tests of ranks: of secrets among alternatives, and of some values among others of their kind.

`permutation_test` is exact (Fisher 1935, "The Design of Experiments", section 21), with strata
(Wilcoxon 1945; van Elteren 1960). SciPy's has no strata, and enumerates or samples what is counted
here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import comb, prod

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from vestige import _validate
from vestige.metrics.estimates import Floats, finite_scores
from vestige.metrics.tests import Test

Whole = NDArray[np.int64]
FEW = 12
"""P-values that are combined exactly; for more, chi square is near."""

_BIN = 0.01  # nats: sums are rounded up to bins of this, so that p-values are never too small
_EXACT = 200  # beyond so many ranks their sum is normal for every purpose
_WORK = 2 * 10**8  # additions that the distribution of a sum may take
_LONGEST = 20_000  # sums that are told apart


def together(p_values: ArrayLike, places: Sequence[int]) -> float:
    r"""One p-value of many ranks, for evidence in all of them and for strong evidence in one.

    Twice the smaller of Bonferroni's and Fisher's (1932, "Statistical Methods for Research
    Workers", section 21.1), :math:`T = -2 \sum_i \ln p_i`; of one p-value, itself.

    Differs from Fisher: the distribution of T is that of the discrete p-values where they are few:
    three of least 1/2 give 1/8, and not the 0.66 of chi square.

    Args:
        p_values: (m,) in (0, 1], independent.
        places: (m,) n of each: it is one of 1/n, 2/n, ..., 1.

    Example:
        >>> round(together([0.5, 0.5, 0.5], [2, 2, 2]), 3), round(together([0.01], [100]), 3)
        (0.25, 0.01)
    """
    values = finite_scores(p_values, "p_values")
    if values.min() <= 0 or values.max() > 1:
        raise ValueError(f"p_values must lie in (0, 1], got {values.min()} to {values.max()}")
    if len(places) != values.size:
        raise ValueError(f"places must be {values.size}, one for each p-value, got {len(places)}")
    _validate.at_least(1, places=min(places))
    if values.size == 1:
        return float(values[0])
    if values.size <= FEW:
        fisher = _exact_fisher(values, places)
    else:
        fisher = float(stats.combine_pvalues(values).pvalue)
    return min(1.0, 2 * min(fisher, values.size * float(values.min())))


def least_together(places: Sequence[int]) -> float:
    """What `together` gives where every p-value is as small as it can be.

    Example:
        >>> round(least_together([2, 2, 2]), 3)
        0.25
    """
    return together([1 / n for n in places], places)


def _exact_fisher(values: Floats, places: Sequence[int]) -> float:
    """P(sum of -ln U_i >= that seen), U_i uniform on 1/n_i, ..., 1; sums are binned upwards."""
    seen = float(-np.log(values).sum())
    chances = np.ones(1)
    for n in places:
        steps = np.ceil(-np.log(np.arange(1, n + 1) / n) / _BIN - 1e-9).astype(np.int64)
        chances = np.convolve(chances, np.bincount(steps) / n)
    # a sum binned upwards may pass what it equals: as many as do are counted
    first = max(0, math.ceil(seen / _BIN - 1e-6))
    return float(min(1.0, chances[first:].sum()))


def rank_sum(ranks: Sequence[float], spaces: Sequence[int]) -> float:
    """How often ranks of truths that a model never saw would be as low on average, or lower.

    Such a rank is uniform on 1 to its space. The mean of rank / space is compared with that of
    uniform numbers (Irwin 1927; Hall 1927), which it is never below: the probability is never too
    small.

    Example:
        >>> round(rank_sum([1.0, 2.0], [100, 100]), 5), rank_sum([50.0], [100])
        (0.00045, 0.5)
    """
    _validate.at_least(1, ranks=len(ranks))
    for rank, space in zip(ranks, spaces, strict=True):
        if not 1 <= rank <= space:
            raise ValueError(f"ranks must lie between 1 and {space}, got {rank}")
    n, total = len(ranks), math.fsum(np.divide(ranks, spaces))
    if n > _EXACT:
        return float(stats.norm.cdf((total - n / 2) / math.sqrt(n / 12)))
    return float(stats.irwinhall(n).cdf(total))


@dataclass(frozen=True)
class RankTest(Test):
    """Whether a random subset of a pool is as low.

    Attributes:
        of_sum: probability that its ranks have so small a sum.
        of_first: probability that its lowest value is as low.
    """

    of_sum: float = 1.0
    of_first: float = 1.0


def permutation_test(strata: Sequence[tuple[ArrayLike, ArrayLike]]) -> RankTest:
    r"""Compare values with others of their kind, stratum by stratum; low is what is looked for.

    Two figures of the tested values are compared with those of all choices of the same size: the
    sum of ranks, which many middling values make small, and the lowest rank, which one value alone
    makes small. Testing both costs a factor of 2,

    .. math:: p = \min(1, 2 \min(p_{sum}, p_{first})),

    and of a single value both are its conformal p-value. Equal values have their mean rank, so that
    a tie never helps. A rank counts as a share of its stratum. Where the sum of ranks has too many
    possible values, neighbouring ranks are made equal, which leaves the test exact.

    Args:
        strata: values tested (k,) and others (c,) of each, finite.

    Example:
        >>> permutation_test([([1.0], [2.0, 3.0, 4.0])]).p
        0.25
        >>> round(permutation_test([([1.0, 2.0], [3.0, 4.0, 5.0])]).p, 3)
        0.2
    """
    if not strata:
        raise ValueError("strata must hold at least one, got none")
    pairs = [(finite_scores(own, "tested"), finite_scores(c, "others")) for own, c in strata]
    pools = [stats.rankdata(np.concatenate(pair)) for pair in pairs]
    most = max(pool.size for pool in pools)
    # Twice a mean rank is whole; shares of the largest pool keep ranks of the others apart.
    places = [np.floor(2 * pool * (most + 1) / (pool.size + 1) + 0.5).astype(int) for pool in pools]
    sizes = [own.size for own, _ in pairs]
    of_sum, of_first = _sum_probability(places, sizes), _first_probability(places, sizes)
    times = 1 if sum(sizes) == 1 else 2
    choices = prod(comb(pool.size, k) for pool, k in zip(pools, sizes, strict=True))
    return RankTest(
        p=min(1.0, times * min(of_sum, of_first)),
        least=min(1.0, times / choices),
        of_sum=of_sum,
        of_first=of_first,
    )


def _first_probability(places: Sequence[Whole], sizes: Sequence[int]) -> float:
    """That the lowest of those picked, (k,) first in each pool, is as low."""
    pairs = list(zip(places, sizes, strict=True))
    lowest = min(int(pool[:k].min()) for pool, k in pairs)
    every = prod(comb(pool.size, k) for pool, k in pairs)
    higher = prod(comb(int((pool > lowest).sum()), k) for pool, k in pairs)
    return (every - higher) / every


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
