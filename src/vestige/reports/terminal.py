"""A report on a terminal: the verdict first, then evidence, failed checks, tables, notices.

Text of a model reaches a terminal only through `printable`, which shows escapes instead of sending
them. Square brackets are no markup.
"""

import sys
from collections.abc import Sequence

from vestige.reports.blocks import Findings, Phrase
from vestige.reports.disclosure import BLOCK, printable
from vestige.reports.numbers import NOTHING
from vestige.reports.report import Report
from vestige.reports.tables import Cell, Table

MOST = 20
"""Rows of a table on a terminal; run directories have all."""

UNBOUNDED = 10_000
"""Columns of a table that is written to a pipe."""


def show(report: Report, *, titled: bool = False) -> None:
    """Print verdict, evidence, checks and unfolded tables on stdout, notices on stderr.

    Args:
        report: of one result.
        titled: print its title first, as one of several.
    """
    if titled:
        print(printable(report.title))
    passed = "" if report.verdict is None else report.verdict.all_passed
    for line in filter(None, (*report.headline, passed)):
        print(printable(line))
    for block in report.blocks:
        if isinstance(block, Table) and block.rows and not block.folded:
            _show_block(block)
        elif isinstance(block, Findings) and not block.folded:
            _show_findings(block)
    for notice in report.notices:
        say(notice)
    if BLOCK in str(report.blocks):
        say("Texts are redacted; --show-secrets shows them.")


def say(line: str) -> None:
    """One line on stderr, so that stdout holds only the result."""
    print(printable(line), file=sys.stderr, flush=True)


def show_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    texts: int | None = None,
) -> None:
    """Print a table on stdout.

    Args:
        title: its heading.
        columns: their names; empty for a table without a head.
        rows: cells; a row of one cell begins a group.
        texts: number of first columns aligned left; None: all that are not numbers.
    """
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    width = len(columns) or max((len(row) for row in rows), default=0)
    grid = Grid(box=None, show_header=bool(columns))
    grid.padding = (0, 1)
    for place in range(width):
        name = columns[place] if columns else ""
        right = _is_numeric(rows, place) if texts is None else place >= texts
        grid.add_column(Text(printable(name), "dim"), justify="right" if right else "left")
    for row in rows:
        group = "bold" if len(row) == 1 < width else ""
        grid.add_row(*(Text(printable(_written(value)), group) for value in row))
    console = Console(width=None if sys.stdout.isatty() else UNBOUNDED)
    if title:
        console.print(Text(printable(title), "bold"))  # in the grid it would be as narrow
    console.print(grid)


def _show_block(table: Table) -> None:
    cells = [[_text(cell) for cell in row] for row in table.rows[:MOST]]
    show_table(table.title, table.columns, cells, texts=table.texts)
    _say_more(len(table.rows))


def _show_findings(findings: Findings) -> None:
    """Phrases as a table; of each group the first."""
    rows = [_cells(group) for group in findings.groups[:MOST]]
    show_table(findings.title, ("", "score", "verdict", "phrase", "notes"), rows)
    _say_more(len(findings.groups))


def _cells(group: Sequence[Phrase]) -> tuple[object, ...]:
    first = group[0]
    more = f"{len(group) - 1} similar" if len(group) > 1 else ""
    lead = first.lead.strip()
    text = f"({lead}) {first.text}" if lead else first.text
    notes = "; ".join(filter(None, (*first.notes, more)))
    return first.rank, first.score, first.verdict or NOTHING, text, notes


def _say_more(number: int) -> None:
    if number > MOST:
        say(f"{number - MOST:,} more rows are in the run directory.")


def _text(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.text} ({', '.join(cell.notes)})" if cell.notes else cell.text


def _is_numeric(rows: Sequence[Sequence[object]], place: int) -> bool:
    return all(isinstance(row[place], int | float) for row in rows if len(row) > place)


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    return "" if value is None else str(value)
