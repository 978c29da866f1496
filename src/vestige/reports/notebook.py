"""A result in a notebook: verdict, evidence, its chart and its first table, redacted.

It uses the reports and templates of pages. No policy forbids scripts in a notebook, so escaping
must.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vestige.reports.blocks import Findings
from vestige.reports.page import drawn, fill, style
from vestige.reports.report import report_of
from vestige.reports.tables import Table
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
    found = drawn(run_of(result), show_secrets=show_secrets)
    lists = [one for one in found.blocks if isinstance(one, Table | Findings)][:1]
    more = sum(max(0, len(one.rows) - LISTED) for one in lists if isinstance(one, Table))
    shown = [replace(b, rows=b.rows[:LISTED]) if isinstance(b, Table) else b for b in lists]
    return fill(
        "notebook.html",
        report=found,
        blocks=[*found.figures[:1], *shown],
        left=f"{more:,} more rows are in to_frame()." if more else "",
        style=style("components.css"),
    )


def text(result: Result | Measurement, *, show_secrets: bool = False) -> str:
    """Title, verdict, evidence, checks and notices as lines of text."""
    found = report_of(run_of(result), show_secrets=show_secrets)
    passed = "" if found.verdict is None else found.verdict.all_passed
    return "\n".join(filter(None, (found.title, *found.headline, passed, *found.notices)))
