"""A report on a terminal: the verdict first, then evidence, checks, tables and notices.

Text of a model reaches a terminal only through `printable`, which shows escapes instead of sending
them. Square brackets are no markup.
"""

import re
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from vestige.reports.blocks import Cell, Findings, Prose, Table
from vestige.reports.disclosure import BLOCK, printable
from vestige.reports.words import NOTHING

if TYPE_CHECKING:  # --help draws no charts
    from vestige.reports.report import Report

MOST = 20
"""Rows of a table on a terminal; run folders have all."""

UNBOUNDED = 10_000
"""Columns of a table that is written to a pipe."""


def show(report: "Report", *, titled: bool = False) -> None:
    """Print verdict, evidence, checks, what follows them and tables on stdout, notices on stderr.

    Args:
        report: of one result.
        titled: print its title first, as one of several.
    """
    for line in (report.title, *report.headline) if titled else report.headline:
        print(_fitted(printable(line)))
    if report.below:
        print()
    for prose in report.below:
        print("\n".join(map(_fitted, prose_lines(prose))))
        if prose.command:
            print(f"  {printable(prose.command)}")
    for block in (*report.unfolded, *report.blocks):
        if isinstance(block, Table | Findings) and not block.folded:
            show_table(block if isinstance(block, Table) else _phrases(block))
    for notice in report.notices:
        say(notice)
    if BLOCK in str(report.blocks):
        say("Texts are redacted; --show-secrets shows them.")


def prose_lines(prose: Prose) -> list[str]:
    """Its title, and its sentences indented; the command is left out."""
    return [*filter(None, [prose.title]), *(f"  {printable(line)}" for line in prose.lines)]


def _fitted(line: str) -> str:
    """A line broken at the width of the terminal, with its indent; as it is in a pipe."""
    if not sys.stdout.isatty():
        return line
    start = re.match(r"\S \S+ {2,}|\s*", line)
    hanging = " " * (start.end() if start else 0)
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


def say(line: str) -> None:
    """One line on stderr, so that stdout holds only the result."""
    print(printable(line), file=sys.stderr, flush=True)


def show_table(table: Table) -> None:
    """Print the first rows of a table on stdout; nothing without rows."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    if not table.rows:
        return
    grid = Grid(box=None, show_header=bool(table.columns))
    grid.padding = (0, 1)
    width = len(table.columns) or max(map(len, table.rows))
    for place, name in enumerate(table.columns or [""] * width):
        title = Text(printable(name), "dim")
        grid.add_column(title, justify="right" if place >= table.texts else "left")
    for row in table.rows[:MOST]:
        group = "bold" if len(row) == 1 < width else ""
        grid.add_row(*(Text(printable(_text(cell)), group) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else UNBOUNDED)
    if table.title:
        console.print(Text(printable(table.title), "bold"))  # in the grid it would be as narrow
    console.print(grid)
    if len(table.rows) > MOST:
        say(f"{len(table.rows) - MOST:,} more rows are in the run folder.")


def _phrases(findings: Findings) -> Table:
    """Phrases as a table; of each group the first."""
    rows = []
    for first, *others in findings.groups:
        lead = f"({first.lead.strip()}) " if first.lead.strip() else ""
        notes = (*first.notes, *([f"{len(others)} similar"] if others else ()))
        score, verdict = f"{first.score:6.2f}", first.verdict or NOTHING
        rows.append((f"{first.rank:3}", score, verdict, f"{lead}{first.text}", "; ".join(notes)))
    columns = ("", "score", "verdict", "phrase", "notes")
    return Table(title=findings.title, columns=columns, texts=len(columns), rows=tuple(rows))


def _text(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.text} ({', '.join(cell.notes)})" if cell.notes else cell.text
