"""Tables, for pages, notebooks and terminals alike."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its title.

    Attributes:
        title: of it.
        columns: their names.
        texts: how many of the first columns hold words; the others are numbers, aligned right.
        rows: cells in the columns' order.
    """

    title: str
    columns: tuple[str, ...]
    texts: int
    rows: tuple[tuple[str, ...], ...]
