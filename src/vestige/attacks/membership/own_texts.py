"""Texts that say something of one user: near-duplicates count once, for the first who has them.

A text that several users have, such as a greeting, tells of none of them in particular. It joins
nobody; only a user most of whose texts are near-duplicates of an earlier user's is left out, since
such a user is no independent one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige.claims import Check, near_duplicates
from vestige.claims.duplicates import FEWEST


class OwnTexts(NamedTuple):
    """The texts that count as evidence.

    Attributes:
        kept: (t,) True for them.
        check: "independent".
    """

    kept: NDArray[np.bool_]
    check: Check


def own_texts(texts: Sequence[str], users: Sequence[str], *, audited: int) -> OwnTexts:
    """Choose by the texts alone, which biases no score.

    Args:
        texts: t, those of audited users first.
        users: (t,) of each.
        audited: texts of audited users.
    """
    _, first, group = np.unique(near_duplicates(texts), return_index=True, return_inverse=True)
    names, user = np.unique(np.asarray(users), return_inverse=True)
    of_user, _ = np.unique(np.stack([user, group]), axis=1)
    different = np.bincount(of_user, minlength=len(names))
    own = np.bincount(user[first], minlength=len(names))
    independent = 2 * own >= different
    kept = np.zeros(len(texts), dtype=bool)
    kept[first] = True
    asked = np.zeros(len(names), dtype=bool)
    asked[user[:audited]] = True
    return OwnTexts(kept & independent[user], _independent(asked, independent))


def _independent(audited: NDArray[np.bool_], independent: NDArray[np.bool_]) -> Check:
    """The check, from (u,) who is audited and who is independent."""
    sides = [int(side.sum()) for side in (audited, ~audited)]
    counts = [int((side & independent).sum()) for side in (audited, ~audited)]
    told = (
        f"{counts[0]:,} of {sides[0]:,} audited users and {counts[1]:,} of {sides[1]:,} reference "
        "users have mostly texts of their own"
    )
    if 2 * counts[0] < sides[0] or counts[1] < FEWEST:
        return Check(
            "independent", "failed",
            f"{told}; needed: most of the audited and {FEWEST} of the reference. Near-duplicates "
            "are not independent.",
        )  # fmt: skip
    return Check("independent", "passed", f"{told}.")
