"""Differences between trainings: over items, and between users with much and with little text.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", NAACL, section 3, "Effect on under-represented users", and Figure 3c: a user's
utility drop is the perplexity of the defended model on the user's test text minus that of the
undefended model. The drops of the five users with most samples are compared with those of the five
with fewest.

Differs from the paper: the gap has an interval (Welch's t over users). In addition, the rank
correlation (Spearman, 1904) of drop and sample count over all users has an interval by Fisher's z
with the variance of Bonett and Wright (2000), Psychometrika 65(1). Neither interval includes the
variance between trainings with different seeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from vestige.metrics.estimates import (
    Estimate,
    Floats,
    clopper_pearson,
    clustered_rate,
    columns,
    difference_of_means,
    mean,
    ratio_of_sums,
)

Integers = NDArray[np.int64]


def crossed_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Mean difference over items between two ways of training, second minus first.

    Trainings and items (canaries, documents) are both samples: the margins of Welch's t over
    trainings and Student's t over items add as variances do. Their interaction is counted twice, so
    the interval is conservative, like Owen's (2007) pigeonhole bootstrap.

    Args:
        first: (k, n) values of n items under each of k trainings.
        second: (l, n) values of the same items under each of l other trainings.
        weights: (n,) size of each item if its values are sums, such as tokens of a document.

    Returns:
        The difference; without an interval for fewer than two trainings on a side, or two items.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    sizes = np.ones(a.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    over_items = ratio_of_sums(b.mean(0) - a.mean(0), sizes, confidence=confidence)
    training_means = b.sum(1) / sizes.sum(), a.sum(1) / sizes.sum()
    over_trainings = difference_of_means(*training_means, confidence=confidence)
    return with_margins(over_items, over_trainings)


def with_margins(estimate: Estimate, *others: Estimate) -> Estimate:
    """An estimate with its margin and those of others, added as variances add."""
    intervals = [estimate.interval, *(other.interval for other in others)]
    margin = math.hypot(*((interval.high - interval.low) / 2 for interval in intervals))
    if not math.isfinite(margin):
        return Estimate(estimate.name, estimate.value, unit=estimate.unit, n=estimate.n)
    ends = estimate.value - margin, estimate.value + margin
    return Estimate(estimate.name, estimate.value, *ends, estimate.unit, estimate.n)


def rate_of_trainings(successes: Sequence[int], trials: Sequence[int]) -> Estimate:
    """`clustered_rate` over trainings; for one training, Clopper and Pearson's for that model."""
    n = sum(trials)
    clustered = clustered_rate(successes, trials)
    ends = clustered.interval
    if clustered.low is None:
        ends = clopper_pearson(sum(successes), n)
    return Estimate("rate", sum(successes) / n, *ends, n=n)


@dataclass(frozen=True, kw_only=True)
class SubgroupGap:
    """Utility drops of well-represented and of under-represented users, in points of perplexity.

    Attributes:
        top: mean drop of the k users with most samples.
        low: mean drop of the k users with fewest samples.
        gap: low - top; positive if under-represented users lose more.
        correlation: Spearman's, of drop and samples over all users; negative if under-represented
            users lose more. None if all drops are equal.
        p_value: two-sided, of no correlation; None with fewer than four users.
    """

    users: int
    k: int
    top: Estimate
    low: Estimate
    gap: Estimate
    correlation: Estimate | None
    p_value: float | None
    confidence: float

    def summary(self) -> dict[str, object]:
        return {
            "users": self.users,
            "k": self.k,
            **columns("top_drop", self.top),
            **columns("low_drop", self.low),
            **columns("gap", self.gap),
            **columns("correlation", self.correlation),
            "p_value": self.p_value,
            "confidence": self.confidence,
        }


def user_perplexities(loss: ArrayLike, tokens: ArrayLike, users: ArrayLike, number: int) -> Floats:
    """(number,) perplexity of each user's text; NaN for users without a token.

    `loss`, `tokens`, `users`: (d,) summed loss in nats, tokens, and user code of each document.
    """
    losses = np.asarray(loss, dtype=np.float64)
    counts, codes = np.asarray(tokens, dtype=np.int64), np.asarray(users, dtype=np.int64)
    if not np.isfinite(losses).all():
        raise ValueError(f"loss must be finite, got {losses[~np.isfinite(losses)][0]}")
    total = np.bincount(codes, losses, minlength=number)
    tokens_of_user = np.bincount(codes, counts, minlength=number)
    means = np.full(number, np.nan)
    np.divide(total, tokens_of_user, out=means, where=tokens_of_user > 0)
    if (means > 700).any():
        raise ValueError(
            f"loss must leave a finite perplexity, got {np.nanmax(means):.0f} nats a token"
        )
    return np.asarray(np.exp(means))


def subgroup_gap(
    undefended: ArrayLike,
    defended: ArrayLike,
    *,
    tokens: ArrayLike,
    users: ArrayLike,
    samples: ArrayLike,
    k: int = 5,
    confidence: float = 0.95,
) -> SubgroupGap:
    """Utility drops of users with most and with fewest samples, and their correlation with samples.

    Args:
        undefended: (d,) summed loss of each test document under the undefended model, in nats.
        defended: (d,) the same under the defended model.
        tokens: (d,) predicted tokens of each document.
        users: (d,) user code of each document, in [0, u).
        samples: (u,) documents of each user in the training data; users without any are left out.
        k: users in each group; users with equal sample counts are ordered by code.

    Raises:
        ValueError: fewer than 2k users can be measured, or the groups have equal sample counts.
    """
    counts = np.asarray(samples, dtype=np.int64)
    before, after = (
        user_perplexities(loss, tokens, users, counts.size) for loss in (undefended, defended)
    )
    order = np.argsort(-counts, kind="stable")
    order = order[(counts[order] > 0) & ~np.isnan(before[order])]
    drops, user_samples = (after - before)[order], counts[order]
    _check_groups(user_samples, k)
    top, low = mean(drops[:k], confidence=confidence), mean(drops[-k:], confidence=confidence)
    assert top is not None
    assert low is not None
    correlation, p_value = _spearman(user_samples, drops, confidence)
    return SubgroupGap(
        users=drops.size,
        k=k,
        top=top,
        low=low,
        gap=difference_of_means(drops[-k:], drops[:k], confidence=confidence),
        correlation=correlation,
        p_value=p_value,
        confidence=confidence,
    )


def _check_groups(samples: Integers, k: int) -> None:
    if samples.size < 2 * k:
        count = f"{samples.size} users" if samples.size != 1 else "one user only"
        raise ValueError(
            f"users must be at least {2 * k} for two groups of {k}, with text in both the training "
            f"and the test data, got {count}"
        )
    if samples[k - 1] <= samples[-k]:
        raise ValueError(
            f"samples must differ between the {k} users with most and the {k} with fewest, "
            f"got {samples[-k]} in both groups"
        )


def _spearman(
    samples: Integers, drops: Floats, confidence: float
) -> tuple[Estimate | None, float | None]:
    """Rank correlation and its p-value; None if there are too few different values."""
    n = drops.size
    if np.ptp(samples) == 0 or np.ptp(drops) == 0:
        return None, None
    test = stats.spearmanr(samples, drops)
    rho = max(-1.0, min(1.0, float(test.statistic)))
    if n < 4 or abs(rho) == 1:
        return Estimate("correlation", rho, n=n), None if n < 4 else float(test.pvalue)
    margin = float(special.ndtri((1 + confidence) / 2)) * math.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = (math.tanh(math.atanh(rho) + sign * margin) for sign in (-1, 1))
    return Estimate("correlation", rho, low, high, n=n), float(test.pvalue)
