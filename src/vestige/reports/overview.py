"""The first table of a page with several runs: question, verdict, estimate, utility and time."""

from collections.abc import Sequence
from pathlib import PurePath

from vestige.reports.disclosure import printable
from vestige.reports.numbers import NOTHING, decimal
from vestige.reports.quantities import QUANTITIES, Measured, measured
from vestige.reports.report import Report, guarded
from vestige.reports.tables import Cell, Table
from vestige.reports.verdicts import verdict_word
from vestige.results import Run

COLUMNS = ("question", "verdict", "measured", "utility", "seconds")
KEY = (
    "One row per run, with its directory and models. Estimates with 95% intervals; a number "
    "without one is a count, or its section says why."
)
UTILITY = (
    ("bleu", "BLEU {:.1%}"),
    ("intent_accuracy", "intents {:.1%}"),
    ("validation_perplexity", "perplexity {:.4g}"),
)
"""The first of these in a summary is shown."""


def overview(runs: Sequence[Run], reports: Sequence[Report]) -> Table | None:
    """One row per run, linked to its section; None for one run."""
    if len(runs) < 2:
        return None
    rows = rows_of(runs, reports)
    return Table(title="At a glance", columns=COLUMNS, texts=2, rows=tuple(rows), key=KEY)


def rows_of(runs: Sequence[Run], reports: Sequence[Report]) -> list[tuple[str | Cell, ...]]:
    """One row per run; cells as in `COLUMNS`."""
    rows = []
    for number, (run, report) in enumerate(zip(runs, reports, strict=True), start=1):
        with guarded(run):
            rows.append(_row(number, run, report))
    return rows


def _row(number: int, run: Run, report: Report) -> tuple[str | Cell, ...]:
    unit, found = _measured(run)
    value, interval = (NOTHING, "") if found is None else (found.amount(unit), found.interval)
    name = printable(run.name)
    return (
        Cell(
            text=report.title,
            notes=tuple(filter(None, (name, _models(run)))),
            href=f"#section-{number}",
        ),
        verdict_word(run) or NOTHING,
        Cell(text=value, notes=(interval,) if interval else ()),
        _utility(run),
        decimal(_seconds(run), 0),
    )


def _measured(run: Run) -> tuple[str, Measured | None]:
    for name, quantity in QUANTITIES.items():
        if run.result in quantity.of and name != "perplexity":  # which is utility
            return quantity.unit, measured(name, run)
    return "", None


def _models(run: Run) -> str:
    """The folder names of the models."""
    models = run.run.get("models") or {}
    paths = [one.get("path") for one in models.values() if isinstance(one, dict)]
    each = [one for path in paths for one in (path if isinstance(path, list) else [path]) if one]
    return printable(", ".join(dict.fromkeys(PurePath(str(path)).name for path in each)))


def _utility(run: Run) -> str:
    for name, form in UTILITY:
        value = run.summary.get(name)
        if isinstance(value, int | float):
            return form.format(value)
    return NOTHING


def _seconds(run: Run) -> float | None:
    value = run.summary.get("seconds") or (run.run.get("configuration") or {}).get("seconds")
    return float(value) if isinstance(value, int | float) else None
