r"""Permutation tests: whether some values are unlike others of their kind.

Two tests (Fisher 1935, "The Design of Experiments", section 21). `permutation_test` is exact and of
ranks, with strata (Wilcoxon 1945; van Elteren 1960); `unit_permutation_test` draws divisions, and
its units may be whole groups, such as all texts of an author.

Differs from SciPy: `permutation_test` has no strata and enumerates or samples what is counted here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import comb, prod
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from vestige import _validate
from vestige.metrics.estimates import Floats, finite_scores
from vestige.metrics.tests import Test

Whole = NDArray[np.int64]

_WORK = 2 * 10**8  # additions that the distribution of a sum may take
_LONGEST = 20_000  # sums that are told apart
_CELLS = 2**24  # of one block of divisions


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
    r"""Compare values with others of their kind, stratum by stratum.

    For a random subset every choice of the same size is as likely. Two figures of a choice are
    compared with all others: the sum of its ranks, which many middling values make small, and its
    lowest rank, which one value alone makes small. Asking both costs a factor of 2,

    .. math:: p = \min(1, 2 \min(p_{sum}, p_{first})),

    and of a single value both are its conformal p-value. Equal values have their mean rank, so that
    a tie never helps. A rank counts as a share of its stratum. Where the sum of ranks has too many
    possible values, neighbouring ranks are made equal, which leaves the test exact.

    Args:
        strata: values tested (k,) and others (c,) of each, finite; low is what is looked for.

    Raises:
        ValueError: there is no stratum, or one of its sides is empty or not finite.

    Example:
        >>> permutation_test([([1.0], [2.0, 3.0, 4.0])]).p
        0.25
        >>> round(permutation_test([([1.0, 2.0], [3.0, 4.0, 5.0])]).p, 3)
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


def unit_permutation_test(
    tested: ArrayLike, others: ArrayLike, *, seed: int, permutations: int = 9999
) -> float:
    r"""The chance that a random division has the tested units as high as they are.

    A unit is whatever is independent: a text, or all texts of an author. What is compared is the
    studentized difference of means,

    .. math:: T = \frac{\bar x - \bar y}{\sqrt{s_x^2 / n + s_y^2 / m}},

    so that the test is exact where units can be exchanged, and right in large samples where only
    the means are equal (Chung and Romano 2013, "Exact and Asymptotically Robust Permutation Tests",
    Annals of Statistics 41(2)). With fewer than two units on a side it is the plain difference.

    Args:
        tested: (n,) a value for each unit; high is what is looked for.
        others: (m,) likewise.
        seed: of the divisions.
        permutations: how many are drawn.

    Returns:
        p-value, at least 1 / (permutations + 1).

    Example:
        >>> unit_permutation_test([8.0, 9.0, 7.0], [1.0, 2.0, 3.0, 2.5], seed=0) < 0.05
        True
    """
    _validate.at_least(1, permutations=permutations)
    own, rest = finite_scores(tested, "tested"), finite_scores(others, "others")
    pool = np.concatenate([own, rest])
    seen = _studentized(pool[None], own.size)[0]
    generator = np.random.default_rng(seed)
    as_high, left, block = 1, permutations, max(1, _CELLS // pool.size)
    while left:
        drawn = min(left, block)
        mixed = generator.permuted(np.broadcast_to(pool, (drawn, pool.size)), axis=1)
        as_high += int((_studentized(mixed, own.size) >= seen - 1e-9 * abs(seen)).sum())
        left -= drawn
    return as_high / (permutations + 1)


def _studentized(pools: Floats, first: int) -> Floats:
    """(b,) studentized differences of the first values of each row and the rest."""
    own, rest = pools[:, :first], pools[:, first:]
    apart = own.mean(axis=1) - rest.mean(axis=1)
    if min(own.shape[1], rest.shape[1]) < 2:
        return cast("Floats", apart)
    spread = own.var(axis=1, ddof=1) / own.shape[1] + rest.var(axis=1, ddof=1) / rest.shape[1]
    # Without any spread, any difference is as large as there can be.
    return cast("Floats", apart / np.sqrt(spread + 1e-24))


def means_by_group(values: ArrayLike, groups: ArrayLike) -> Floats:
    """The mean of each group, groups in the order of their names.

    Example:
        >>> means_by_group([1.0, 3.0, 5.0], ["a", "a", "b"]).tolist()
        [2.0, 5.0]
    """
    _, places = np.unique(np.asarray(groups), return_inverse=True)
    return np.bincount(places, np.asarray(values)) / np.bincount(places)
