r"""Significance tests: p-values, and corrections for several of them.

P-values are exact or conservative, for any distribution of the scores. Conformal p-values
(`listed.compare`) with the same calibration set are positively dependent; the procedure of
Benjamini and Hochberg (1995) still bounds their false discovery rate (Bates, Candès, Lei, Romano
and Sesia 2023, "Testing for Outliers with Conformal p-values", Annals of Statistics 51, theorem 2).
The theorem does not cover different calibration sets, such as users with as much text as the tested
user: `benchmarks/error_rates_membership.py` measures the rate for these. The procedure of Holm
(1979) bounds the family-wise error rate for any dependence.

`permutation_test` is exact (Fisher 1935, "The Design of Experiments", section 21), with strata
(Wilcoxon 1945; van Elteren 1960). SciPy's permutation test has no strata, and enumerates or samples
permutations instead of counting them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import comb, prod
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from vestige.metrics.estimates import Floats, finite_scores

Integers = NDArray[np.int64]
FEWEST = 8
"""Least number of independent units on each side for a comparison of means."""

_TOLERANCE = 1 + 1e-12  # equal p-values may differ in their last digit
_BLOCK_SIZE = 2**24  # values of permutations in memory
FEW = 12
"""Most p-values that are combined exactly; for more, chi square is a good approximation."""

_BIN = 0.01  # nats; sums are rounded up to a bin, so that p-values are never too small
_MAX_EXACT_RANKS = 200  # for more ranks, the normal approximation is used
_MAX_ADDITIONS = 2 * 10**8  # for the distribution of a rank sum
_MAX_SUMS = 20_000  # distinct values of a rank sum


@dataclass(frozen=True)
class Test:
    """A significance test.

    Attributes:
        p: p-value in [0, 1], corrected for multiple tests.
        least: smallest possible p-value.
        against: the reference of the comparison, in words.
    """

    __test__: ClassVar[bool] = False  # for pytest, which collects classes called Test

    p: float
    least: float
    alpha: float = 0.05
    against: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.against, str):
            raise TypeError("against must be a text")
        if not (0 <= self.p <= 1 and 0 <= self.least <= 1):
            raise ValueError("p-values must lie in [0, 1]")
        if not 0 < self.alpha < 1:
            raise ValueError("alpha must lie in (0, 1)")

    @property
    def significant(self) -> bool:
        return self.p <= self.alpha

    @property
    def possible(self) -> bool:
        """Whether the test could have been significant."""
        return self.least <= self.alpha


def discoveries(p_values: ArrayLike, fdr: float) -> NDArray[np.bool_]:
    """(m,) whether each p-value is rejected at a false discovery rate of at most `fdr`."""
    values = finite_scores(p_values, "p_values")
    if values.min() < 0 or values.max() > 1:
        raise ValueError(f"p_values must lie in [0, 1], got {values.min()} to {values.max()}")
    return cast("NDArray[np.bool_]", stats.false_discovery_control(values) <= fdr * _TOLERANCE)


def simes(p_values: ArrayLike) -> float:
    """Combined p-value (Simes 1986): at most `level` if `discoveries` at this level finds any."""
    return float(stats.false_discovery_control(finite_scores(p_values, "p_values")).min())


def holm(p_values: ArrayLike) -> Floats:
    """(m,) p-values adjusted by Holm's procedure."""
    p = finite_scores(p_values, "p_values")
    order = p.argsort()
    adjusted = np.empty(p.size)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    return np.minimum(adjusted, 1.0)


def calibration_needed(rate: float, *, tested: int = 1) -> int:
    """Least number of calibration users with which one of `tested` users can be flagged.

    The least p-value is 1 / (n + 1), and Benjamini-Hochberg flags a single one of m at rate / m.
    """
    return math.ceil(tested / rate - 1e-9) - 1


def most_by_chance(
    rate: float, *, calibration: int, tested: int, confidence: float = 0.975
) -> float:
    r"""Upper quantile of the share of non-members with a p-value of at most `rate`.

    They share a calibration set. With n calibration scores, the number of m such non-members is

    .. math:: X \sim \mathrm{BetaBinomial}(m, a, n + 1 - a), \quad
        a = \lfloor \mathrm{rate} \, (n + 1) \rfloor

    and 0 if n is too small for such a p-value.
    """
    below = math.floor(rate * (calibration + 1) + 1e-9)
    if below == 0:
        return 0.0
    return float(stats.betabinom.ppf(confidence, tested, below, calibration + 1 - below)) / tested


def at_least(number: int, probabilities: Sequence[float]) -> float:
    """Probability of `number` or more of some independent events (Poisson binomial).

    SciPy's `poisson_binom` computes 1 - cdf, which loses all digits below 1e-16.
    """
    # counts[k]: probability of k events; the last entry is that of `number` or more.
    counts = np.zeros(number + 1)
    counts[0] = 1.0
    for probability in probabilities:
        moved = counts * probability
        counts -= moved
        counts[1:] += moved[:-1]
        counts[-1] += moved[-1]
    return float(min(counts[-1], 1.0))


def unit_permutation_test(
    tested: ArrayLike, others: ArrayLike, *, seed: int, permutations: int = 9999
) -> float:
    r"""One-sided p-value of a random permutation test: are the tested units (n,) higher?

    The statistic is the studentized difference of the means of n and m independent units,

    .. math:: T = \frac{\bar x - \bar y}{\sqrt{s_x^2 / n + s_y^2 / m}}.

    The test is exact if the units are exchangeable, and valid in large samples if only the means
    are equal (Chung and Romano 2013, "Exact and Asymptotically Robust Permutation Tests", Annals of
    Statistics 41(2)). With fewer than two units on a side, the difference is not studentized. The
    least p-value is 1 / (permutations + 1).
    """
    sample, reference = finite_scores(tested, "tested"), finite_scores(others, "others")
    pool = np.concatenate([sample, reference])
    observed = _studentized(pool[None], sample.size)[0]
    generator = np.random.default_rng(seed)
    as_high, remaining, block = 1, permutations, max(1, _BLOCK_SIZE // pool.size)
    while remaining:
        size = min(remaining, block)
        permuted = generator.permuted(np.broadcast_to(pool, (size, pool.size)), axis=1)
        statistics = _studentized(permuted, sample.size)
        as_high += int((statistics >= observed - 1e-9 * abs(observed)).sum())
        remaining -= size
    return as_high / (permutations + 1)


def _studentized(pools: Floats, n: int) -> Floats:
    """(b,) studentized differences of means: of the first n values of each row and the others."""
    first, second = pools[:, :n], pools[:, n:]
    difference = first.mean(axis=1) - second.mean(axis=1)
    if min(first.shape[1], second.shape[1]) < 2:
        return cast("Floats", difference)
    variance = first.var(axis=1, ddof=1) / n + second.var(axis=1, ddof=1) / second.shape[1]
    # Without variance, any difference has the largest possible statistic.
    return cast("Floats", difference / np.sqrt(variance + 1e-24))


def means_by_group(values: ArrayLike, groups: ArrayLike) -> Floats:
    """The mean of each group; groups are sorted."""
    _, codes = np.unique(np.asarray(groups), return_inverse=True)
    return np.bincount(codes, np.asarray(values)) / np.bincount(codes)


def common_length(lengths: ArrayLike, units: ArrayLike, audited: int) -> int:
    """The largest length that `FEWEST` units of both sides reach.

    Args:
        lengths: (n,) number of values of each text, the audited texts first.
        units: (n,) independent unit of each text.
        audited: number of audited texts.
    """
    sizes, unit_names = np.asarray(lengths, dtype=np.int64), np.asarray(units)
    common = []
    for side in (slice(audited), slice(audited, None)):
        _, unit = np.unique(unit_names[side], return_inverse=True)
        longest = np.zeros(unit.max(initial=-1) + 1, dtype=np.int64)
        np.maximum.at(longest, unit, sizes[side])
        descending = np.sort(longest)[::-1]
        common.append(int(descending[min(FEWEST, descending.size) - 1]) if descending.size else 0)
    return min(common)


def above_position_mean(
    values: ArrayLike, lengths: ArrayLike, units: ArrayLike, *, cut: int
) -> Floats:
    r"""(n,) mean of each text's values minus the means at their positions; NaN without a value.

    Later tokens are easier to predict, so means of short and long texts are not comparable. The
    mean over all texts j that reach a position is subtracted from each value,

    .. math:: r_{it} = x_{it} - \frac{\sum_j w_j x_{jt}}{\sum_j w_j},

    where each independent unit has the same weight. The means do not depend on the sides of the
    texts, so a permutation test of units remains exact.

    Args:
        values: (t,) values of all texts, one text after the other.
        lengths: (n,) number of values of each text.
        units: (n,) independent unit of each text.
        cut: number of positions to use, as from `common_length`.
    """
    flat, sizes = np.asarray(values, dtype=np.float64), np.asarray(lengths, dtype=np.int64)
    _, unit = np.unique(np.asarray(units), return_inverse=True)
    weights = 1 / np.bincount(unit)[unit]
    text = np.repeat(np.arange(sizes.size), sizes)
    position = np.arange(flat.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    used = position < cut
    flat, text, position = flat[used], text[used], position[used]
    means = np.bincount(position, weights[text] * flat) / np.bincount(position, weights[text])
    counts = np.bincount(text, minlength=sizes.size).astype(np.float64)
    counts[counts == 0] = np.nan
    result: Floats = np.bincount(text, flat - means[position], minlength=sizes.size) / counts
    return result


def combined_p_value(p_values: ArrayLike, sizes: Sequence[int]) -> float:
    r"""Combine p-values of ranks: for evidence in all of them, and for strong evidence in one.

    Twice the smaller of the p-values of Bonferroni and of Fisher (1932, "Statistical Methods for
    Research Workers", section 21.1) with :math:`T = -2 \sum_i \ln p_i`; a single p-value remains as
    it is. Differs from Fisher: for few p-values, the distribution of T is that of discrete
    p-values. Three p-values of 1/2, the least possible, give 1/8, and 0.66 by chi square.

    Args:
        p_values: (m,) in (0, 1], independent.
        sizes: (m,) the i-th p-value is one of 1/n, 2/n, ..., 1 for n the i-th size.
    """
    values = finite_scores(p_values, "p_values")
    if values.min() <= 0 or values.max() > 1:
        raise ValueError(f"p_values must lie in (0, 1], got {values.min()} to {values.max()}")
    if values.size == 1:
        return float(values[0])
    if values.size <= FEW:
        fisher = _exact_fisher(values, sizes)
    else:
        fisher = float(stats.combine_pvalues(values).pvalue)
    return min(1.0, 2 * min(fisher, values.size * float(values.min())))


def least_combined_p_value(sizes: Sequence[int]) -> float:
    """The smallest possible `combined_p_value`."""
    return combined_p_value([1 / n for n in sizes], sizes)


def _exact_fisher(values: Floats, sizes: Sequence[int]) -> float:
    """P(sum of -ln U_i >= observed sum), U_i uniform on 1/n_i, ..., 1; sums are rounded up."""
    observed = float(-np.log(values).sum())
    distribution = np.ones(1)
    for n in sizes:
        bins = np.ceil(-np.log(np.arange(1, n + 1) / n) / _BIN - 1e-9).astype(np.int64)
        distribution = np.convolve(distribution, np.bincount(bins) / n)
    first = max(0, math.ceil(observed / _BIN - 1e-6))
    return float(min(1.0, distribution[first:].sum()))


def rank_sum(ranks: Sequence[float], spaces: Sequence[int]) -> float:
    """One-sided p-value of ranks under the null hypothesis that each is uniform on 1, ..., space.

    The sum of rank / space is compared with a sum of uniform numbers (Irwin 1927; Hall 1927). A
    rank / space is stochastically greater than a uniform number, so the p-value is conservative.
    """
    n, total = len(ranks), math.fsum(np.divide(ranks, spaces))
    if n > _MAX_EXACT_RANKS:
        return float(stats.norm.cdf((total - n / 2) / math.sqrt(n / 12)))
    return float(stats.irwinhall(n).cdf(total))


@dataclass(frozen=True)
class RankTest(Test):
    """A test of two statistics, with the p-value of each: the sum of ranks, and the lowest rank."""

    of_sum: float = 1.0
    of_first: float = 1.0


def permutation_test(strata: Sequence[tuple[ArrayLike, ArrayLike]]) -> RankTest:
    r"""Are the tested values lower than the others of their stratum? An exact permutation test.

    Two statistics are compared with those of all subsets of the same size: the sum of ranks, which
    is small if many values are rather low, and the lowest rank, which is small if one value is very
    low. Two tests cost a factor of 2, :math:`p = \min(1, 2 \min(p_{sum}, p_{first}))`; for a single
    value, both are its conformal p-value. Equal values have their mean rank, so a tie never lowers
    a p-value. A rank counts relative to the size of its stratum. If the sum of ranks has too many
    possible values, neighbouring ranks are made equal; the test remains exact.

    Args:
        strata: tested values (k,) and other values (c,) of each stratum, finite.
    """
    pairs = [
        (finite_scores(tested, "tested"), finite_scores(others, "others"))
        for tested, others in strata
    ]
    pools = [stats.rankdata(np.concatenate(pair)) for pair in pairs]
    largest = max(pool.size for pool in pools)
    # Twice a mean rank is an integer; on the scale of the largest pool, different ranks differ.
    ranks = [
        np.floor(2 * pool * (largest + 1) / (pool.size + 1) + 0.5).astype(int) for pool in pools
    ]
    sizes = [tested.size for tested, _ in pairs]
    of_sum, of_first = _sum_p_value(ranks, sizes), _first_p_value(ranks, sizes)
    tests = 1 if sum(sizes) == 1 else 2
    subsets = prod(comb(pool.size, k) for pool, k in zip(pools, sizes, strict=True))
    return RankTest(
        p=min(1.0, tests * min(of_sum, of_first)),
        least=min(1.0, tests / subsets),
        of_sum=of_sum,
        of_first=of_first,
    )


def _first_p_value(ranks: Sequence[Integers], sizes: Sequence[int]) -> float:
    """P-value of the lowest rank; the first k ranks of each stratum are those of tested values."""
    strata = list(zip(ranks, sizes, strict=True))
    lowest = min(int(pool[:k].min()) for pool, k in strata)
    subsets = prod(comb(pool.size, k) for pool, k in strata)
    higher = prod(comb(int((pool > lowest).sum()), k) for pool, k in strata)
    return (subsets - higher) / subsets


def _sum_p_value(ranks: Sequence[Integers], sizes: Sequence[int]) -> float:
    """P-value of the sum of ranks."""
    total = sum(int(pool[:k].sum()) for pool, k in zip(ranks, sizes, strict=True))
    steps = sum(pool.size * k for pool, k in zip(ranks, sizes, strict=True) if k > 1)
    width = max(1, -(-total // _MAX_SUMS), -(-steps * total // _MAX_ADDITIONS))
    ranks = [-(-pool // width) for pool in ranks]
    total = sum(int(pool[:k].sum()) for pool, k in zip(ranks, sizes, strict=True))
    by_stratum = [_sum_distribution(pool, k, total) for pool, k in zip(ranks, sizes, strict=True)]
    distribution: Floats = reduce(lambda a, b: np.convolve(a, b)[: total + 1], by_stratum)
    return min(1.0, float(distribution.sum()))


def _sum_distribution(pool: Integers, k: int, most: int) -> Floats:
    """(most + 1,) probability of each sum of k values sampled from a pool without replacement."""
    if k == 1:
        counts: Floats = np.bincount(pool[pool <= most], minlength=1).astype(np.float64)
        return counts / pool.size
    table: Floats = np.zeros((k + 1, most + 1))  # [j]: of j values
    table[0, 0] = 1.0
    # A random subset of j of the first i values has the i-th value with probability j / i.
    for i, value in enumerate(pool.tolist(), 1):
        for j in range(min(i, k), 0, -1):
            table[j] *= (i - j) / i
            if value <= most:
                table[j, value:] += table[j - 1, : most + 1 - value] * (j / i)
    result: Floats = table[k]
    return result
