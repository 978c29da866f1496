"""Groups of non-members: counted, fitted and compared, each with one part in an audit.

Three groups at random, and nobody is in two of them. Word counts come from the text of the counted,
so that they are the same function for everybody else; what to expect of a word is learnt from the
fitted; shadow models learn from both. The compared play no part in any of this, and neither do the
audited: where an audited user is out, too, the two could change places without anything else
changing, and conformal p-values are exact (Vovk, Gammerman and Shafer 2005, "Algorithmic Learning
in a Random World", section 4.1, inductive conformal prediction).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from vestige.errors import DataError
from vestige.metrics.tests import calibration_needed

User = TypeVar("User", int, str)

FITTED = 60
"""Fitted users at most; 20 are enough."""
FEWEST = 4
"""Users below which there are no three groups that could tell anything."""


@dataclass(frozen=True, kw_only=True)
class NonMembers:
    """Non-members, as places among the names of those who are asked about.

    Attributes:
        fitted: from whose words is learnt what to expect.
        compared: with whom the audited are compared.
        counted: whose text was counted; none where the counts are those of public text.

    Raises:
        ValueError: somebody is in two groups.
    """

    fitted: tuple[int, ...]
    compared: tuple[int, ...]
    counted: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        users = (*self.fitted, *self.compared, *self.counted)
        if len(set(users)) < len(users):
            twice = sorted({user for user in users if users.count(user) > 1})
            raise ValueError(f"groups must be disjoint, got {twice} more than once")

    @classmethod
    def drawn(cls, users: Iterable[int], *, seed: int) -> "NonMembers":
        """Draw the groups among users that are given as places."""
        counted, fitted, compared = draw_groups(sorted(users), seed=seed)
        return cls(counted=counted, fitted=fitted, compared=compared)

    @classmethod
    def named(cls, groups: Sequence[Sequence[str]], names: Sequence[str]) -> "NonMembers":
        """Counted, fitted and compared by name; who is not among the names is left out."""
        place = {name: at for at, name in enumerate(names)}
        counted, fitted, compared = (
            tuple(place[name] for name in group if name in place) for group in groups
        )
        return cls(counted=counted, fitted=fitted, compared=compared)


def draw_groups(
    users: Sequence[User], *, seed: int
) -> tuple[tuple[User, ...], tuple[User, ...], tuple[User, ...]]:
    """The counted, the fitted and the compared at random.

    One half is compared with the audited; of the other half one half is fitted, at most 60.

    Args:
        users: all different; in any order.
        seed: of what is drawn at random.

    Raises:
        DataError: they are too few.

    Example:
        >>> [len(group) for group in draw_groups(range(37), seed=0)]
        [9, 9, 19]
    """
    if len(users) < FEWEST:
        raise DataError(
            f"{len(users)} users are non-members; {FEWEST} or more are needed",
            remedy="Pass more users with --reference.",
        )
    ordered = sorted(users)
    shuffled = np.random.default_rng(seed).permutation(len(ordered)).tolist()
    taught = len(ordered) // 2
    fitted = min(FITTED, (taught + 1) // 2)
    ends = ((fitted, taught), (0, fitted), (taught, len(ordered)))
    counted, learnt, compared = (
        tuple(sorted(ordered[place] for place in shuffled[begin:end])) for begin, end in ends
    )
    return counted, learnt, compared


def users_needed(rate: float) -> int:
    """Non-members that leave enough to compare with before a p-value can be `rate`.

    Example:
        >>> users_needed(0.05)
        37
    """
    return max(FEWEST, 2 * calibration_needed(rate) - 1)
