"""The canaries of a planting, and the seal of their manifest."""

from collections import Counter
from collections.abc import Sequence

from vestige.reports.blocks import Table, table
from vestige.reports.disclosure import disclose, printable
from vestige.reports.report import Report, lines
from vestige.reports.terminal import MOST
from vestige.reports.words import Row
from vestige.results import Run

LIMITS = (
    "The manifest holds every canary unredacted. Keep it apart from the model and from the text "
    "to train on.",
)


def planting_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a planting."""
    summary, rows = run.summary, run.rows
    where = printable(str(summary.get("directory", "")))
    counts = (
        f"{summary['canaries']:,} canaries planted ({summary['copies']:,} copies in all), and "
        f"{summary['controls']:,} controls."
    )
    seal = f"SHA-256 of the manifest: {summary['sha256']}"
    if summary.get("verified"):
        seal = f"{where} agrees with its sealed manifest. {seal}"
    elif where:
        seal = f"{where} holds the planted copy and manifest.json. {seal}"
    blocks = [_canaries(rows, labelled=summary.get("task") == "nlu", show_secrets=show_secrets)]
    if len(rows) > MOST:
        blocks.append(_numbers(rows))
    return Report(
        kind="planting",
        title="Which canaries were planted?",
        evidence=lines(counts, seal),
        blocks=() if summary.get("verified") else tuple(blocks),
        limits=LIMITS,
    )


def _canaries(rows: Sequence[Row], *, labelled: bool, show_secrets: bool) -> Table:
    """Each canary and control, redacted."""
    if labelled:
        return table(
            "Canaries",
            rows,
            texts=3,
            pattern=lambda row: row["pattern"],
            intent=lambda row: row["intent"],
            secret=lambda row: " ".join(disclose(row["secret"], show_secrets=show_secrets)),
            copies=_copies,
            of_them_validation=lambda row: row["validation"],
        )
    return table(
        "Canaries",
        rows,
        texts=2,
        phrase=lambda row: disclose([row["phrase"]], show_secrets=show_secrets)[0],
        pattern=lambda row: row["pattern"],
        copies=_copies,
    )


def _numbers(rows: Sequence[Row]) -> Table:
    """Number of canaries by their copies."""
    found = sorted(Counter(row["copies"] for row in rows).items())
    return table(
        f"All {len(rows):,}",
        found,
        texts=0,
        copies=lambda one: one[0] or "control",
        canaries=lambda one: one[1],
    )


def _copies(row: Row) -> object:
    return row["copies"] or "control"
