r"""Significance tests: p-values of units, and corrections for many of them.

Every p-value is exact or too large, never too small, whatever the distribution of the scores.
Conformal ones, which `listed.compare` computes, are positively dependent if they share a
calibration set, and Benjamini and Hochberg's procedure (1995) still bounds the false discovery rate
(Bates, Candès, Lei, Romano and Sesia 2023, "Testing for Outliers with Conformal p-values", Annals
of Statistics 51, theorem 2). The theorem does not cover p-values against different sets, such as
those who have as much text as each user: `benchmarks/error_rates_membership.py` measures the rate.
Holm (1979) bounds the family-wise error rate, whatever the dependence of the tests.

`permutation_test` is exact (Fisher 1935, "The Design of Experiments", section 21), with strata
(Wilcoxon 1945; van Elteren 1960). SciPy's has no strata, and enumerates or samples what is counted
here.
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

Whole = NDArray[np.int64]
FEWEST = 8
"""Independent units on each side from which on their means are compared."""

_EQUAL = 1 + 1e-12  # p-values and levels are ratios: equal ones may differ in their last digit
_CELLS = 2**24  # of one block of divisions
FEW = 12
"""P-values that are combined exactly; for more, chi square is near."""

_BIN = 0.01  # nats: sums are rounded up to bins of this, so that p-values are never too small
_EXACT = 200  # beyond so many ranks their sum is normal for every purpose
_WORK = 2 * 10**8  # additions that the distribution of a sum may take
_LONGEST = 20_000  # sums that are told apart


@dataclass(frozen=True)
class Test:
    """A significance test.

    Attributes:
        p: p-value, in [0, 1], corrected for everything that was tested with it.
        least: the smallest possible p-value.
        against: what the tested were compared with.
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
    """Which of (m,) p-values are small at a false discovery rate of at most `fdr`, in (0, 1)."""
    values = finite_scores(p_values, "p_values")
    if values.min() < 0 or values.max() > 1:
        raise ValueError(f"p_values must lie in [0, 1], got {values.min()} to {values.max()}")
    return cast("NDArray[np.bool_]", stats.false_discovery_control(values) <= fdr * _EQUAL)


def simes(p_values: ArrayLike) -> float:
    """One p-value of many (Simes 1986): at most `level` where `discoveries` at it finds any."""
    return float(stats.false_discovery_control(finite_scores(p_values, "p_values")).min())


def holm(p_values: ArrayLike) -> Floats:
    """(m,) adjusted p-values: those at most `level` are rejected at it by Holm's procedure."""
    p = finite_scores(p_values, "p_values")
    order = p.argsort()
    adjusted = np.empty(p.size)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    return np.minimum(adjusted, 1.0)


def calibration_needed(rate: float, *, tested: int = 1) -> int:
    """Number of calibration users needed before any of `tested` users can be flagged.

    The least p-value is 1 / (n + 1), and Benjamini-Hochberg calls a single one of m at rate / m.
    """
    return math.ceil(tested / rate - 1e-9) - 1


def most_by_chance(
    rate: float, *, calibration: int, tested: int, confidence: float = 0.975
) -> float:
    r"""Upper quantile of the share of non-members whose p-value is at or below a rate.

    All have one calibration set. With n calibration scores the number of m is

    .. math:: X \sim \mathrm{BetaBinomial}(m, a, n + 1 - a), \quad
        a = \lfloor \mathrm{rate} \, (n + 1) \rfloor

    and 0 where n is so small that no p-value can be at or below the rate.
    """
    below = math.floor(rate * (calibration + 1) + 1e-9)
    if below == 0:
        return 0.0
    return float(stats.betabinom.ppf(confidence, tested, below, calibration + 1 - below)) / tested


def at_least(number: int, chances: Sequence[float]) -> float:
    """Probability of so many independent events, or more (Poisson binomial).

    SciPy's `poisson_binom` computes 1 - cdf, which loses every digit below 1e-16.
    """
    # counts[k]: probability of k events; the last of them stands for `number` and more.
    counts = np.zeros(number + 1)
    counts[0] = 1.0
    for chance in chances:
        moved = counts * chance
        counts -= moved
        counts[1:] += moved[:-1]
        counts[-1] += moved[-1]
    return float(min(counts[-1], 1.0))


def unit_permutation_test(
    tested: ArrayLike, others: ArrayLike, *, seed: int, permutations: int = 9999
) -> float:
    r"""How often a random division has the tested units (n,) as high as they are, among others.

    Compared is the studentized difference of means of independent units,

    .. math:: T = \frac{\bar x - \bar y}{\sqrt{s_x^2 / n + s_y^2 / m}},

    so that the test is exact where units can be exchanged, and right in large samples where only
    the means are equal (Chung and Romano 2013, "Exact and Asymptotically Robust Permutation
    Tests", Annals of Statistics 41(2)). With fewer than two units on a side it is the plain
    difference. The least p-value is 1 / (permutations + 1).
    """
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
    """The mean of each group, groups in the order of their names."""
    _, places = np.unique(np.asarray(groups), return_inverse=True)
    return np.bincount(places, np.asarray(values)) / np.bincount(places)


def common_length(lengths: ArrayLike, units: ArrayLike, audited: int) -> int:
    """Positions that enough units of both sides reach.

    `lengths`, `units`: (n,) values and independent unit of each text, the audited texts first.
    """
    sizes, owners = np.asarray(lengths, dtype=np.int64), np.asarray(units)
    reached = []
    for side in (slice(audited), slice(audited, None)):
        _, unit = np.unique(owners[side], return_inverse=True)
        longest = np.zeros(unit.max(initial=-1) + 1, dtype=np.int64)
        np.maximum.at(longest, unit, sizes[side])
        ordered = np.sort(longest)[::-1]
        reached.append(int(ordered[min(FEWEST, ordered.size) - 1]) if ordered.size else 0)
    return min(reached)


def above_position_mean(
    values: ArrayLike, lengths: ArrayLike, units: ArrayLike, *, cut: int
) -> Floats:
    r"""(n,) mean of each text's values less the means at their positions; NaN without a value.

    Later tokens are easier to predict, so the mean of a short text is not comparable with that of a
    long one. From each value the mean over all texts j that reach its position is subtracted,

    .. math:: r_{it} = x_{it} - \frac{\sum_j w_j x_{jt}}{\sum_j w_j},

    each independent unit with the same weight. The means do not depend on which text is on which
    side, so that a permutation test of units is exact as before. `values`: (t,) of all texts, one
    after the other; `cut`: positions that are compared, as of `common_length`.
    """
    own, sizes = np.asarray(values, dtype=np.float64), np.asarray(lengths, dtype=np.int64)
    _, unit = np.unique(np.asarray(units), return_inverse=True)
    weights = 1 / np.bincount(unit)[unit]
    text = np.repeat(np.arange(sizes.size), sizes)
    position = np.arange(own.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    used = position < cut
    own, text, position = own[used], text[used], position[used]
    means = np.bincount(position, weights[text] * own) / np.bincount(position, weights[text])
    counts = np.bincount(text, minlength=sizes.size).astype(np.float64)
    counts[counts == 0] = np.nan
    found: Floats = np.bincount(text, own - means[position], minlength=sizes.size) / counts
    return found


def together(p_values: ArrayLike, places: Sequence[int]) -> float:
    r"""One p-value of many ranks, for evidence in all of them and for strong evidence in one.

    Twice the smaller of Bonferroni's and Fisher's (1932, "Statistical Methods for Research
    Workers", section 21.1), :math:`T = -2 \sum_i \ln p_i`; of one p-value, itself. Differs from
    Fisher: the distribution of T is that of the discrete p-values where they are few: three of
    least 1/2 give 1/8, and not the 0.66 of chi square.

    Args:
        p_values: (m,) in (0, 1], independent.
        places: (m,) n of each: it is one of 1/n, 2/n, ..., 1.
    """
    values = finite_scores(p_values, "p_values")
    if values.min() <= 0 or values.max() > 1:
        raise ValueError(f"p_values must lie in (0, 1], got {values.min()} to {values.max()}")
    if values.size == 1:
        return float(values[0])
    if values.size <= FEW:
        fisher = _exact_fisher(values, places)
    else:
        fisher = float(stats.combine_pvalues(values).pvalue)
    return min(1.0, 2 * min(fisher, values.size * float(values.min())))


def least_together(places: Sequence[int]) -> float:
    """What `together` gives where every p-value is as small as it can be."""
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
    """
    n, total = len(ranks), math.fsum(np.divide(ranks, spaces))
    if n > _EXACT:
        return float(stats.norm.cdf((total - n / 2) / math.sqrt(n / 12)))
    return float(stats.irwinhall(n).cdf(total))


@dataclass(frozen=True)
class RankTest(Test):
    """Whether a random subset of a pool is as low: its sum of ranks, and its lowest value."""

    of_sum: float = 1.0
    of_first: float = 1.0


def permutation_test(strata: Sequence[tuple[ArrayLike, ArrayLike]]) -> RankTest:
    r"""Compare values with others of their kind, stratum by stratum; low is what is looked for.

    The sum of ranks, which many middling values make small, and the lowest rank, which one value
    alone makes small, are compared with those of all choices of the same size. Testing both costs
    a factor of 2, :math:`p = \min(1, 2 \min(p_{sum}, p_{first}))`, and of a single value both are
    its conformal p-value. Equal values have their mean rank, so that a tie never helps. A rank
    counts as a share of its stratum. Where the sum of ranks has too many possible values,
    neighbouring ranks are made equal, which leaves the test exact.

    `strata`: values tested (k,) and others (c,) of each, finite.
    """
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
