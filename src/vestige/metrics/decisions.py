r"""Accuracy, precision and recall of membership decisions, with intervals.

Clopper-Pearson intervals: the threshold must not have been chosen on the users counted here. The
true-positive rate at a false-positive rate is of the scores alone, and pays for its threshold with
an interval from resampling both sides.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.metrics.intervals import Interval
from vestige.metrics.rates import Rate, rate
from vestige.metrics.separation import finite_scores

RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """Quality of membership decisions.

    Attributes:
        accuracy: right decisions among all.
        precision: share of members among flagged users; None if none was flagged.
        recall: share of members flagged; None without members.
        false_positives: share of non-members flagged; None without others.
    """

    accuracy: Rate
    precision: Rate | None
    recall: Rate | None
    false_positives: Rate | None

    def row(self) -> dict[str, float | None]:
        """Each share with the ends of its interval, as one flat row."""
        shares = {
            "accuracy": self.accuracy,
            "precision": self.precision,
            "recall": self.recall,
            "false_positive_rate": self.false_positives,
        }
        row: dict[str, float | None] = {}
        for name, share in shares.items():
            row |= {
                name: None if share is None else share.rate,
                f"{name}_low": None if share is None else share.interval.low,
                f"{name}_high": None if share is None else share.interval.high,
            }
        return row


def judge_decisions(called: Iterable[bool], members: Iterable[bool]) -> Decisions:
    """Compare decisions with the truth.

    Args:
        called: (n,) whether each user was flagged as a member, n at least 1.
        members: (n,) whether they were.

    Raises:
        ValueError: there are no users, or the lengths differ.

    Example:
        >>> found = judge_decisions([True, True, False, False], [True, False, True, False])
        >>> found.accuracy.rate, found.precision.rate, found.recall.rate
        (0.5, 0.5, 0.5)
    """
    pairs = [(bool(one), bool(other)) for one, other in zip(called, members, strict=True)]
    accuracy = rate([one == other for one, other in pairs])
    if accuracy is None:
        raise ValueError(f"called must hold at least one user, got {pairs}")
    return Decisions(
        accuracy=accuracy,
        precision=rate([member for one, member in pairs if one]),
        recall=rate([one for one, member in pairs if member]),
        false_positives=rate([one for one, member in pairs if not member]),
    )


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """A true-positive rate at a low false-positive rate.

    Attributes:
        true_positive_rate: share of members above the threshold.
        interval: 2.5th and 97.5th percentile over resamples of members and others.
        allowed: number of non-members that may be flagged.
    """

    true_positive_rate: float
    interval: Interval
    allowed: int


def true_positives_at(
    members: ArrayLike, others: ArrayLike, *, false_positive_rate: float = 0.01, seed: int = 0
) -> OperatingPoint | None:
    """The share of members above the threshold that lets through few enough others.

    The threshold is the lowest score of others that keeps floor(rate * m) of them strictly above;
    members count who are strictly above it.

    Args:
        members: (n,) finite scores.
        others: (m,) finite scores.
        false_positive_rate: in (0, 1).
        seed: of the resamples.

    Returns:
        None where m * rate is below 1: no non-member may be flagged, and the rate cannot be
        estimated.

    Raises:
        ValueError: an argument is empty, not finite or out of range.

    Example:
        >>> true_positives_at([3, 2, 1, 0], range(-7, 3), false_positive_rate=0.1).allowed
        1
    """
    inside, outside = finite_scores(members, "members"), finite_scores(others, "others")
    _validate.open_fraction(false_positive_rate=false_positive_rate)
    allowed = int(np.floor(false_positive_rate * outside.size + 1e-9))
    if allowed < 1:
        return None
    generator = np.random.default_rng(seed)
    drawn = [
        _share_above(
            generator.choice(inside, inside.size), generator.choice(outside, outside.size), allowed
        )
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    found = _share_above(inside, outside, allowed)
    return OperatingPoint(
        true_positive_rate=found,
        interval=Interval(min(float(low), found), max(float(high), found)),
        allowed=allowed,
    )


def _share_above(
    inside: NDArray[np.float64],
    outside: NDArray[np.float64],
    allowed: int,
) -> float:
    place = outside.size - 1 - allowed
    return float((inside > np.partition(outside, place)[place]).mean())
