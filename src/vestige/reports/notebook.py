"""A result in a notebook: verdict and checks, its first table and its chart, secrets withheld.

They come from the sections of pages and through the same templates: no policy forbids scripts in a
notebook, so that escaping must.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vestige.reports.components.table import Table
from vestige.reports.page import drawn, fill, style
from vestige.reports.section import section
from vestige.result import Result as Measured
from vestige.results import Result, run_of

if TYPE_CHECKING:
    import altair

LISTED = 20
"""Rows of a table in a notebook; `Result.to_frame` has them all."""


@dataclass(frozen=True)
class Shown:
    """HTML that a notebook shows."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def plot(result: Result | Measured, *, show_secrets: bool = False) -> "altair.Chart":
    """The headline chart of a result: the first of its page.

    Raises:
        ValueError: this kind of result has no chart.
        RunError: the result lacks what its kind has.
    """
    figures = section(run_of(result), show_secrets=show_secrets).figures
    if not figures:
        raise ValueError(f"result must have a chart to be plotted, got {type(result).__name__}")
    return figures[0].chart()


def html(result: Result | Measured, *, show_secrets: bool = False) -> str:
    """Verdict, warnings, headline chart and first table or list as HTML that needs nothing else.

    Raises:
        RunError: the result lacks what its kind has.
    """
    found = drawn(run_of(result), show_secrets=show_secrets)
    lists = [block for block in found.blocks if block.template in ("table", "findings")][:1]
    more = max((len(block.rows) - LISTED for block in lists if isinstance(block, Table)), default=0)
    return fill(
        "notebook.html",
        section=found,
        blocks=[
            *found.figures[:1],
            *(replace(b, rows=b.rows[:LISTED]) if isinstance(b, Table) else b for b in lists),
        ],
        left=f"{more:,} more rows are in to_frame()." if more > 0 else "",
        style=style("components.css"),
    )


def text(result: Result | Measured, *, show_secrets: bool = False) -> str:
    """The verdict, the checks that failed and those that passed, and what was found."""
    found = section(run_of(result), show_secrets=show_secrets)
    verdict = () if found.verdict is None else (*found.verdict.lines, found.verdict.all_passed)
    told = f"{found.lede} {found.because}".strip()
    return "\n".join(filter(None, (found.title, *verdict, told, *found.notices)))
