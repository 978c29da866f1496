"""A result in a notebook: a short table, and the chart of its page, with secrets withheld."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

from vestige.reports.components.disclosure import disclose_facts, printable
from vestige.reports.sections import section
from vestige.result import Result
from vestige.results import Run, new_file, plain

SHOWN = 20
"""Rows of a table in a notebook; `Result.to_frame` has them all."""


@dataclass(frozen=True)
class Drawing:
    """A chart as SVG, which notebooks show.

    Attributes:
        svg: its markup.
    """

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the SVG to a new file.

        Raises:
            RunError: something exists there, or it cannot be written.
        """
        path = Path(path)
        with new_file(path, shared=True) as file:
            file.write(self.svg.encode())
        return path


def chart(result: Result) -> Drawing:
    """The chart of the result's page.

    Raises:
        ValueError: this kind of result has no chart, or too few points for one.
    """
    asked = {**plain(result.record), "result": type(result).__name__}
    run = Run(
        directory=Path(),
        run=asked,
        summary=plain(result.summary()),
        rows=[plain(row) for row in result.rows()],
    )
    drawn = section(run, show_secrets=False).chart
    if drawn is None:
        raise ValueError(f"{type(result).__name__} must have a chart to be plotted, got none")
    return Drawing(str(drawn))


def table(result: Result) -> str:
    """Summary and first rows as HTML."""
    rows = [plain(row) for row in islice(result.rows(), SHOWN)]
    closed = disclose_facts(plain(result.summary()), show_secrets=False)
    facts = [{"": name, " ": closed[name]} for name in closed]
    listed = [disclose_facts(row, show_secrets=False) for row in rows]
    return f"<b>{type(result).__name__}</b>{_table(facts)}{_table(listed)}"


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    rows = list(rows)
    if not rows:
        return ""
    head = "".join(f"<th>{_cell(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row.values()) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return escape(printable(text))
