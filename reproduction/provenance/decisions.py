r"""Accuracy, precision and recall of membership decisions, with intervals.

Clopper-Pearson intervals: the threshold must not have been chosen on the users counted here. The
true-positive rate at a false-positive rate is of the scores alone, and pays for its threshold with
an interval from resampling both sides.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from vestige import _validate
from vestige.metrics.estimates import Estimate, Floats, columns, finite_scores, rate

RESAMPLES = 1000


def judge_decisions(called: Iterable[bool], members: Iterable[bool]) -> dict[str, float | None]:
    """Shares of decisions that agree with the truth, with the ends of their intervals.

    Args:
        called: (n,) whether each user was flagged as a member, n at least 1.
        members: (n,) whether they were.

    Returns:
        accuracy; precision, None if none was flagged; recall, None without members; and
        false_positive_rate, None without others.

    Raises:
        ValueError: there are no users, or the lengths differ.

    Example:
        >>> found = judge_decisions([True, True, False, False], [True, False, True, False])
        >>> found["accuracy"], found["precision"], found["recall"]
        (0.5, 0.5, 0.5)
    """
    pairs = [(bool(one), bool(other)) for one, other in zip(called, members, strict=True)]
    if not pairs:
        raise ValueError("called must hold at least one user, got none")
    return {
        **columns("accuracy", rate(one == other for one, other in pairs)),
        **columns("precision", rate(member for one, member in pairs if one)),
        **columns("recall", rate(one for one, member in pairs if member)),
        **columns("false_positive_rate", rate(one for one, member in pairs if not member)),
    }


def true_positives_at(
    members: ArrayLike, others: ArrayLike, *, false_positive_rate: float = 0.01, seed: int = 0
) -> Estimate | None:
    """The share of members above the threshold that lets through few enough others.

    The threshold is the lowest score of others that keeps floor(rate * m) of them strictly above;
    members count who are strictly above it.

    Args:
        members: (n,) finite scores.
        others: (m,) finite scores.
        false_positive_rate: in (0, 1).
        seed: of the resamples of members and others, whose percentiles are the interval.

    Returns:
        None where m * rate is below 1: no non-member may be flagged, and the rate cannot be
        estimated.

    Raises:
        ValueError: an argument is empty, not finite or out of range.

    Example:
        >>> true_positives_at([3, 2, 1, 0], range(-7, 3), false_positive_rate=0.1).value
        0.5
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
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    found = _share_above(inside, outside, allowed)
    ends = min(low, found), max(high, found)
    return Estimate("true-positive rate", found, *ends, n=inside.size + outside.size)


def _share_above(inside: Floats, outside: Floats, allowed: int) -> float:
    place = outside.size - 1 - allowed
    return float((inside > np.partition(outside, place)[place]).mean())
