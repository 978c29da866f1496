"""Independent units of listed texts whose copies are all read: near-duplicates, or authors.

`list_checks.independent_texts` leaves near-duplicates out. Here every audited text stays, since
each is reported with its own row, and a group of near-duplicates counts as one unit wherever texts
are counted or compared.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige import claims
from vestige.claims import Check
from vestige.errors import DataError

Whole = NDArray[np.int64]


class TextUnits(NamedTuple):
    """Which texts are evidence of their own.

    Attributes:
        audited: (n,) the unit of each audited text.
        reference: (m,) the unit of each reference text that is kept.
        kept: (m,) positions of these texts: near-duplicates of audited texts are left out.
        check: "independent".
    """

    audited: Whole
    reference: Whole
    kept: Whole
    check: Check

    @property
    def both(self) -> Whole:
        """(n + m,) units, the audited texts first."""
        return np.concatenate([self.audited, self.reference])


def text_units(
    texts: Sequence[str],
    reference: Sequence[str],
    authors: tuple[Sequence[str], Sequence[str]] | None = None,
    *,
    of: str = "texts",
) -> TextUnits:
    """Group texts by near-duplicates and authors.

    Args:
        texts: the audited texts.
        reference: those that they are compared with.
        authors: of both lists; texts of one author are one unit.
        of: what the audited texts are, in the plural.

    Raises:
        DataError: an author has texts in both lists.
    """
    groups = claims.near_duplicates([*texts, *reference])
    if authors is not None and (both := set(authors[0]) & set(authors[1])):
        raise DataError(
            f"{len(both)} authors have texts in both lists",
            remedy="Remove their texts from one list, or leave out `author`.",
        )
    own, rest = groups[: len(texts)], groups[len(texts) :]
    kept = np.flatnonzero(~np.isin(rest, own))
    if authors is not None:
        by = [*authors[0], *np.asarray(authors[1], dtype=object)[kept].tolist()]
        joined = claims.joined(by, np.concatenate([own, rest[kept]]))
        own, rest = joined[: len(texts)], joined[len(texts) :]
    else:
        rest = rest[kept]
    removed = len(reference) - kept.size
    return TextUnits(own, rest, kept, claims.independent(own, rest, removed=removed, of=of))
