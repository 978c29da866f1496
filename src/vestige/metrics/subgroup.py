r"""Utility loss of users with little text against users with much text.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", NAACL, section 3, "Effect on under-represented users", and Figure 3c: a user's
utility drop is the perplexity of the defended model on the user's test text less that of the
undefended model, so that more is worse; the drops of the five users with most samples are compared
with those of the five with fewest. The paper's gap is 29 points for DP, 7 for its regularizers.

Differs from the paper: the gap has an interval, Welch's t over users (Welch, 1947, Biometrika
34(1)), because the question is about users: resampling documents within ten fixed users would
answer for those ten only, and a user with one test document would count as known exactly. With
five users a side it is wide, and honestly so. Since it wastes all other users, a rank correlation
(Spearman, 1904) of drop with sample count over all users stands beside it, its interval by
Fisher's z with the variance of Bonett and Wright (2000), Psychometrika 65(1). Neither knows how
far another training with another seed would have moved.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from vestige import _validate
from vestige.metrics.differences import difference_of_means
from vestige.metrics.intervals import Interval, mean_interval

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class UserDrop:
    """What a defence costs one user, in points of perplexity.

    Attributes:
        user: the user's code.
        samples: documents in the training data.
        undefended: perplexity of the undefended model on the user's test text.
        defended: that of the defended one.
        group: "top", "low" or "".
    """

    user: int
    samples: int
    undefended: float
    defended: float
    group: str = ""

    @property
    def drop(self) -> float:
        """Utility lost; negative where the defended model predicts the user better."""
        return self.defended - self.undefended


@dataclass(frozen=True, kw_only=True)
class SubgroupGap:
    """The utility drop of well- and of under-represented users.

    Attributes:
        users: every user measured, most samples first.
        k: users in each group.
        top: mean drop of the k users with most samples.
        top_interval: by Student's t over them; None for k = 1.
        low: mean drop of the k with fewest.
        low_interval: likewise.
        gap: low - top: above 0, the under-represented pay more.
        gap_interval: by Welch's t; None for k = 1.
        correlation: Spearman's, of drop with samples over all users, in [-1, 1]: below 0, the
            under-represented pay more. None where every drop is the same.
        correlation_interval: None with fewer than four users.
        p_value: of no correlation, two-sided.
        confidence: of every interval.
    """

    users: tuple[UserDrop, ...]
    k: int
    top: float
    top_interval: Interval | None
    low: float
    low_interval: Interval | None
    gap: float
    gap_interval: Interval | None
    correlation: float | None
    correlation_interval: Interval | None
    p_value: float | None
    confidence: float

    def summary(self) -> dict[str, object]:
        """The gap and the correlation, as one row of a table."""
        return {
            "users": len(self.users),
            "k": self.k,
            "top_drop": self.top,
            **_ends("top_drop", self.top_interval),
            "low_drop": self.low,
            **_ends("low_drop", self.low_interval),
            "gap": self.gap,
            **_ends("gap", self.gap_interval),
            "correlation": self.correlation,
            **_ends("correlation", self.correlation_interval),
            "p_value": self.p_value,
            "confidence": self.confidence,
        }

    def rows(self) -> list[dict[str, object]]:
        """One row a user, most samples first."""
        return [
            {
                "user": one.user,
                "samples": one.samples,
                "undefended": one.undefended,
                "defended": one.defended,
                "drop": one.drop,
                "group": one.group,
            }
            for one in self.users
        ]


def user_perplexities(loss: ArrayLike, tokens: ArrayLike, users: ArrayLike) -> dict[int, float]:
    r"""The perplexity of each user's text.

    .. math:: \exp\left(\frac{\sum_{i \in u} \ell_i}{\sum_{i \in u} n_i}\right)

    Args:
        loss: (d,) summed loss of each document, in nats.
        tokens: (d,) its predicted tokens.
        users: (d,) code of its user, at least 0.

    Returns:
        perplexity, at least 1 for probabilities, by user; users without a token are left out.

    Raises:
        ValueError: the arrays do not fit each other, or a loss is not finite.

    Example:
        >>> user_perplexities([0.0, 3 * math.log(2)], [1, 3], [4, 7])
        {4: 1.0, 7: 2.0}
    """
    loss, tokens, users = _documents(loss, tokens, users)
    codes, place = np.unique(users, return_inverse=True)
    total = np.bincount(place, weights=loss, minlength=codes.size)
    count = np.bincount(place, weights=tokens, minlength=codes.size)
    read = count > 0
    means = total[read] / count[read]
    if (means > 700).any():
        raise ValueError(f"loss must leave a finite perplexity, got {means.max():.0f} nats a token")
    return dict(zip(codes[read].tolist(), np.exp(means).tolist(), strict=True))


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

    Users of equal sample count are ordered by code.

    Args:
        undefended: (d,) summed loss of each test document under the undefended model, in nats.
        defended: (d,) the same documents under the defended one.
        tokens: (d,) predicted tokens of each.
        users: (d,) code of each document's user, in [0, u).
        samples: (u,) documents of each user in the training data; users without one are left out.
        k: users in each group.
        confidence: of the intervals, in (0, 1).

    Raises:
        ValueError: fewer than 2k users can be measured, the groups do not differ in sample
            count, or the arrays do not fit.

    Example:
        >>> found = subgroup_gap([0, 0], [0, math.log(2)], tokens=[1, 1], users=[0, 1],
        ...                      samples=[9, 3], k=1)
        >>> found.top, found.low, found.gap
        (0.0, 1.0, 1.0)
    """
    _validate.at_least(1, k=k)
    drops = _drops(undefended, defended, tokens, users, np.asarray(samples))
    _check_groups(drops, k)
    marked = tuple(
        replace(one, group=_group(place, len(drops), k)) for place, one in enumerate(drops)
    )
    values = np.array([one.drop for one in marked])
    top, low = values[:k], values[-k:]
    ranked = _spearman([one.samples for one in marked], values, confidence)
    return SubgroupGap(
        users=marked,
        k=k,
        top=float(top.mean()),
        top_interval=mean_interval(top, confidence=confidence),
        low=float(low.mean()),
        low_interval=mean_interval(low, confidence=confidence),
        gap=float(low.mean() - top.mean()),
        gap_interval=difference_of_means(low, top, confidence=confidence),
        correlation=ranked[0],
        correlation_interval=ranked[1],
        p_value=ranked[2],
        confidence=confidence,
    )


def _documents(loss: ArrayLike, tokens: ArrayLike, users: ArrayLike) -> tuple[Floats, Whole, Whole]:
    losses = np.asarray(loss, dtype=np.float64)
    counts, codes = np.asarray(tokens, dtype=np.int64), np.asarray(users, dtype=np.int64)
    if losses.ndim != 1 or not losses.shape == counts.shape == codes.shape:
        raise ValueError(
            "loss, tokens and users must be (d,) arrays of one length, "
            f"got {losses.shape}, {counts.shape} and {codes.shape}"
        )
    if not np.isfinite(losses).all():
        raise ValueError(f"loss must be finite, got {losses[~np.isfinite(losses)][0]}")
    if codes.size and codes.min() < 0:
        raise ValueError(f"users must be at least 0, got {codes.min()}")
    return losses, counts, codes


def _drops(
    undefended: ArrayLike, defended: ArrayLike, tokens: ArrayLike, users: ArrayLike, samples: Whole
) -> list[UserDrop]:
    """Users who stand both in the training and in the test data, most samples first."""
    before = user_perplexities(undefended, tokens, users)
    after = user_perplexities(defended, tokens, users)
    if before and max(before) >= samples.size:
        raise ValueError(
            f"samples must count all {max(before) + 1} users, got {samples.size} counts"
        )
    drops = [
        UserDrop(
            user=user, samples=int(samples[user]), undefended=before[user], defended=after[user]
        )
        for user in before
        if samples[user] > 0
    ]
    return sorted(drops, key=lambda one: (-one.samples, one.user))


def _check_groups(drops: Sequence[UserDrop], k: int) -> None:
    if len(drops) < 2 * k:
        count = f"{len(drops)} users" if len(drops) != 1 else "one user only"
        raise ValueError(
            f"users must be at least {2 * k} for two groups of {k}, with text in both the training "
            f"and the test data, got {count}"
        )
    if drops[k - 1].samples <= drops[-k].samples:
        raise ValueError(
            f"samples must differ between the {k} users with most and the {k} with fewest, "
            f"got {drops[-k].samples} in both groups"
        )


def _group(place: int, users: int, k: int) -> str:
    return "top" if place < k else "low" if place >= users - k else ""


def _spearman(
    samples: Sequence[int], drops: Floats, confidence: float
) -> tuple[float | None, Interval | None, float | None]:
    """Rank correlation, its interval and its p-value, as far as there are users for them."""
    if len(set(samples)) < 2 or len(set(drops.tolist())) < 2:
        return None, None, None
    found = stats.spearmanr(samples, drops)
    rho = max(-1.0, min(1.0, float(found.statistic)))
    if len(samples) < 4:
        return rho, None, None
    if abs(rho) == 1:
        return rho, None, float(found.pvalue)
    reach = float(stats.norm.isf((1 - confidence) / 2))
    margin = reach * math.sqrt((1 + rho**2 / 2) / (len(samples) - 3))
    middle = math.atanh(rho)
    ends = Interval(math.tanh(middle - margin), math.tanh(middle + margin))
    return rho, ends, float(found.pvalue)


def _ends(name: str, interval: Interval | None) -> dict[str, object]:
    low, high = interval or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}
