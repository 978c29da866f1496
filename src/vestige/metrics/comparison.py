"""Differences between trainings: over items, and for users with little text.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", NAACL, section 3, "Effect on under-represented users", and Figure 3c: a user's
utility drop is the perplexity of the defended model on the user's test text less that of the
undefended model; the drops of the five users with most samples are compared with those of the five
with fewest.

Differs from the paper: the gap has an interval, Welch's t over users, and with it a rank
correlation (Spearman, 1904) of drop with sample count over all users, its interval by Fisher's z
with the variance of Bonett and Wright (2000), Psychometrika 65(1). Neither knows how far another
training with another seed would have moved.
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

Whole = NDArray[np.int64]


def crossed_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """How much more the second way of training gives than the first, on average over items.

    Trainings and items (canaries, documents) are both samples: Welch's t over trainings and
    Student's over items, whose margins add as variances do. What both do together is counted
    twice, so the interval is wide rather than narrow, as of Owen's (2007) pigeonhole bootstrap.

    Args:
        first: (k, n) values of n items under each of k trainings.
        second: (l, n) of the same items under each of l others.
        weights: (n,) what each item's values are sums over, such as a document's tokens.

    Returns:
        the difference; without ends for fewer than two trainings on a side, or two items.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    parts = np.ones(a.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    items = ratio_of_sums(b.mean(0) - a.mean(0), parts, confidence=confidence)
    sides = b.sum(1) / parts.sum(), a.sum(1) / parts.sum()
    return with_margins(items, difference_of_means(*sides, confidence=confidence))


def with_margins(found: Estimate, *others: Estimate) -> Estimate:
    """An estimate whose margin is its own and those of others, added as variances add."""
    margin = math.hypot(*((one.interval.high - one.interval.low) / 2 for one in (found, *others)))
    if not math.isfinite(margin):
        return Estimate(found.name, found.value, unit=found.unit, n=found.n)
    ends = found.value - margin, found.value + margin
    return Estimate(found.name, found.value, *ends, found.unit, found.n)


def rate_of_trainings(
    successes: Sequence[int], trials: Sequence[int], *, confidence: float = 0.95
) -> Estimate:
    """`clustered_rate`; of one training Clopper and Pearson's, for that model alone; n trials."""
    n = sum(trials)
    found = clustered_rate(successes, trials, confidence=confidence)
    ends = found.interval
    if found.low is None:
        ends = clopper_pearson(sum(successes), n, confidence=confidence)
    return Estimate("rate", sum(successes) / n, *ends, n=n)


@dataclass(frozen=True, kw_only=True)
class SubgroupGap:
    """The utility drop of well- and of under-represented users, in points of perplexity.

    Attributes:
        top: mean drop of the k users with most samples.
        low: mean drop of the k with fewest.
        gap: low - top: above 0, the under-represented pay more.
        correlation: Spearman's, of drop with samples over all users: below 0, the under-represented
            pay more. None where every drop is the same.
        p_value: of no correlation, two-sided; None with fewer than four users.
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

    `loss`, `tokens`, `users`: (d,) summed loss of each document in nats, tokens, code of its user.
    """
    losses = np.asarray(loss, dtype=np.float64)
    counts, codes = np.asarray(tokens, dtype=np.int64), np.asarray(users, dtype=np.int64)
    if not np.isfinite(losses).all():
        raise ValueError(f"loss must be finite, got {losses[~np.isfinite(losses)][0]}")
    total, read = (np.bincount(codes, part, minlength=number) for part in (losses, counts))
    means = np.full(number, np.nan)
    np.divide(total, read, out=means, where=read > 0)
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
    """Utility drop per user, of the best and the least represented, and how it goes with samples.

    Args:
        undefended: (d,) summed loss of each test document under the undefended model, in nats.
        defended: (d,) the same documents under the defended one.
        tokens: (d,) predicted tokens of each.
        users: (d,) code of each document's user, in [0, u).
        samples: (u,) documents of each user in the training data; users without one are left out.
        k: users in each group; users of equal sample count are ordered by code.

    Raises:
        ValueError: fewer than 2k users can be measured, or the groups have equal sample counts.
    """
    counts = np.asarray(samples, dtype=np.int64)
    before, after = (
        user_perplexities(loss, tokens, users, counts.size) for loss in (undefended, defended)
    )
    order = np.argsort(-counts, kind="stable")
    order = order[(counts[order] > 0) & ~np.isnan(before[order])]
    drops, own = (after - before)[order], counts[order]
    _check_groups(own, k)
    top, low = mean(drops[:k], confidence=confidence), mean(drops[-k:], confidence=confidence)
    assert top is not None
    assert low is not None
    correlation, p_value = _spearman(own, drops, confidence)
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


def _check_groups(samples: Whole, k: int) -> None:
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
    samples: Whole, drops: Floats, confidence: float
) -> tuple[Estimate | None, float | None]:
    """Rank correlation and its p-value, as far as there are users for them."""
    n = drops.size
    if np.ptp(samples) == 0 or np.ptp(drops) == 0:
        return None, None
    found = stats.spearmanr(samples, drops)
    rho = max(-1.0, min(1.0, float(found.statistic)))
    if n < 4 or abs(rho) == 1:
        return Estimate("correlation", rho, n=n), None if n < 4 else float(found.pvalue)
    margin = float(special.ndtri((1 + confidence) / 2)) * math.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = (math.tanh(math.atanh(rho) + sign * margin) for sign in (-1, 1))
    return Estimate("correlation", rho, low, high, n=n), float(found.pvalue)
