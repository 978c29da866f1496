"""The report of a comparison: which defence, a table with intervals, two charts.

Verdicts were made when the run was made, and are shown here.
"""

from collections.abc import Sequence

from vestige.audits.comparison import charts
from vestige.audits.comparison.cells import COLUMNS, all_numbers, measures
from vestige.reports.blocks import Cell, Prose, Table
from vestige.reports.charts import Figure
from vestige.reports.disclosure import printable
from vestige.reports.report import Report, lines
from vestige.reports.words import Row, pairs
from vestige.results import Run

_KEY = (
    "A bar is the {confidence} interval over trainings with different seeds; its tick is the "
    "measured value. A single training has no bar. The thin line is the undefended training, or no "
    "gap in fairness; the band is perplexity that counts as equal. Leakage is the mean exposure of "
    "the planted canaries; each bit halves the number of guesses that an attacker needs. Fairness "
    "is how many points of perplexity the users with fewest training documents lose more than "
    "those with most."
)
LIMITS = (
    "A verdict needs three trainings of each defence with different seeds. With one training each, "
    "the numbers describe these models, not the defences.",
    "Canaries that are more probable than every reference in all trainings show no difference.",
    "Seconds depend on the load of the machine. Trainings are compared by steps and tokens.",
    "The canaries are random words. A defence that hides them may still reveal names, addresses or "
    "sentences that many users write.",
    "A measured ε is a lower bound; a small one proves nothing. Only a claimed ε bounds unknown "
    "attacks, and only for the unit that it names.",
    "Intervals of differences hold for all defences together (Bonferroni); intervals of single "
    "values hold one by one.",
)


def comparison_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `DefenceComparison`."""
    rows, summary = run.rows, run.summary
    confidence = f"{100 * summary['confidence']:g}%"
    notes = tuple(map(printable, summary["notes"]))
    why = [(r["name"], r["sentence"]) for r in rows if not r["undefended"]]
    numbers = all_numbers(rows)
    blocks = (
        _measures(rows, summary, confidence),
        Table(title="Why", texts=2, rows=tuple((printable(n), printable(s)) for n, s in why)),
        *_figures(rows, summary),
        *((Prose(title="Notes", lines=notes, listed=True),) if notes else ()),
        Table(
            title="All numbers",
            key=f"In brackets: the {confidence} interval.",
            columns=numbers[0],
            texts=len(numbers[0]),
            rows=tuple(numbers[1:]),
        ),
    )
    return Report(
        kind="comparison",
        title="Which defence should I use?",
        evidence=lines(
            printable(summary["advice"]),
            printable(summary["answer"].removeprefix(summary["advice"]).strip()),
        ),
        blocks=blocks,
        facts=pairs(summary, show_secrets=show_secrets, left_out="advice|answer|notes"),
        limits=LIMITS,
    )


def _measures(rows: Sequence[Row], summary: Row, confidence: str) -> Table:
    """One row per training; the recommended one is marked."""
    taken = [bool(row["recommended"]) and not row["undefended"] for row in rows]
    return Table(
        title="Leakage, utility and cost",
        columns=("training", *COLUMNS),
        texts=1 + len(COLUMNS),
        rows=tuple(
            (_name(row, taken=one), *measures(row, rows, summary["tolerance"]))
            for row, one in zip(rows, taken, strict=True)
        ),
        key=_KEY.format(confidence=confidence),
        marked=taken.index(True) if True in taken else None,
    )


def _name(row: Row, *, taken: bool) -> Cell:
    notes = [f"recommended: {row['verdict_short']}" if taken else row["verdict_short"]]
    if not row["undefended"] and row["defence"] != row["name"]:
        notes.insert(0, row["defence"])
    return Cell(text=printable(row["name"]), notes=tuple(map(printable, notes)), name=True)


def _figures(rows: Sequence[Row], summary: Row) -> list[Figure]:
    figures, tolerance = [], summary["tolerance"]
    whole = [row for row in rows if None not in (row["exposure"], row["test_perplexity"])]
    if len(whole) > 1:
        figure = Figure(
            draw=lambda width: charts.trade(whole, tolerance=tolerance, width=width),
            caption="Leakage against utility, with intervals. Lower leaks less, further left "
            f"predicts better. In the band, test perplexity is within {100 * tolerance:g}% of the "
            "undefended training (ring), so leakage is compared at equal utility.",
        )
        figures.append(figure)
    counted = [row for row in rows if row["by_copies"]]
    copies = {point["copies"] for row in counted for point in row["by_copies"]}
    if counted and len(copies) > 1:
        figure = Figure(
            draw=lambda width: charts.repetitions(counted, width=width - 100),
            caption="Mean exposure of the canaries by number of copies, with intervals. The dotted "
            "line is the exposure of canaries that were never planted.",
            points=len(counted) * len(copies),
        )
        figures.append(figure)
    return figures
