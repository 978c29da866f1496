"""Estimates with confidence intervals: means, medians, rates, ratios, differences, the ROC area.

Both ends are None if there are too few units for an interval.

Sources: Student (1908), Biometrika 6(1), for means; Welch (1947), Biometrika 34(1), for
differences; Clopper and Pearson (1934), Biometrika 26(4), for rates; Cochran (1977), "Sampling
Techniques", section 2.11, for ratios of sums; the others are named at their functions. SciPy's
tests compute p-values as well, take 5 to 100 times as long, and warn about equal values.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]
_EQUAL = 1e-9  # relative to the ceiling


class Interval(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A measured quantity with its confidence interval (95% unless stated otherwise).

    `low` and `high` are None without an interval. `n`: independent units, 0 if not counted.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    unit: str = ""
    n: int = 0

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and isinstance(self.unit, str)):
            raise TypeError("name and unit must be texts")
        numbers = [x for x in (self.value, self.low, self.high) if x is not None]
        if any(isinstance(x, bool) or not isinstance(x, Real) for x in numbers):
            raise TypeError("value, low and high must be numbers")

    @property
    def interval(self) -> Interval:
        """Both ends; an end that is None is infinite."""
        low = -math.inf if self.low is None else self.low
        return Interval(low, math.inf if self.high is None else self.high)

    @property
    def count(self) -> int:
        """Of a rate: the number of successes in its `n` trials."""
        return round(self.value * self.n)

    def scaled(self, factor: float) -> "Estimate":
        """The estimate in another unit; the factor is positive."""
        low, high = (None if end is None else factor * end for end in (self.low, self.high))
        return Estimate(self.name, factor * self.value, low, high, self.unit, self.n)

    def within(self, low: float, high: float) -> "Estimate":
        """The estimate with its ends limited to the range of the quantity."""
        if self.low is None or self.high is None:
            return self
        ends = max(self.low, low), min(self.high, high)
        return Estimate(self.name, self.value, *ends, self.unit, self.n)


def columns(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Entries of a summary: `name`, `name_low` and `name_high`."""
    value, low, high = (
        (estimate.value, estimate.low, estimate.high) if estimate else (None, None, None)
    )
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def finite_scores(scores: ArrayLike, name: str) -> Floats:
    """(n,) float64; ValueError with the argument's name if it is empty or a score is not finite."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be an array (n,) with n at least 1, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def mean(values: ArrayLike, *, confidence: float = 0.95) -> Estimate | None:
    """The mean of n independent, finite measurements, with Student's t; None for no measurement."""
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if not numbers.size:
        return None
    numbers = finite_scores(numbers, "values")
    value, error = float(numbers.mean()), 0.0
    if numbers.size > 1:
        error = float(numbers.std(ddof=1)) / math.sqrt(numbers.size)
    return _student("mean", value, error, numbers.size - 1, confidence, numbers.size)


def bounded_mean(values: ArrayLike, *, ceiling: float = 1.0) -> Estimate | None:
    r"""The mean of values between 0 and a ceiling; None for no value.

    Student's t, limited to this range. Equal values have no variance; then a share of the
    distribution that is compatible with n trials may be at either end,

    .. math:: p^n = (1 - 0.95) / 2, \qquad [p v, \ p v + (1 - p) c]

    which is Clopper and Pearson's interval if the values are all 0 or all at the ceiling c.
    """
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if not ((numbers >= -ceiling) & (numbers <= 2 * ceiling)).all():
        raise ValueError(f"values must lie in [0, {ceiling:g}]")
    estimate = mean(numbers)
    if estimate is None or estimate.n < 2 or np.ptp(numbers) >= _EQUAL * ceiling:
        return estimate and estimate.within(0.0, ceiling)
    share, value = ((1 - 0.95) / 2) ** (1 / estimate.n), min(float(numbers.max()), ceiling)
    ends = share * value, share * value + (1 - share) * ceiling
    return Estimate("mean", estimate.value, *ends, n=estimate.n)


def median_interval(values: ArrayLike) -> Interval | None:
    """The exact 95% interval of a median by order statistics; None for fewer than 6 values.

    Thompson (1936), "On Confidence Ranges for the Median", Annals of Mathematical Statistics 7(3).
    """
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if np.isnan(numbers).any():
        raise ValueError("values must be numbers, got nan")
    if not numbers.size:
        return None
    from scipy.stats import quantile_test

    low, high = quantile_test(numbers).confidence_interval()
    return None if np.isnan(low) or np.isnan(high) else Interval(float(low), float(high))


def ratio_of_sums(parts: ArrayLike, wholes: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    r"""A ratio of two sums over clusters, such as right slots to all slots by utterance.

    .. math:: R = \frac{\sum_i y_i}{\sum_i x_i}, \qquad
        R \pm t \, \frac{\sqrt{\frac{n}{n-1} \sum_i (y_i - R x_i)^2}}{\sum_i x_i}

    for (n,) finite parts y and wholes x of positive sum; without ends for one cluster.
    """
    y, x = finite_scores(parts, "parts"), np.asarray(wholes, dtype=np.float64)
    if not (total := float(x.sum())) > 0:
        raise ValueError(f"wholes must have a positive sum, got {total:g}")
    value, n = float(y.sum()) / total, y.size
    squares = float(((y - value * x) ** 2).sum())
    error = math.sqrt(n / (n - 1) * squares) / total if n > 1 else 0.0
    return _student("ratio", value, error, n - 1, confidence, n)


def difference_of_means(
    first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95
) -> Estimate:
    """mean(first) - mean(second) of independent samples of two or more, with Welch's t."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    value, n = float(a.mean() - b.mean()), a.size + b.size
    if min(a.size, b.size) < 2:
        return Estimate("difference", value, n=n)
    va, vb = float(a.var(ddof=1)) / a.size, float(b.var(ddof=1)) / b.size
    if va + vb == 0:
        return Estimate("difference", value, value, value, n=n)
    freedom = (va + vb) ** 2 / (va**2 / (a.size - 1) + vb**2 / (b.size - 1))
    return _student("difference", value, math.sqrt(va + vb), freedom, confidence, n)


def difference_of(first: Estimate, second: Estimate) -> Estimate:
    r"""first - second of two independent estimates, with an interval from their intervals.

    .. math:: \hat x - \hat y - \sqrt{(\hat x - l_x)^2 + (u_y - \hat y)^2}

    and likewise for the upper end: Newcombe (1998), "Interval estimation for the difference between
    independent proportions", method 10; Zou and Donner (2008), MOVER.
    """
    x, y, value = first.interval, second.interval, first.value - second.value
    below = math.hypot(first.value - x.low, y.high - second.value)
    above = math.hypot(x.high - first.value, second.value - y.low)
    low, high = (end if math.isfinite(end) else None for end in (value - below, value + above))
    return Estimate("difference", value, low, high, first.unit, first.n + second.n)


def binomial_ends(
    successes: ArrayLike, trials: ArrayLike, *, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Low and high ends of many rates, by Clopper and Pearson; counts may be fractions."""
    hits, misses = np.broadcast_arrays(
        np.asarray(successes, dtype=np.float64), np.subtract(trials, successes)
    )
    tail, any_hit, any_miss = (1 - confidence) / 2, hits > 0, misses > 0
    low = special.betaincinv(np.where(any_hit, hits, 1.0), misses + 1, tail)
    high = special.betainccinv(hits + 1, np.where(any_miss, misses, 1.0), tail)
    return np.where(any_hit, low, 0.0), np.where(any_miss, high, 1.0)


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """`binomial_ends` of one rate; 0 and 1 without trials."""
    low, high = binomial_ends(successes, trials, confidence=confidence)
    return Interval(float(low), float(high))


def rate(successes: Iterable[bool], *, confidence: float = 0.95) -> Estimate | None:
    """The share of successful trials, with `clopper_pearson`; None without trials."""
    trials = [bool(success) for success in successes]
    if not trials:
        return None
    hits, n = sum(trials), len(trials)
    return Estimate("rate", hits / n, *clopper_pearson(hits, n, confidence=confidence), n=n)


def rates_by(keys: Iterable[int], successes: Iterable[bool]) -> dict[int, Estimate]:
    """A rate per key, such as a number of copies, in ascending order of the keys."""
    groups: dict[int, list[bool]] = {}
    for key, success in zip(keys, successes, strict=True):
        groups.setdefault(int(key), []).append(success)
    rates = {key: rate(groups[key]) for key in sorted(groups)}
    return {key: estimate for key, estimate in rates.items() if estimate is not None}


def clustered_rate(
    successes: Sequence[float], trials: Sequence[int], *, confidence: float = 0.95
) -> Estimate:
    r"""A rate of clustered trials, such as canaries by training, or passages by text.

    Korn and Graubard (1998), "Confidence Intervals for Proportions with Small Expected Number of
    Positive Counts Estimated from Survey Data", Survey Methodology 24(2): Clopper and Pearson's
    interval for the effective number of independent trials, given the variance between clusters,

    .. math:: n^* = \min\left(n, \frac{p(1-p)}{v}\right)
        \left(\frac{t_{n-1}}{t_{k-1}}\right)^2, \qquad
        v = \frac{k}{k-1}\,\frac{\sum_j (x_j - p\,n_j)^2}{n^2},

    with quantiles t of Student's distribution. Without variance, the first factor is n. Counts are
    (k,), one per cluster, and may be fractions. The value is NaN without a trial; there is no
    interval for fewer than two clusters or two trials.
    """
    hits, counts = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    k, n = hits.size, float(counts.sum())
    share = float(hits.sum()) / n if n else math.nan
    if k < 2 or n < 2:
        return Estimate("rate", share, n=k)
    variance = k / (k - 1) * float(((hits - share * counts) ** 2).sum()) / n**2
    independent = min(n, share * (1 - share) / variance) if variance else n
    effective = independent * (t_quantile(confidence, n - 1) / t_quantile(confidence, k - 1)) ** 2
    low, high = binomial_ends(share * effective, effective, confidence=confidence)
    return Estimate("rate", share, float(low), float(high), n=k)


def auc(members: ArrayLike, others: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """The probability that a member's score is above that of another; ties count half.

    The area under the ROC curve with the interval of DeLong, DeLong and Clarke-Pearson (1988),
    "Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves",
    Biometrics 44(3), equation 4: :math:`V = S_{10} / n + S_{01} / m`, with the variance over
    members of the share of others below each, and the variance over others of the share of members.

    Differs from the paper: before variance and centre are computed, each side gets an additional
    unit below all others and one above, as Agresti and Caffo (2000) do for rates. So the interval
    is not empty if the scores separate perfectly. `benchmarks/interval_coverage.py` measures its
    coverage.
    """
    inside, outside = finite_scores(members, "members"), finite_scores(others, "others")
    value, n = float(_shares_below(inside, outside).mean()), inside.size + outside.size
    inside, outside = (np.append(side, [-np.inf, np.inf]) for side in (inside, outside))
    above = _shares_below(inside, outside)  # (n + 2,) share of others below
    below = 1 - _shares_below(outside, inside)  # (m + 2,) share of members above
    variance = above.var(ddof=1) / above.size + below.var(ddof=1) / below.size
    margin = float(special.ndtri((1 + confidence) / 2)) * math.sqrt(variance)
    centre = float(above.mean())
    ends = min(max(0.0, centre - margin), value), max(min(1.0, centre + margin), value)
    return Estimate("AUC", value, *ends, n=n)


def t_quantile(confidence: float, freedom: float) -> float:
    """Upper end of the central interval of Student's distribution."""
    return -float(special.stdtrit(freedom, (1 - confidence) / 2))


def _student(
    name: str, value: float, error: float, freedom: float, confidence: float, n: int
) -> Estimate:
    if freedom <= 0:
        return Estimate(name, value, n=n)
    margin = t_quantile(confidence, freedom) * error
    return Estimate(name, value, value - margin, value + margin, n=n)


def _shares_below(scores: Floats, others: Floats) -> Floats:
    """(n,) share of the others below each score; ties count half."""
    ordered = np.sort(others)
    lower, upper = (np.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
    shares: Floats = (lower + upper) / (2 * others.size)
    return shares
