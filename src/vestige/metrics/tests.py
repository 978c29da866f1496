r"""Significance tests: p-values of units, and corrections for many of them.

Every p-value is exact or too large, never too small, whatever the distribution of the scores.
Conformal ones, which `listed.compare` computes, are positively dependent if they share a
calibration set, and Benjamini and Hochberg's procedure (1995) still bounds the false discovery rate
(Bates, Candès, Lei, Romano and Sesia 2023, "Testing for Outliers with Conformal p-values", Annals
of Statistics 51, theorem 2). The theorem does not cover p-values against different sets, such as
those who have as much text as each user: `benchmarks/claims_of_users.py` measures the rate there.
Holm (1979) bounds the family-wise error rate, whatever the dependence of the tests. Tests of ranks
are in `metrics.ranks`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from vestige import _validate
from vestige.metrics.estimates import Floats, finite_scores

Whole = NDArray[np.int64]
FEWEST = 8
"""Independent units on each side from which on their means are compared."""

_EQUAL = 1 + 1e-12  # p-values and levels are ratios: equal ones may differ in their last digit
_CELLS = 2**24  # of one block of divisions


@dataclass(frozen=True)
class Test:
    """A significance test.

    Attributes:
        p: p-value, in [0, 1], corrected for everything that was tested with it.
        least: the smallest possible p-value.
        alpha: level of the test, in (0, 1).
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
        """Whether p is at most alpha."""
        return self.p <= self.alpha

    @property
    def possible(self) -> bool:
        """Whether the test could have been significant."""
        return self.least <= self.alpha


def discoveries(p_values: ArrayLike, fdr: float) -> NDArray[np.bool_]:
    """Which of (m,) p-values are small at a false discovery rate of at most `fdr`, in (0, 1).

    Example:
        >>> discoveries([0.01, 0.5, 0.02, 0.9], 0.05).tolist()
        [True, False, True, False]
    """
    values = finite_scores(p_values, "p_values")
    if values.min() < 0 or values.max() > 1:
        raise ValueError(f"p_values must lie in [0, 1], got {values.min()} to {values.max()}")
    _validate.open_fraction(fdr=fdr)
    return cast("NDArray[np.bool_]", stats.false_discovery_control(values) <= fdr * _EQUAL)


def simes(p_values: ArrayLike) -> float:
    """One p-value of many (Simes 1986): at most `level` where `discoveries` at it finds any."""
    return float(stats.false_discovery_control(finite_scores(p_values, "p_values")).min())


def holm(p_values: ArrayLike) -> Floats:
    """(m,) adjusted p-values: those at most `level` are rejected at it by Holm's procedure.

    Example:
        >>> holm([0.01, 0.04, 0.03]).round(6).tolist()
        [0.03, 0.06, 0.06]
    """
    p = finite_scores(p_values, "p_values")
    order = p.argsort()
    adjusted = np.empty(p.size)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    return np.minimum(adjusted, 1.0)


def calibration_needed(rate: float, *, tested: int = 1) -> int:
    """Number of calibration users needed before any of `tested` users can be flagged.

    The least p-value is 1 / (n + 1), and Benjamini-Hochberg calls a single one of m at rate / m.

    Example:
        >>> calibration_needed(0.05), calibration_needed(0.05, tested=10)
        (19, 199)
    """
    _validate.open_fraction(rate=rate)
    _validate.at_least(1, tested=tested)
    return math.ceil(tested / rate - 1e-9) - 1


def most_by_chance(
    rate: float, *, calibration: int, tested: int, confidence: float = 0.975
) -> float:
    r"""Upper quantile of the share of non-members whose p-value is at or below a rate.

    All have one calibration set. With n calibration scores the number of m is

    .. math:: X \sim \mathrm{BetaBinomial}(m, a, n + 1 - a), \quad
        a = \lfloor \mathrm{rate} \, (n + 1) \rfloor

    Args:
        rate: in (0, 1).
        calibration: n, number of non-members.
        tested: m, p-values against them.
        confidence: in (0, 1).

    Returns:
        A fraction of m; 0 where n is so small that no p-value can be at or below the rate.

    Example:
        >>> most_by_chance(0.05, calibration=100, tested=200)
        0.11
    """
    _validate.open_fraction(rate=rate, confidence=confidence)
    _validate.at_least(1, calibration=calibration, tested=tested)
    below = math.floor(rate * (calibration + 1) + 1e-9)
    if below == 0:
        return 0.0
    return float(stats.betabinom.ppf(confidence, tested, below, calibration + 1 - below)) / tested


def at_least(number: int, chances: Sequence[float]) -> float:
    """Probability of so many independent events, or more (Poisson binomial).

    SciPy's `poisson_binom` computes 1 - cdf, which loses every digit below 1e-16.

    Example:
        >>> at_least(1, [0.5, 0.5])
        0.75
    """
    _validate.at_least(0, number=number)
    if not all(0 <= chance <= 1 for chance in chances):
        raise ValueError("chances must lie in [0, 1]")
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
    r"""How often a random division has the tested units as high as they are.

    Compared is the studentized difference of means of independent units,

    .. math:: T = \frac{\bar x - \bar y}{\sqrt{s_x^2 / n + s_y^2 / m}},

    so that the test is exact where units can be exchanged, and right in large samples where only
    the means are equal (Chung and Romano 2013, "Exact and Asymptotically Robust Permutation Tests",
    Annals of Statistics 41(2)). With fewer than two units on a side it is the plain difference.

    Args:
        tested: (n,) a value for each unit; high is what is looked for.
        others: (m,) likewise.
        seed: of the divisions.
        permutations: number of divisions; the least p-value is 1 / (permutations + 1).

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


def common_length(lengths: ArrayLike, units: ArrayLike, audited: int) -> int:
    """Positions that enough units of both sides reach.

    Args:
        lengths: (n,) values of each text, the audited texts first.
        units: (n,) the independent unit of each.
        audited: how many of the texts are audited; the rest are the reference.

    Example:
        >>> common_length([9] * 8 + [3] * 8, range(16), 8)
        3
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
    side, so that a permutation test of units is exact as before.

    Args:
        values: (t,) of all texts, one text after the other.
        lengths: (n,) values of each text.
        units: (n,) the independent unit of each.
        cut: positions that are compared, as of `common_length`.

    Example:
        >>> above_position_mean([1, 5, 3], [2, 1], [0, 1], cut=2).tolist()
        [-0.5, 1.0]
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
