"""The report of a comparison: which defence, tables with intervals, two charts.

Verdicts were made when the run was made, and are shown here.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from vestige.audits.comparison import charts
from vestige.reports.blocks import Cell, Prose, Table, bar, table
from vestige.reports.charts import Figure
from vestige.reports.disclosure import printable
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, pairs, percent, words_of
from vestige.results import Run

_KEY = (
    "A bar is the 95% interval over trainings with different seeds; its tick is the "
    "measured value. A single training has no bar. The thin line is the undefended training, or no "
    "gap in fairness; the band is perplexity that counts as equal. Leakage is the mean exposure of "
    "the planted canaries; each bit halves the number of guesses that an attacker needs. Fairness "
    "is how many points of perplexity the users with fewest training documents lose more than "
    "those with most."
)
_TRADE = (
    "Leakage against utility, with intervals. Lower leaks less, further left predicts better. In "
    "the band, test perplexity is within {tolerance:g}% of the undefended training (ring), so "
    "leakage is compared at equal utility."
)
_COPIES = (
    "Mean exposure of the canaries by number of copies, with intervals. The dotted line is the "
    "exposure of canaries that were never planted."
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
UNKNOWN = Cell(text=NOTHING)
_ELSEWHERE = (
    "name|defence|undefended|recommended|verdict.*|sentence|completion.*|by_copies|at_ceiling"
)
"""Columns of a row that are in other tables, or in other words."""


def comparison_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a comparison."""
    rows, summary = run.rows, run.summary
    notes = tuple(map(printable, summary["notes"]))
    defended = [row for row in rows if not row["undefended"]]
    why = tuple((printable(row["name"]), printable(row["sentence"])) for row in defended)
    return Report(
        title="Which defence should I use?",
        answer=printable(summary["advice"]),
        evidence=lines(printable(summary["answer"].removeprefix(summary["advice"]).strip())),
        blocks=(
            _measures(rows, summary["tolerance"]),
            Table(title="Why", texts=2, rows=why),
            *_figures(rows, summary["tolerance"]),
            *((Prose(title="Notes", lines=notes, listed=True),) if notes else ()),
            _all_numbers(rows),
        ),
        facts=pairs(summary, show_secrets=show_secrets, left_out="advice|answer|notes"),
        limits=LIMITS,
    )


def _measures(rows: Sequence[Row], tolerance: float) -> Table:
    """One row per training; the recommended one is marked."""
    taken = [bool(row["recommended"]) and not row["undefended"] for row in rows]
    made = table(
        "Leakage, utility and cost",
        rows,
        texts=6,
        key=_KEY,
        training=_name,
        leakage=lambda row: _leakage(row, rows),
        test_perplexity=lambda row: _utility(row, rows, tolerance),
        fairness_between_users=lambda row: _fairness(row, rows),
        guarantee=_privacy,
        cost=_cost,
    )
    return replace(made, marked=taken.index(True) if True in taken else None)


def _name(row: Row) -> Cell:
    taken = row["recommended"] and not row["undefended"]
    notes = [f"recommended: {row['verdict_short']}" if taken else row["verdict_short"]]
    if not row["undefended"] and row["defence"] != row["name"]:
        notes.insert(0, row["defence"])
    return Cell(text=printable(row["name"]), notes=tuple(map(printable, notes)), name=True)


def _leakage(row: Row, rows: Sequence[Row]) -> Cell:
    if row["exposure"] is None:
        return UNKNOWN
    reference = next((one["exposure"] for one in rows if one["undefended"]), None)
    completed = _completed(row)
    return Cell(
        text=f"{row['exposure']:.1f} bits",
        notes=lines(f"{completed} completed" if completed else ""),
        bar=bar(row, "exposure", _axis(rows, "exposure", 0.0, 1.0), reference=reference),
    )


def _utility(row: Row, rows: Sequence[Row], tolerance: float) -> Cell:
    if row["test_perplexity"] is None:
        return UNKNOWN
    text, note = f"{row['test_perplexity']:.1f}", f"{100 * row['test_accuracy']:.1f}% right"
    if row["undefended"] or row["perplexity_ratio"] is None:
        return Cell(text=text, notes=(note,))
    low, high = 1 / (1 + tolerance), 1 + tolerance
    axis = _axis(rows, "perplexity_ratio", low - 0.02, high + 0.02)
    return Cell(
        text=text,
        notes=(f"{100 * (row['perplexity_ratio'] - 1):+.1f}% · {note}",),
        bar=bar(row, "perplexity_ratio", axis, reference=1.0, band=(low, high)),
    )


def _fairness(row: Row, rows: Sequence[Row]) -> Cell:
    if row["gap"] is None:
        return UNKNOWN
    reach = max(map(abs, _axis(rows, "gap", -1.0, 1.0)))
    return Cell(
        text=f"{row['gap']:+.1f} points",
        notes=(f"small {row['low_drop']:+.1f} · large {row['top_drop']:+.1f}",),
        bar=bar(row, "gap", (-reach, reach), reference=0.0),
    )


def _axis(rows: Sequence[Row], key: str, low: float, high: float) -> tuple[float, float]:
    """Ends of all values of a measure and their intervals, and at least `low` and `high`."""
    values = (row[f"{key}{end}"] for row in rows for end in ("", "_low", "_high"))
    known = [value for value in values if value is not None]
    return min(low, *known), max(high, *known)


def _privacy(row: Row) -> Cell:
    if row["epsilon"] is None:
        private = row["defence"] in ("dp-sgd", "dp-fedavg")
        text, notes = "none", ["see the report of its training"] if private else []
    else:
        delta = f"{row['delta']:.2g}".replace("e-0", "e-")
        text, notes = f"ε = {row['epsilon']:.3g}", [f"δ = {delta} per {row['unit']}"]
    if row["empirical_epsilon"] is not None:
        refuted = " refutes it" if row["audit_verdict"] == "violated" else ""
        notes.append(f"measured ≥ {row['empirical_epsilon']:.2f}{refuted}")
    return Cell(text=text, notes=tuple(map(printable, notes)))


def _cost(row: Row) -> Cell:
    """Steps and tokens, and seconds; trainings are not compared by seconds."""
    if row["steps"] is None:
        return UNKNOWN
    ratio = None if row["undefended"] else row["memory_ratio"]
    notes = (
        "" if row["tokens"] is None else f"{row['tokens']:,d} tokens read",
        "" if row["seconds"] is None else f"{row['seconds']:,.3g} s",
        "" if ratio is None else f"memory × {ratio:.2f}",
    )
    return Cell(text=f"{row['steps']:,d} steps", notes=lines(*notes))


def _all_numbers(rows: Sequence[Row]) -> Table:
    """Every number with its interval, one column per training."""
    numbers = [dict(pairs(_flat(row), show_secrets=True, left_out=_ELSEWHERE)) for row in rows]
    every = dict.fromkeys(words_of(key) for row in rows for key in _flat(row))
    columns = ("", *(printable(row["name"]) for row in rows))
    return Table(
        title="All numbers",
        key="In brackets: the 95% interval.",
        columns=columns,
        texts=len(columns),
        rows=tuple(
            (name, *(own.get(name, NOTHING) for own in numbers))
            for name in every
            if any(name in own for own in numbers)
        ),
    )


def _flat(row: Row) -> dict[str, object]:
    """A row with its rates in words, and with the numbers of canaries planted n times."""
    found = {
        **row,
        "completed": _completed(row),
        "completed, never planted": _completed(row, "completion_control"),
    }
    for point in row["by_copies"]:
        planted = f"planted {point['copies']} ×"
        for end in ("", "_low", "_high"):
            found[f"exposure, {planted}{end}"] = point[f"exposure{end}"]
        found[f"completed, {planted}"] = _completed(point)
    return found


def _completed(row: Row, name: str = "completion") -> str:
    """A rate with its interval; "" without trials."""
    if not (trials := row.get(f"{name}_trials")):
        return ""
    low, high = (percent(row[f"{name}_{end}"]) for end in ("low", "high"))
    return f"{row[f'{name}_completed']} of {trials} ({low.removesuffix('%')} to {high})"


def _figures(rows: Sequence[Row], tolerance: float) -> list[Figure]:
    whole = [row for row in rows if None not in (row["exposure"], row["test_perplexity"])]
    counted = [row for row in rows if row["by_copies"]]
    points = [point["copies"] for row in counted for point in row["by_copies"]]
    trade = Figure(
        draw=partial(charts.trade, whole, tolerance),
        caption=_TRADE.format(tolerance=100 * tolerance),
    )
    repetitions = Figure(
        draw=partial(charts.repetitions, counted), caption=_COPIES, points=len(points)
    )
    return [trade] * (len(whole) > 1) + [repetitions] * (len(set(points)) > 1)
