"""A result in a notebook: verdict, evidence, chart and first table, redacted.

It uses the reports and templates of pages. A notebook has no policy against scripts, so all texts
are escaped.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vestige.reports.blocks import Findings, Table
from vestige.reports.page import drawn_report, fill_template, style
from vestige.reports.report import Block, report_of
from vestige.reports.terminal import prose_lines
from vestige.results import Measurement, Result, run_of

if TYPE_CHECKING:
    import altair

MAX_ROWS = 20
"""Most rows of a table in a notebook."""


@dataclass(frozen=True)
class Html:
    """HTML for a notebook."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def plot(result: Result | Measurement, *, show_secrets: bool = False) -> "altair.Chart":
    """The first chart of the page of a result.

    Raises:
        ValueError: this kind of result has no chart.
        RunError: the result is incomplete.
    """
    run = run_of(result)
    figures = report_of(run, show_secrets=show_secrets).figures
    if not figures:
        raise ValueError(f"result must have a chart to be plotted, got {run.result}")
    return figures[0].chart()


def html(result: Result | Measurement, *, show_secrets: bool = False) -> str:
    """Verdict, evidence, notices, first chart and first table or phrases as HTML.

    Raises:
        RunError: the result is incomplete.
    """
    report = drawn_report(run_of(result), show_secrets=show_secrets)
    blocks: list[Block] = [*report.figures[:1]]
    hidden_rows = 0
    for block in report.blocks:
        if isinstance(block, Table):
            hidden_rows = max(0, len(block.rows) - MAX_ROWS)
            block = replace(block, rows=block.rows[:MAX_ROWS])
        if isinstance(block, Table | Findings):
            blocks.append(block)
            break
    return fill_template(
        "notebook.html",
        report=report,
        blocks=blocks,
        more_rows=f"{hidden_rows:,} more rows are in to_frame()." if hidden_rows else "",
        style=style("components.css"),
    )


def text(result: Result | Measurement, *, show_secrets: bool = False) -> str:
    """Title, verdict, evidence, checks, prose below them and notices as text."""
    report = report_of(run_of(result), show_secrets=show_secrets)
    below = [line for prose in report.below for line in (*prose_lines(prose), prose.command)]
    return "\n".join((report.title, *report.headline, *filter(None, below), *report.notices))
