"""Lists of texts that are compared: checked, and grouped into independent units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts.text_units import TextUnits, text_units
from vestige.data.corpus import Corpus
from vestige.errors import DataError

REFERENCE = "reference"


def require_lists(lists: Mapping[str, Corpus]) -> None:
    """Refuse lists that cannot be compared.

    Raises:
        DataError: a list has no text, or a text is in two lists.
    """
    for name, corpus in lists.items():
        if not len(corpus):
            raise DataError(f"`{name}` has no text", remedy="Pass a file with one text per row.")
    for name, other in combinations(lists, 2):
        if both := len(set(lists[name]) & set(lists[other])):
            are = "text is" if both == 1 else "texts are"
            raise DataError(
                f"{both:,} {are} in both `{name}` and `{other}`",
                remedy=f"Remove {'it' if both == 1 else 'them'} from one.",
            )


def require_tokens(name: str, rows: Sequence[Sequence[int]]) -> None:
    """Refuse a list with a text without tokens.

    Raises:
        DataError: there is one.
    """
    if empty := [number for number, ids in enumerate(rows, start=1) if not ids]:
        raise DataError(
            f"text {empty[0]} of `{name}` has no token of the model's vocabulary",
            remedy="Remove it.",
        )


@dataclass(frozen=True)
class ListedTexts:
    """Audited texts and their reference.

    Attributes:
        given: by name.
        compared: the same, the reference without near-duplicates of audited texts.
        units: of the texts that are compared.
    """

    given: dict[str, Corpus]
    compared: dict[str, Corpus]
    units: TextUnits

    def units_of(self, name: str) -> NDArray[np.int64]:
        """(n,) the unit of each text of a list."""
        return self.units.reference if name == REFERENCE else self.units.audited

    @property
    def removed(self) -> int:
        """Reference texts that were left out."""
        return sum(len(self.given[name]) - len(own) for name, own in self.compared.items())


def listed_texts(lists: Mapping[str, Corpus], *, author: str | None) -> ListedTexts:
    """Check two lists and group their texts into independent units.

    Args:
        lists: the audited texts by the name of their parameter, then "reference" if there is one.
        author: column with the author, whose texts are one unit.

    Raises:
        DataError: a list is empty, both share a text or an author, a list has no authors, or no
            reference text is left.
    """
    require_lists(lists)
    name = next(iter(lists))
    own = lists[name]
    rest = lists.get(REFERENCE, own.take([]))
    for role, corpus in lists.items():
        if author is not None and corpus.users is None:
            raise DataError(
                f"`{role}` has no authors",
                remedy="Pass texts with a column of authors, or omit `author`.",
            )
    known = all(corpus.users is not None for corpus in lists.values())
    units = text_units(
        list(own), list(rest), (own.users or [], rest.users or []) if known else None
    )
    if REFERENCE not in lists:
        return ListedTexts(dict(lists), dict(lists), units)
    if not units.kept.size:
        raise DataError(
            f"every text of `{REFERENCE}` is a near-duplicate of a text of `{name}`",
            remedy="Pass a reference of other texts.",
        )
    compared = {name: own, REFERENCE: rest.take(units.kept)}
    return ListedTexts(dict(lists), compared, units)
