"""Two lists of texts that are compared, grouped into independent units."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vestige.workflows.options import CorpusLike
from vestige.workflows.text_lists import read_lists

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.attacks.texts.text_units import TextUnits
    from vestige.data.corpus import Corpus

REFERENCE = "reference"


@dataclass(frozen=True)
class ListedTexts:
    """The audited texts and their reference.

    Attributes:
        read: by name, as they were given.
        compared: the same, the reference without near-duplicates of audited texts.
        units: of the texts that are compared.
    """

    read: "dict[str, Corpus]"
    compared: "dict[str, Corpus]"
    units: "TextUnits"

    def units_of(self, name: str) -> "NDArray[np.int64]":
        """(n,) the unit of each text of a list."""
        return self.units.reference if name == REFERENCE else self.units.audited

    @property
    def removed(self) -> int:
        """Reference texts that were left out."""
        return sum(len(self.read[name]) - len(own) for name, own in self.compared.items())


def listed_texts(
    given: Mapping[str, CorpusLike], *, author: str | None, **columns: object
) -> ListedTexts:
    """Read both lists and find out which texts are independent.

    Args:
        given: the audited texts by the name of their parameter, then "reference" if there is one.
        author: column or field with the author, whose texts are one unit.
        columns: how lists are read, as `open_corpus` takes it.

    Raises:
        DataError: a list is empty, both share a text or an author, no author is named, or no
            reference text is left.
    """
    from vestige.attacks.texts.text_units import text_units
    from vestige.errors import DataError

    lists = read_lists(given, user=author, **columns)
    name = next(iter(lists))
    own = lists[name]
    rest = lists.get(REFERENCE, own.take([]))
    for role, corpus in lists.items():
        if author is not None and corpus.users is None:
            raise DataError(
                f"`{role}` has no authors",
                remedy="Give texts with a column of authors, or leave out `author`.",
            )
    known = all(corpus.users is not None for corpus in lists.values())
    units = text_units(
        list(own), list(rest), (own.users or [], rest.users or []) if known else None
    )
    if REFERENCE not in lists:
        return ListedTexts(lists, lists, units)
    if not units.kept.size:
        raise DataError(
            f"every text of `{REFERENCE}` is a near-duplicate of a text of `{name}`",
            remedy="Give a reference of other texts.",
        )
    return ListedTexts(lists, {name: own, REFERENCE: rest.take(units.kept)}, units)
