"""Estimates with confidence intervals: means, medians, rates, ratios, differences, the ROC area.

Both ends are None where so few units show no spread.

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
_ALIKE = 1e-9  # of the ceiling


class Interval(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A measured quantity with its confidence interval, and n independent units behind it.

    Ends are those of 95% unless stated otherwise; None without an interval. n is 0 if not counted.
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
        numbers = [one for one in (self.value, self.low, self.high) if one is not None]
        if any(isinstance(one, bool) or not isinstance(one, Real) for one in numbers):
            raise TypeError("value, low and high must be numbers")

    @property
    def interval(self) -> Interval:
        """Both ends; infinite if there is none."""
        low = -math.inf if self.low is None else self.low
        return Interval(low, math.inf if self.high is None else self.high)

    @property
    def count(self) -> int:
        """Of a rate: in how many of its `n` trials it happened."""
        return round(self.value * self.n)

    def scaled(self, factor: float) -> "Estimate":
        """The same in another unit; the factor is positive."""
        low, high = (None if end is None else factor * end for end in (self.low, self.high))
        return Estimate(self.name, factor * self.value, low, high, self.unit, self.n)

    def within(self, low: float, high: float) -> "Estimate":
        """The same with ends inside of what the quantity can be."""
        if self.low is None or self.high is None:
            return self
        ends = max(self.low, low), min(self.high, high)
        return Estimate(self.name, self.value, *ends, self.unit, self.n)


def columns(name: str, found: Estimate | None) -> dict[str, float | None]:
    """Entries of a summary: `name`, `name_low` and `name_high`."""
    value, low, high = (found.value, found.low, found.high) if found else (None, None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def finite_scores(scores: ArrayLike, name: str) -> Floats:
    """(n,) float64; ValueError naming the argument unless there are some and all are finite."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be an array (n,) with n at least 1, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def mean(values: ArrayLike, *, confidence: float = 0.95) -> Estimate | None:
    """A mean of n independent, finite measurements, with Student's t; None of none."""
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if not numbers.size:
        return None
    numbers = finite_scores(numbers, "values")
    value, error = float(numbers.mean()), 0.0
    if numbers.size > 1:
        error = float(numbers.std(ddof=1)) / math.sqrt(numbers.size)
    return _student("mean", value, error, numbers.size - 1, confidence, numbers.size)


def bounded_mean(
    values: ArrayLike, *, ceiling: float = 1.0, confidence: float = 0.95
) -> Estimate | None:
    r"""A mean of values between 0 and a ceiling; None of none.

    Student's t, cut at both ends. Equal values show no spread: then a share of the distribution
    that n trials leave open may lie unseen at either end,

    .. math:: p^n = (1 - \mathrm{confidence}) / 2, \qquad [p v, \ p v + (1 - p) c]

    which is Clopper and Pearson's interval if the values are all 0 or all at the ceiling c.
    """
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if not ((numbers >= -ceiling) & (numbers <= 2 * ceiling)).all():
        raise ValueError(f"values must lie in [0, {ceiling:g}]")
    found = mean(numbers, confidence=confidence)
    if found is None or found.n < 2 or np.ptp(numbers) >= _ALIKE * ceiling:
        return found and found.within(0.0, ceiling)
    seen, value = ((1 - confidence) / 2) ** (1 / found.n), min(float(numbers.max()), ceiling)
    ends = seen * value, seen * value + (1 - seen) * ceiling
    return Estimate("mean", found.value, *ends, n=found.n)


def median_interval(values: ArrayLike, *, confidence: float = 0.95) -> Interval | None:
    """The exact interval of a median by order statistics: at 95% it takes 6 values, maybe infinite.

    Thompson (1936), "On Confidence Ranges for the Median", Annals of Mathematical Statistics 7(3).
    """
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if np.isnan(numbers).any():
        raise ValueError("values must be numbers, got nan")
    if not numbers.size:
        return None
    from scipy.stats import quantile_test

    low, high = quantile_test(numbers).confidence_interval(confidence)
    return None if np.isnan(low) or np.isnan(high) else Interval(float(low), float(high))


def ratio_of_sums(parts: ArrayLike, wholes: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    r"""A ratio of two sums over the same clusters, such as right slots over all, by utterance.

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
    """mean(first) - mean(second) of independent samples, with Welch's t; no ends below two each."""
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
    r"""first - second of two independent estimates, from their intervals.

    .. math:: \hat x - \hat y - \sqrt{(\hat x - l_x)^2 + (u_y - \hat y)^2}

    and likewise above: Newcombe (1998), "Interval estimation for the difference between independent
    proportions", method 10; Zou and Donner (2008), MOVER.
    """
    x, y, value = first.interval, second.interval, first.value - second.value
    below = math.hypot(first.value - x.low, y.high - second.value)
    above = math.hypot(x.high - first.value, second.value - y.low)
    low, high = (end if math.isfinite(end) else None for end in (value - below, value + above))
    return Estimate("difference", value, low, high, first.unit, first.n + second.n)


def binomial_ends(
    successes: ArrayLike, trials: ArrayLike, *, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Low and high ends of many rates, by Clopper and Pearson; counts need not be whole."""
    hits, misses = np.broadcast_arrays(
        np.asarray(successes, dtype=np.float64), np.subtract(trials, successes)
    )
    tail, some, rest = (1 - confidence) / 2, hits > 0, misses > 0
    low = special.betaincinv(np.where(some, hits, 1.0), misses + 1, tail)
    high = special.betainccinv(hits + 1, np.where(rest, misses, 1.0), tail)
    return np.where(some, low, 0.0), np.where(rest, high, 1.0)


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """`binomial_ends` of one rate; without trials nothing is known."""
    low, high = binomial_ends(successes, trials, confidence=confidence)
    return Interval(float(low), float(high))


def rate(happened: Iterable[bool], *, confidence: float = 0.95) -> Estimate | None:
    """The share of trials in which it happened, with `clopper_pearson`; None without trials."""
    trials = [bool(one) for one in happened]
    if not trials:
        return None
    hits, n = sum(trials), len(trials)
    return Estimate("rate", hits / n, *clopper_pearson(hits, n, confidence=confidence), n=n)


def rates_by(
    keys: Iterable[int], happened: Iterable[bool], *, confidence: float = 0.95
) -> dict[int, Estimate]:
    """A rate for each key, such as a number of copies, in ascending order of the keys."""
    pairs = [(int(key), one) for key, one in zip(keys, happened, strict=True)]
    groups = {key: [one for own, one in pairs if own == key] for key, _ in sorted(pairs)}
    found = {key: rate(group, confidence=confidence) for key, group in groups.items()}
    return {key: one for key, one in found.items() if one is not None}


def clustered_rate(
    successes: Sequence[float], trials: Sequence[int], *, confidence: float = 0.95
) -> Estimate:
    r"""A rate of clustered trials, as canaries are by training and passages by text.

    Korn and Graubard (1998), "Confidence Intervals for Proportions with Small Expected Number of
    Positive Counts Estimated from Survey Data", Survey Methodology 24(2): Clopper and Pearson's
    interval at the number of independent trials that the spread between clusters leaves,

    .. math:: n^* = \min\left(n, \frac{p(1-p)}{v}\right)
        \left(\frac{t_{n-1}}{t_{k-1}}\right)^2, \qquad
        v = \frac{k}{k-1}\,\frac{\sum_j (x_j - p\,n_j)^2}{n^2},

    with quantiles t of Student's distribution. Without spread n stands for the first factor.
    Counts are (k,), one for each cluster; parts of a trial count too. NaN without a trial, and no
    ends for fewer than two clusters or two trials.
    """
    hits, counts = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    k, n = hits.size, float(counts.sum())
    share = float(hits.sum()) / n if n else math.nan
    if k < 2 or n < 2:
        return Estimate("rate", share, n=k)
    spread = k / (k - 1) * float(((hits - share * counts) ** 2).sum()) / n**2
    alone = min(n, share * (1 - share) / spread) if spread else n
    effective = alone * (t_quantile(confidence, n - 1) / t_quantile(confidence, k - 1)) ** 2
    low, high = binomial_ends(share * effective, effective, confidence=confidence)
    return Estimate("rate", share, float(low), float(high), n=k)


def auc(members: ArrayLike, others: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """The probability that a member's score is above another's, ties counting half.

    The area under the ROC curve with the interval of DeLong, DeLong and Clarke-Pearson (1988),
    "Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves",
    Biometrics 44(3), equation 4: :math:`V = S_{10} / n + S_{01} / m`, the variances, over members,
    of the share of others below each, and the other way round.

    Differs from the paper: both sides get one more user below all and one above all before variance
    and centre are computed, as Agresti and Caffo (2000) do for rates, so that the interval keeps a
    width when scores separate perfectly. `benchmarks/interval_coverage.py` measures its coverage.
    """
    inside, outside = finite_scores(members, "members"), finite_scores(others, "others")
    value, n = float(_shares_below(inside, outside).mean()), inside.size + outside.size
    inside, outside = (np.append(side, [-np.inf, np.inf]) for side in (inside, outside))
    above = _shares_below(inside, outside)  # (n + 2,) of the others, of each member
    below = 1 - _shares_below(outside, inside)  # (m + 2,) of the members, of each other
    variance = above.var(ddof=1) / above.size + below.var(ddof=1) / below.size
    margin = float(special.ndtri((1 + confidence) / 2)) * math.sqrt(variance)
    centre = float(above.mean())
    ends = min(max(0.0, centre - margin), value), max(min(1.0, centre + margin), value)
    return Estimate("AUC", value, *ends, n=n)


def t_quantile(confidence: float, freedom: float) -> float:
    """Upper end of the central part of Student's distribution."""
    return -float(special.stdtrit(freedom, (1 - confidence) / 2))


def _student(
    name: str, value: float, error: float, freedom: float, confidence: float, n: int
) -> Estimate:
    if freedom <= 0:
        return Estimate(name, value, n=n)
    margin = t_quantile(confidence, freedom) * error
    return Estimate(name, value, value - margin, value + margin, n=n)


def _shares_below(scores: Floats, others: Floats) -> Floats:
    """(n,) the share of the others below each score, equal ones counting half."""
    ordered = np.sort(others)
    lower, upper = (np.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
    shares: Floats = (lower + upper) / (2 * others.size)
    return shares
