"""A comparison of defences: advice, a table with intervals, two charts.

One row a way of training: what it leaks, predicts, does to users with few samples, guarantees and
costs. What a verdict says was decided when the run was made, not here.
"""

from collections.abc import Sequence

from vestige.reports.blocks import Prose
from vestige.reports.charts import Figure
from vestige.reports.comparison import charts
from vestige.reports.comparison.cells import COLUMNS, all_numbers, measures
from vestige.reports.disclosure import printable
from vestige.reports.numbers import Row
from vestige.reports.report import Report, lines
from vestige.reports.tables import Cell, Table
from vestige.reports.words import pairs
from vestige.results import Run

_KEY = (
    "A bar is the {confidence} interval over trainings that differ in their seed, and its tick the "
    "measured value; one training has no bar. The intervals of differences hold for all defences "
    "together. The thin upright line is the undefended training, for fairness no gap; the shaded "
    "part is perplexity that counts as equal. Leakage is the mean exposure of the planted "
    "canaries: each bit halves what an attacker has left to guess. Fairness is how many points of "
    "perplexity more the users with the fewest training documents lose than those with the most."
)
LIMITS = (
    "A verdict takes three trainings of each, with different seeds: intervals are over "
    "trainings, and differences over canaries, documents or users as well. From one training "
    "of each the numbers say what these models do, not what the defence does.",
    "Exposure counts as far as ranks resolve it; canaries that are likelier than every "
    "reference under all trainings tell nothing about a difference.",
    "Seconds depend on what else the machine did; trainings are compared by steps and tokens.",
    "The canaries are random words. A defence that hides them need not hide names, addresses "
    "or sentences that many users write.",
    "A measured ε is a lower bound: that it is small proves nothing. Only a claimed ε bounds "
    "what an attacker that nobody has thought of can learn, and only for the unit that it "
    "names.",
    "Differences hold together for all defences (Bonferroni); single values hold one by one.",
)


def comparison_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `DefenceComparison`."""
    rows, summary = run.rows, run.summary
    confidence = f"{100 * summary['confidence']:g} %"
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
            key=f"In brackets the {confidence} interval.",
            columns=numbers[0],
            texts=len(numbers[0]),
            rows=tuple(numbers[1:]),
        ),
    )
    return Report(
        kind="comparison",
        title="Which defence should I take?",
        evidence=lines(
            printable(summary["advice"]),
            printable(summary["answer"].removeprefix(summary["advice"]).strip()),
        ),
        blocks=blocks,
        facts=pairs(summary, show_secrets=show_secrets, left_out="advice|answer|notes"),
        limits=LIMITS,
    )


def _measures(rows: Sequence[Row], summary: Row, confidence: str) -> Table:
    """A training a row; the one to take is marked."""
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
    notes = [f"take this: {row['verdict_short']}" if taken else row["verdict_short"]]
    if not row["undefended"] and row["defence"] != row["name"]:
        notes.insert(0, row["defence"])
    return Cell(text=printable(row["name"]), notes=tuple(map(printable, notes)), name=True)


def _figures(rows: Sequence[Row], summary: Row) -> list[Figure]:
    figures, tolerance = [], summary["tolerance"]
    whole = [row for row in rows if None not in (row["exposure"], row["test_perplexity"])]
    if len(whole) > 1:
        figure = Figure(
            draw=lambda width: charts.trade(whole, tolerance=tolerance, width=width),
            caption="Leakage against utility, with intervals: lower is safer, further left "
            f"predicts better. The band is test perplexity within {100 * tolerance:g} % of the "
            "undefended training (ring); only within it is leakage compared at equal utility.",
        )
        figures.append(figure)
    counted = [row for row in rows if row["by_copies"]]
    copies = {point["copies"] for row in counted for point in row["by_copies"]}
    if counted and len(copies) > 1:
        figure = Figure(
            draw=lambda width: charts.repetitions(counted, width=width - 100),
            caption="Mean exposure of the canaries by how often each was planted, with intervals. "
            "The dotted line is what canaries that were never planted reach.",
            points=len(counted) * len(copies),
        )
        figures.append(figure)
    return figures
