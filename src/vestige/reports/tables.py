"""Tables, for pages, notebooks, cards and terminals alike."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from vestige.reports.disclosure import printable
from vestige.reports.numbers import NOTHING, Row

LONG = 28
"""A longer text in a cell is broken into lines."""


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
        marked: index of the highlighted row, or None.
        folded: not shown on a terminal.
    """

    template: ClassVar[str] = "table"
    title: str = ""
    columns: tuple[str, ...] = ()
    texts: int = 1
    rows: tuple[tuple[str | Cell, ...], ...]
    key: str = ""
    marked: int | None = None
    folded: bool = False

    def wraps(self, column: int) -> bool:
        """Whether texts of a column are broken into lines; numbers never are."""
        texts = [row[column] for row in self.rows if 1 < len(row) > column < self.texts]
        return any(isinstance(text, str) and len(text) > LONG for text in texts)


Column = Callable[[Any], object]


def table(
    title: str,
    rows: Iterable[Any],
    columns: Mapping[str, Column] | None = None,
    *,
    texts: int = 1,
    key: str = "",
    marked: int | None = None,
    folded: bool = False,
    drop_empty: bool = False,
    **named: Column,
) -> Table:
    """A table in which each column is a function of a row.

    Args:
        title: heading, or "".
        rows: anything that the functions take.
        columns: functions by the column's name.
        texts: see `Table`, as of `key`, `marked` and `folded`.
        key: how to read it.
        marked: index of the highlighted row.
        folded: not shown on a terminal.
        drop_empty: leave out columns that are None or "" in every row.
        named: more columns; an underscore in a name is shown as a space, and one at its end
            distinguishes two columns of one name.

    Example:
        >>> found = table("T", [{"n": 1200, "p": None}], name=str, tokens_read=lambda r: r["n"])
        >>> found.columns, found.rows[0][1]
        (('name', 'tokens read'), '1,200')
    """
    functions = [*(columns or {}).items(), *((n.replace("_", " "), f) for n, f in named.items())]
    values = [[function(row) for _, function in functions] for row in rows]
    kept = [
        place
        for place in range(len(functions))
        if not drop_empty or any(row[place] not in (None, "") for row in values)
    ]
    return Table(
        title=title,
        columns=tuple(functions[place][0].strip() for place in kept),
        texts=sum(place < texts for place in kept),
        rows=tuple(tuple(cell_of(row[place]) for place in kept) for row in values),
        key=key,
        marked=marked,
        folded=folded,
    )


def cell_of(value: object) -> str | Cell:
    """A value as a cell: visible, with thousands separated and two digits after the point.

    Example:
        >>> cell_of(None), cell_of(True), cell_of(1200), cell_of(0.5)
        ('–', 'yes', '1,200', '0.50')
    """
    if isinstance(value, Cell):
        return value
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}" if isinstance(value, float) else printable(str(value))
