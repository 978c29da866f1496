"""Tables, for pages, notebooks and terminals alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vestige.reports.components.numbers import Row

LONG = 28
"""Characters from which on a cell's text is broken into lines."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An interval on an axis that all bars of a column share; places are percentages of its width.

    Attributes:
        low: where the interval begins.
        middle: the value.
        high: where it ends.
        reference: a line to compare with, or None.
        band: ends of what counts as equal, or None.
    """

    low: float
    middle: float
    high: float
    reference: float | None = None
    band: tuple[float, float] | None = None


def bar(
    row: Row,
    name: str,
    axis: tuple[float, float],
    *,
    reference: float | None = None,
    band: tuple[float, float] | None = None,
) -> Bar | None:
    """The bar of `name` in a row with `name`_low and `name`_high; None without an interval."""
    if row[f"{name}_low"] is None:
        return None
    low, high = axis

    def place(value: float) -> float:
        return round(100 * min(1.0, max(0.0, (value - low) / (high - low))), 1)

    return Bar(
        low=place(row[f"{name}_low"]),
        middle=place(row[name]),
        high=place(row[f"{name}_high"]),
        reference=None if reference is None else place(reference),
        band=None if band is None else (place(band[0]), place(band[1])),
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell with more than a text.

    Attributes:
        text: the value, or a name.
        notes: smaller lines under it.
        bar: the interval drawn between them, or None.
        name: it names its row.
        href: where it leads, on the same page; "" for nowhere.
    """

    text: str
    notes: tuple[str, ...] = ()
    bar: Bar | None = None
    name: bool = False
    href: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its title.

    Attributes:
        title: heading, or "".
        columns: their names; empty for a table without a head.
        texts: how many of the first columns hold words; the others are numbers, aligned right.
        rows: cells in the columns' order; a row of one cell begins a group.
        key: how to read it, above the table.
        marked: place of the row that stands out, or None.
    """

    template: ClassVar[str] = "table"
    title: str = ""
    columns: tuple[str, ...] = ()
    texts: int = 1
    rows: tuple[tuple[str | Cell, ...], ...]
    key: str = ""
    marked: int | None = None

    def wraps(self, column: int) -> bool:
        """Whether texts of a column are broken into lines; numbers never are."""
        texts = [row[column] for row in self.rows if 1 < len(row) > column < self.texts]
        return any(isinstance(text, str) and len(text) > LONG for text in texts)


def without_empty_columns(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int, first: int = 0
) -> Table:
    """A table of the columns that have a text in any row, and that stand at `first` or after."""
    kept = [place for place in range(first, len(columns)) if any(row[place] != "" for row in rows)]
    return Table(
        title=title,
        columns=tuple(columns[place] for place in kept),
        texts=sum(place < texts for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in rows),
    )
