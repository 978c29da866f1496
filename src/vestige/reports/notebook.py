"""A result in a notebook: verdict, evidence, its chart and its first table, redacted.

It uses the reports and templates of pages. No policy forbids scripts in a notebook, so escaping
must.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vestige.reports.blocks import Findings, Table
from vestige.reports.page import drawn, fill, style
from vestige.reports.report import Block, report_of
from vestige.reports.terminal import prose_lines
from vestige.results import Measurement, Result, run_of

if TYPE_CHECKING:
    import altair

LISTED = 20
"""Rows of a table in a notebook; the result's table has all."""


@dataclass(frozen=True)
class Shown:
    """HTML that a notebook shows."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def plot(result: Result | Measurement, *, show_secrets: bool = False) -> "altair.Chart":
    """The headline chart of a result, the first of its page.

    Raises:
        ValueError: this kind of result has no chart.
        RunError: the result lacks what its kind has.
    """
    run = run_of(result)
    figures = report_of(run, show_secrets=show_secrets).figures
    if not figures:
        raise ValueError(f"result must have a chart to be plotted, got {run.result}")
    return figures[0].chart()


def html(result: Result | Measurement, *, show_secrets: bool = False) -> str:
    """Verdict, evidence, notices, headline chart and first table or list as self-contained HTML.

    Raises:
        RunError: the result lacks what its kind has.
    """
    report = drawn(run_of(result), show_secrets=show_secrets)
    blocks: list[Block] = [*report.figures[:1]]
    more = 0
    for block in report.blocks:
        if isinstance(block, Table):
            more = max(0, len(block.rows) - LISTED)
            block = replace(block, rows=block.rows[:LISTED])
        if isinstance(block, Table | Findings):
            blocks.append(block)
            break
    return fill(
        "notebook.html",
        report=report,
        blocks=blocks,
        left=f"{more:,} more rows are in to_frame()." if more else "",
        style=style("components.css"),
    )


def text(result: Result | Measurement, *, show_secrets: bool = False) -> str:
    """Title, verdict, evidence, checks, what follows them and notices as lines of text."""
    report = report_of(run_of(result), show_secrets=show_secrets)
    below = [line for prose in report.below for line in (*prose_lines(prose), prose.command)]
    return "\n".join((report.title, *report.headline, *filter(None, below), *report.notices))
