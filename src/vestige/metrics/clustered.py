r"""Confidence intervals of a rate whose trials are clustered, as canaries are by trained model.

Korn and Graubard (1998), "Confidence Intervals for Proportions with Small Expected Number of
Positive Counts Estimated from Survey Data", Survey Methodology 24(2). Canaries of one trained model
succeed and fail together: the independent unit is the training. Clopper and Pearson's
interval is taken at the number of independent trials that the spread between trainings leaves,

.. math:: n^* = \min\left(n, \frac{p(1-p)}{v}\right)
    \left(\frac{t_{n-1}}{t_{k-1}}\right)^2, \qquad
    v = \frac{k}{k-1}\,\frac{\sum_j (x_j - p\,n_j)^2}{n^2},

with x of n trials in each of k trainings and t the quantiles of Student's distribution: few
trainings estimate their spread badly. At a rate of 0 or 1 no spread is observed, and n stands for
the first factor.
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from vestige.metrics.intervals import Interval, clopper_pearson


def clustered_rate(
    successes: Sequence[float], trials: Sequence[int], *, confidence: float = 0.95
) -> Interval | None:
    """The interval of a rate over clusters, such as trainings.

    Args:
        successes: (k,) how often it happened in each cluster; parts of a trial count too.
        trials: (k,) of how many.
        confidence: how often the interval covers the true rate, in (0, 1).

    Returns:
        two fractions; None with fewer than two clusters, whose spread is unknown, or no trial.

    Raises:
        ValueError: the counts do not fit each other, or confidence is out of range.

    Example:
        >>> [round(end, 3) for end in clustered_rate([0, 0, 0, 0, 0], [100] * 5)]
        [0.0, 0.015]
    """
    hits, counts = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    if hits.ndim != 1 or hits.shape != counts.shape:
        raise ValueError(f"successes and trials must be as many, got {hits.shape}, {counts.shape}")
    if (hits > counts).any() or (hits < 0).any():
        raise ValueError("successes must lie between 0 and trials in every cluster")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    clusters, total = hits.size, float(counts.sum())
    if clusters < 2 or total < 2:
        return None
    rate = float(hits.sum()) / total
    spread = clusters / (clusters - 1) * float(((hits - rate * counts) ** 2).sum()) / total**2
    alone = min(total, rate * (1 - rate) / spread) if spread else total
    tail = (1 - confidence) / 2
    known = float(stats.t.isf(tail, total - 1) / stats.t.isf(tail, clusters - 1)) ** 2
    # Trials are not whole any more; the beta distribution does not mind.
    effective = alone * known
    below, above = rate * effective, (1 - rate) * effective
    low = float(stats.beta.ppf(tail, below, above + 1)) if rate > 0 else 0.0
    high = float(stats.beta.isf(tail, below + 1, above)) if rate < 1 else 1.0
    return Interval(low, high)


def rate_of_trainings(
    successes: Sequence[int], trials: Sequence[int], *, confidence: float = 0.95
) -> Interval:
    """`clustered_rate`; of one training Clopper and Pearson's, which speaks of that model alone.

    Raises:
        ValueError: see `clustered_rate`, or there is no trial.
    """
    found = clustered_rate(successes, trials, confidence=confidence)
    if found is not None:
        return found
    return clopper_pearson(sum(successes), sum(trials), confidence=confidence)
