"""A section of a model card, as Markdown: what was measured before a model was published.

Mitchell et al. (2019), "Model Cards for Model Reporting". It contains no text of a corpus or model
and no path.
"""

from collections.abc import Sequence
from pathlib import Path

from vestige import __version__, new_files, results
from vestige.reports.disclosure import markdown_text
from vestige.reports.overview import rows_of
from vestige.reports.report import REDACTION, Block, Report, report_of
from vestige.reports.same_model import models_notice
from vestige.reports.tables import Cell, Table
from vestige.results import Run

COLUMNS = ("question", "verdict", "measured", "utility")


def card(runs: Sequence[Run], *, first: Sequence[Block] = ()) -> str:
    """The section as Markdown.

    Args:
        runs: in the order of the section.
        first: blocks above all runs, of which tables are shown.

    Raises:
        ValueError: no runs.
        RunError: a run lacks what its kind of result has.
    """
    if not runs:
        raise ValueError("runs must hold at least one run directory, got none")
    reports = [report_of(run, show_secrets=False) for run in runs]
    rows = [row[: len(COLUMNS)] for row in rows_of(runs, reports)]  # without the seconds
    lines = ["## Privacy", "", f"Measured with Vestige {__version__}.", "", *_table(COLUMNS, rows)]
    if notice := models_notice(runs):
        lines += ["", markdown_text(notice)]
    for one in first:
        if isinstance(one, Table):
            lines += ["", f"### {one.title}", "", one.key, "", *_table(one.columns, one.rows)]
    for report in reports:
        lines += _section(report)
    return "\n".join(lines) + "\n"


def write_card(
    runs: Sequence[str | Path | Run], path: str | Path, *, first: Sequence[Block] = ()
) -> Path:
    """Write the section of run directories or read runs. Everyone may read it.

    Raises:
        RunError: a directory is not a run, or the file exists or cannot be written.
    """
    path = new_files.require_outside_runs(new_files.require_new(path))
    read = [one if isinstance(one, Run) else results.find(one) for one in runs]
    text = card(read, first=first)
    with new_files.new_file(path, shared=True) as file:
        file.write(text.encode())
    return path


def _section(report: Report) -> list[str]:
    lines = ["", f"### {markdown_text(report.title)}", ""]
    verdict = report.verdict
    if verdict is not None:
        lines += [f"**{markdown_text(verdict.line)}**", ""]
    lines += [markdown_text(" ".join(report.evidence)), ""]
    checks = () if verdict is None else (*verdict.against, verdict.all_passed)
    limits = [limit for limit in report.limits if limit != REDACTION]
    return lines + [f"- {markdown_text(line)}" for line in (*checks, *limits) if line]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str | Cell]]) -> list[str]:
    head = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    return [*head, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)]


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return markdown_text(cell)
    beside = f" ({markdown_text(', '.join(cell.notes))})" if cell.notes and not cell.href else ""
    return f"{markdown_text(cell.text)}{beside}"
