"""Rates of an event: exact intervals of independent trials and of clustered ones.

Clopper and Pearson (1934), "The Use of Confidence or Fiducial Limits Illustrated in the Case of the
Binomial", Biometrika 26(4). The numbers are those of SciPy's `binomtest(k, n).proportion_ci()`,
which computes a p-value as well and takes a hundred times as long.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from vestige import _validate
from vestige.metrics.estimates import Estimate, Floats, Interval, t_quantile


def binomial_ends(
    successes: ArrayLike, trials: ArrayLike, *, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Clopper and Pearson's intervals of many rates, which cover at least as often as they say.

    Quantiles of Beta(k, n - k + 1) and Beta(k + 1, n - k), so counts need not be whole. No success
    gives 0 at the low end only, and n of n gives 1 at the high end only.

    Args:
        successes: (...) k, in [0, n].
        trials: (...) n.
        confidence: how often an interval covers the true rate, in (0, 1).

    Returns:
        (...) low ends and (...) high ends.
    """
    _validate.open_fraction(confidence=confidence)
    hits, misses = np.broadcast_arrays(
        np.asarray(successes, dtype=np.float64), np.subtract(trials, successes)
    )
    tail, some, rest = (1 - confidence) / 2, hits > 0, misses > 0
    low = special.betaincinv(np.where(some, hits, 1.0), misses + 1, tail)
    high = special.betainccinv(hits + 1, np.where(rest, misses, 1.0), tail)
    return np.where(some, low, 0.0), np.where(rest, high, 1.0)


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """`binomial_ends` of one rate; without trials nothing is known.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> [round(end, 4) for end in clopper_pearson(0, 10)]
        [0.0, 0.3085]
    """
    _validate.at_least(0, successes=successes, trials=trials)
    if successes > trials:
        raise ValueError(f"successes must be at most trials = {trials}, got {successes}")
    low, high = binomial_ends(successes, trials, confidence=confidence)
    return Interval(float(low), float(high))


def rate(happened: Iterable[bool], *, confidence: float = 0.95) -> Estimate | None:
    """The share of the trials in which it happened, with `clopper_pearson`; None without trials.

    Example:
        >>> found = rate([True, False, False, False])
        >>> found.value, found.count, found.n
        (0.25, 1, 4)
    """
    trials = [bool(one) for one in happened]
    if not trials:
        return None
    hits, n = sum(trials), len(trials)
    return Estimate("rate", hits / n, *clopper_pearson(hits, n, confidence=confidence), n=n)


def rates_by(
    keys: Iterable[int], happened: Iterable[bool], *, confidence: float = 0.95
) -> dict[int, Estimate]:
    """A rate for each key, such as a number of copies, in ascending order of the keys.

    Example:
        >>> {copies: found.value for copies, found in rates_by([5, 1, 1], [1, 0, 1]).items()}
        {1: 0.5, 5: 1.0}
    """
    groups: dict[int, list[bool]] = {}
    for key, one in zip(keys, happened, strict=True):
        groups.setdefault(int(key), []).append(bool(one))
    found = ((key, rate(groups[key], confidence=confidence)) for key in sorted(groups))
    return {key: one for key, one in found if one is not None}


def clustered_rate(
    successes: Sequence[float], trials: Sequence[int], *, confidence: float = 0.95
) -> Estimate:
    r"""A rate whose trials are clustered, as canaries are by training and passages by text.

    Korn and Graubard (1998), "Confidence Intervals for Proportions with Small Expected Number of
    Positive Counts Estimated from Survey Data", Survey Methodology 24(2): Clopper and Pearson's
    interval at the number of independent trials that the spread between clusters leaves,

    .. math:: n^* = \min\left(n, \frac{p(1-p)}{v}\right)
        \left(\frac{t_{n-1}}{t_{k-1}}\right)^2, \qquad
        v = \frac{k}{k-1}\,\frac{\sum_j (x_j - p\,n_j)^2}{n^2},

    with t the quantiles of Student's distribution. Without any spread n stands for the first
    factor.

    Args:
        successes: (k,) how often it happened in each cluster; parts of a trial count too.
        trials: (k,) of how many.
        confidence: how often the interval covers the true rate, in (0, 1).

    Returns:
        a fraction, NaN without a trial; without ends for fewer than two clusters or two trials.

    Raises:
        ValueError: the counts do not fit each other, or confidence is out of range.

    Example:
        >>> [round(end, 3) for end in clustered_rate([0, 0, 0, 0, 0], [100] * 5).interval]
        [0.0, 0.015]
    """
    hits, counts = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    if hits.ndim != 1 or hits.shape != counts.shape:
        raise ValueError(f"successes and trials must be as many, got {hits.shape}, {counts.shape}")
    if (hits > counts).any() or (hits < 0).any():
        raise ValueError("successes must lie between 0 and trials in every cluster")
    _validate.open_fraction(confidence=confidence)
    k, n = hits.size, float(counts.sum())
    share = float(hits.sum()) / n if n else math.nan
    if k < 2 or n < 2:
        return Estimate("rate", share, n=k)
    spread = k / (k - 1) * float(((hits - share * counts) ** 2).sum()) / n**2
    alone = min(n, share * (1 - share) / spread) if spread else n
    known = t_quantile(confidence, n - 1) / t_quantile(confidence, k - 1)
    effective = alone * known**2
    low, high = binomial_ends(share * effective, effective, confidence=confidence)
    return Estimate("rate", share, float(low), float(high), n=k)


def rate_of_trainings(
    successes: Sequence[int], trials: Sequence[int], *, confidence: float = 0.95
) -> Estimate:
    """`clustered_rate`; of one training Clopper and Pearson's, which speaks of that model alone.

    Returns:
        a fraction; `n` counts all trials.

    Raises:
        ValueError: see `clustered_rate`, or there is no trial.
    """
    n = sum(trials)
    found = clustered_rate(successes, trials, confidence=confidence)
    ends = found.interval
    if found.low is None:
        ends = clopper_pearson(sum(successes), n, confidence=confidence)
    return Estimate("rate", sum(successes) / n, *ends, n=n)
