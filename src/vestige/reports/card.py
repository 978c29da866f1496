"""A section for a model card: what was measured of a model before it was published.

Mitchell et al. (2019), "Model Cards for Model Reporting". A hub renders Markdown; no phrase is in
it, nor a folder's path.
"""

from collections.abc import Sequence
from pathlib import Path

from vestige import __version__, results
from vestige.reports.changes import KEY, TITLE, table_of
from vestige.reports.components.markdown import escaped
from vestige.reports.components.table import Cell
from vestige.reports.overview import COLUMNS, rows_of
from vestige.reports.same_model import models_notice
from vestige.reports.section import REDACTION, section
from vestige.reports.since import Change
from vestige.results import Run

SECONDS = COLUMNS.index("seconds")


def card(runs: Sequence[Run], *, changes: Sequence[Change] | None = None) -> str:
    """The section as Markdown.

    Args:
        runs: in the order in which they shall stand.
        changes: since earlier runs; None without any.

    Raises:
        ValueError: no runs.
        RunError: a run lacks what its kind of result has.
    """
    if not runs:
        raise ValueError("runs must hold at least one run directory, got none")
    sections = [section(run, show_secrets=False) for run in runs]
    columns = [name for place, name in enumerate(COLUMNS) if place != SECONDS]
    rows = [
        [cell for place, cell in enumerate(row) if place != SECONDS]
        for row in rows_of(runs, sections)
    ]
    lines = ["## Privacy", "", f"Measured with Vestige {__version__}.", "", *_table(columns, rows)]
    if told := models_notice(runs):
        lines += ["", escaped(told)]
    if changes is not None:
        found = table_of(changes)
        lines += ["", f"### {TITLE}", "", KEY, "", *_table(found.columns, found.rows)]
    for own in sections:
        lines += ["", f"### {escaped(own.title)}", ""]
        if own.verdict is not None:
            first, *failed = own.verdict.lines
            lines += [f"**{escaped(first)}**", ""]
            lines += [f"- {escaped(line)}" for line in (*failed, own.verdict.all_passed) if line]
            lines += [""]
        lines += [escaped(own.lede), ""]
        lines += [f"- {escaped(limit)}" for limit in own.limits if limit != REDACTION]
    return "\n".join(lines) + "\n"


def write_card(
    directories: Sequence[str | Path],
    path: str | Path,
    *,
    changes: Sequence[Change] | None = None,
) -> Path:
    """Read run directories and write their section, for everybody to read.

    Raises:
        RunError: a directory is not a run, or the file exists or cannot be written.
    """
    path = results.require_outside_runs(results.require_new(path))
    text = card([results.find(directory) for directory in directories], changes=changes)
    with results.new_file(path, shared=True) as file:
        file.write(text.encode())
    return path


def _table(columns: Sequence[str], rows: Sequence[Sequence[str | Cell]]) -> list[str]:
    head = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    return [*head, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)]


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return escaped(cell)
    beside = f" ({escaped(', '.join(cell.notes))})" if cell.notes and not cell.href else ""
    return f"{escaped(cell.text)}{beside}"
