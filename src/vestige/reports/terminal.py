"""A report on a terminal: verdict, evidence, checks, tables and notices.

All texts pass through `printable`, which escapes control characters. Rich does not read markup in
them.
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

MAX_ROWS = 20
"""Most rows of a table on a terminal."""

PIPE_WIDTH = 10_000
"""Width of a table in a pipe, in characters."""


def show(report: "Report", *, titled: bool = False) -> None:
    """Print verdict, evidence, checks, prose and tables on stdout, and notices on stderr."""
    for line in (report.title, *report.headline) if titled else report.headline:
        print(_wrapped(printable(line)))
    if report.below:
        print()
    for prose in report.below:
        print("\n".join(map(_wrapped, prose_lines(prose))))
        if prose.command:
            print(f"  {printable(prose.command)}")
    for block in (*report.unfolded, *report.blocks):
        if isinstance(block, Table | Findings) and not block.folded:
            show_table(block if isinstance(block, Table) else _phrases_table(block))
    for notice in report.notices:
        say(notice)
    if BLOCK in str(report.blocks):
        say("Texts are redacted; --show-secrets shows them.")


def prose_lines(prose: Prose) -> list[str]:
    """Title and indented sentences of some prose, without its command."""
    return [*filter(None, [prose.title]), *(f"  {printable(line)}" for line in prose.lines)]


def _wrapped(line: str) -> str:
    """Break a line at the width of the terminal, with a hanging indent; unchanged in a pipe."""
    if not sys.stdout.isatty():
        return line
    indent = re.match(r"\S \S+ {2,}|\s*", line)
    hanging = " " * (indent.end() if indent else 0)
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


def say(line: str) -> None:
    """Print one line on stderr; stdout is only for results."""
    print(printable(line), file=sys.stderr, flush=True)


def show_table(table: Table) -> None:
    """Print the first rows of a table on stdout."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    if not table.rows:
        return
    grid = Grid(box=None, show_header=bool(table.columns))
    grid.padding = (0, 1)
    width = len(table.columns) or max(map(len, table.rows))
    for column, name in enumerate(table.columns or [""] * width):
        title = Text(printable(name), "dim")
        grid.add_column(title, justify="right" if column >= table.texts else "left")
    for row in table.rows[:MAX_ROWS]:
        style = "bold" if len(row) == 1 < width else ""
        grid.add_row(*(Text(printable(_cell_text(cell)), style) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    if table.title:
        console.print(Text(printable(table.title), "bold"))  # in the grid, it would be wrapped
    console.print(grid)
    if len(table.rows) > MAX_ROWS:
        say(f"{len(table.rows) - MAX_ROWS:,} more rows are in the run folder.")


def _phrases_table(findings: Findings) -> Table:
    """The first phrase of each group as a table."""
    rows = []
    for phrase, *similar in findings.groups:
        prefix = f"({phrase.lead.strip()}) " if phrase.lead.strip() else ""
        notes = (*phrase.notes, *([f"{len(similar)} similar"] if similar else ()))
        score, verdict = f"{phrase.score:6.2f}", phrase.verdict or NOTHING
        rows.append(
            (f"{phrase.rank:3}", score, verdict, f"{prefix}{phrase.text}", "; ".join(notes))
        )
    columns = ("", "score", "verdict", "phrase", "notes")
    return Table(title=findings.title, columns=columns, texts=len(columns), rows=tuple(rows))


def _cell_text(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.text} ({', '.join(cell.notes)})" if cell.notes else cell.text
