r"""Significance tests: p-values of scores and ranks, and corrections for many of them.

Every p-value is exact or too large, never too small, whatever the distribution of the scores.
Permutation tests are in `metrics.permutation`.

A conformal p-value compares one score with those of known non-members (Vovk, Gammerman and Shafer
2005, "Algorithmic Learning in a Random World", section 2.2),

.. math:: p = \frac{1 + \#\{i : c_i \ge s\}}{n + 1}.

Many of them against one set of others are positively dependent, and Benjamini and Hochberg's
procedure (1995) still bounds the false discovery rate (Bates, Candès, Lei, Romano and Sesia 2023,
"Testing for Outliers with Conformal p-values", Annals of Statistics 51, theorem 2). The theorem
does not cover p-values against different sets, such as those who have as much text as each user:
`benchmarks/claims_of_users.py` measures the rate there. Holm (1979) bounds the family-wise error
rate, and assumes nothing of how tests depend on each other.
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

_EQUAL = 1 + 1e-12  # p-values and levels are ratios: equal ones may differ in their last digit
FEW = 12  # p-values that are combined exactly; for more, chi square is near it
_BIN = 0.01  # nats: sums are rounded up to bins of this, so that p-values are never too small
_EXACT = 200  # beyond so many ranks their sum is normal for every purpose


@dataclass(frozen=True)
class Test:
    """A significance test.

    Attributes:
        p: p-value, in [0, 1], corrected for everything that was tested beside it.
        least: the smallest p-value that could have come out.
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


def conformal_p_values(scores: ArrayLike, calibration: ArrayLike) -> Floats:
    """(m,) p-values, at least 1 / (n + 1): small where few of the calibration scores reach one.

    Args:
        scores: (m,) finite, high for members.
        calibration: (n,) finite scores of non-members who had no part in fitting the score.

    Example:
        >>> conformal_p_values([2.5, 0.0], [0.0, 1.0, 2.0, 3.0]).tolist()
        [0.4, 1.0]
    """
    asked = finite_scores(scores, "scores")
    known = np.sort(finite_scores(calibration, "calibration"))
    reached = known.size - np.searchsorted(known, asked, side="left")
    return cast("Floats", (1.0 + reached) / (known.size + 1.0))


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

    All are measured against one calibration set. With n calibration scores the number of m is

    .. math:: X \sim \mathrm{BetaBinomial}(m, a, n + 1 - a), \quad
        a = \lfloor \mathrm{rate} \, (n + 1) \rfloor

    Args:
        rate: in (0, 1).
        calibration: n, number of non-members.
        tested: m, p-values against them.
        confidence: how often the share is at most what is returned, at least; in (0, 1).

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


def together(p_values: ArrayLike, places: Sequence[int]) -> float:
    r"""One p-value of many ranks, for evidence in all of them and for strong evidence in one.

    Twice the smaller of Bonferroni's and Fisher's (1932, "Statistical Methods for Research
    Workers", section 21.1), :math:`T = -2 \sum_i \ln p_i`; of one p-value, itself.

    Differs from Fisher: the distribution of T is that of the discrete p-values where they are few:
    three of least 1/2 come to 1/8, and not to the 0.66 of chi square.

    Args:
        p_values: (m,) in (0, 1], independent.
        places: (m,) n of each: it is one of 1/n, 2/n, ..., 1.

    Raises:
        ValueError: there is none, one is out of range, or the two differ in length.

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


def at_least(number: int, chances: Sequence[float]) -> float:
    """Probability that so many independent events happen, or more (Poisson binomial).

    Where a chance is the most that an event may have, so is the probability. SciPy's
    `poisson_binom` computes 1 - cdf, which loses every digit below 1e-16.

    Args:
        number: of events, 0 or more.
        chances: probability of each event.

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


def rank_sum(ranks: Sequence[float], spaces: Sequence[int]) -> float:
    """How often ranks of truths that a model never saw would be as low on average, or lower.

    Such a rank is any of 1 to its space alike. The mean of rank / space is compared with that of
    uniform numbers (Irwin 1927; Hall 1927), which it is never below: the probability is never too
    small.

    Args:
        ranks: of independent trials.
        spaces: secrets there are in each.

    Raises:
        ValueError: no ranks, or one that is not between 1 and its space.

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
