"""The report of a comparison: the recommended defence, tables with intervals, two charts."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from vestige.reports.blocks import Cell, Prose, Table, bar, table
from vestige.reports.charts import ACCENT, INK, QUIET, Chart, Figure, alt, inline
from vestige.reports.disclosure import printable
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, label_of, pairs, percent
from vestige.results import Run

_KEY = (
    "A bar is the 95% interval over trainings with different seeds; its tick is the "
    "measured value. A single training has no bar. The thin line is the undefended training, or no "
    "gap in fairness; the band is perplexity that counts as equal. Leakage is the mean exposure of "
    "the planted canaries; each bit halves the number of guesses that an attacker needs. Fairness "
    "is how many points of perplexity the users with fewest training documents lose more than "
    "those with most."
)
_TRADE_OFF = (
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
_UNKNOWN = Cell(text=NOTHING)
_IN_OTHER_TABLES = (
    "name|defence|undefended|recommended|verdict.*|sentence|completion.*|by_copies|at_ceiling"
)
_HEIGHT = 320


def comparison_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a comparison."""
    rows, summary = run.rows, run.summary
    notes = tuple(map(printable, summary["notes"]))
    defended = [row for row in rows if not row["undefended"]]
    reasons = tuple((printable(row["name"]), printable(row["sentence"])) for row in defended)
    return Report(
        title="Which defence should I use?",
        answer=printable(summary["advice"]),
        evidence=lines(printable(summary["answer"].removeprefix(summary["advice"]).strip())),
        blocks=(
            _measures(rows, summary["tolerance"]),
            Table(title="Why", texts=2, rows=reasons),
            *_figures(rows, summary["tolerance"]),
            *((Prose(title="Notes", lines=notes, listed=True),) if notes else ()),
            _all_numbers(rows),
        ),
        facts=pairs(summary, show_secrets=show_secrets, left_out="advice|answer|notes"),
        limits=LIMITS,
    )


def _measures(rows: Sequence[Row], tolerance: float) -> Table:
    """One row per training; the recommended one is marked."""
    measures = table(
        "Leakage, utility and cost",
        rows,
        texts=6,
        key=_KEY,
        training=_name,
        leakage=lambda row: _leakage(row, rows),
        test_perplexity=lambda row: _utility(row, rows, tolerance),
        fairness_between_users=lambda row: _fairness(row, rows),
        guarantee=_guarantee,
        cost=_cost,
    )
    marked = next((i for i, row in enumerate(rows) if _is_recommended(row)), None)
    return replace(measures, marked=marked)


def _is_recommended(row: Row) -> bool:
    return bool(row["recommended"]) and not row["undefended"]


def _name(row: Row) -> Cell:
    verdict = row["verdict_short"]
    notes = [f"recommended: {verdict}" if _is_recommended(row) else verdict]
    if not row["undefended"] and row["defence"] != row["name"]:
        notes.insert(0, row["defence"])
    return Cell(text=printable(row["name"]), notes=tuple(map(printable, notes)), name=True)


def _leakage(row: Row, rows: Sequence[Row]) -> Cell:
    if row["exposure"] is None:
        return _UNKNOWN
    reference = next((other["exposure"] for other in rows if other["undefended"]), None)
    completed = _completed(row)
    return Cell(
        text=f"{row['exposure']:.1f} bits",
        notes=lines(f"{completed} completed" if completed else ""),
        bar=bar(row, "exposure", _axis(rows, "exposure", 0.0, 1.0), reference=reference),
    )


def _utility(row: Row, rows: Sequence[Row], tolerance: float) -> Cell:
    if row["test_perplexity"] is None:
        return _UNKNOWN
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
        return _UNKNOWN
    reach = max(map(abs, _axis(rows, "gap", -1.0, 1.0)))
    return Cell(
        text=f"{row['gap']:+.1f} points",
        notes=(f"small {row['low_drop']:+.1f} · large {row['top_drop']:+.1f}",),
        bar=bar(row, "gap", (-reach, reach), reference=0.0),
    )


def _axis(rows: Sequence[Row], key: str, low: float, high: float) -> tuple[float, float]:
    """Ends of an axis with all values of a measure, their intervals, `low` and `high`."""
    values = (row[f"{key}{end}"] for row in rows for end in ("", "_low", "_high"))
    known = [value for value in values if value is not None]
    return min(low, *known), max(high, *known)


def _guarantee(row: Row) -> Cell:
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
    if row["steps"] is None:
        return _UNKNOWN
    ratio = None if row["undefended"] else row["memory_ratio"]
    notes = (
        "" if row["tokens"] is None else f"{row['tokens']:,d} tokens read",
        "" if row["seconds"] is None else f"{row['seconds']:,.3g} s",
        "" if ratio is None else f"memory × {ratio:.2f}",
    )
    return Cell(text=f"{row['steps']:,d} steps", notes=lines(*notes))


def _all_numbers(rows: Sequence[Row]) -> Table:
    """Every number with its interval, one column per training."""
    flat = [_flat(row) for row in rows]
    numbers = [dict(pairs(row, show_secrets=True, left_out=_IN_OTHER_TABLES)) for row in flat]
    names = dict.fromkeys(label_of(key) for row in flat for key in row)
    columns = ("", *(printable(row["name"]) for row in rows))
    return Table(
        title="All numbers",
        key="In brackets: the 95% interval.",
        columns=columns,
        texts=len(columns),
        rows=tuple(
            (name, *(by_name.get(name, NOTHING) for by_name in numbers))
            for name in names
            if any(name in by_name for by_name in numbers)
        ),
    )


def _flat(row: Row) -> dict[str, object]:
    """A row with its rates in words, and a column for each number of copies."""
    flat = {
        **row,
        "completed": _completed(row),
        "completed, never planted": _completed(row, "completion_control"),
    }
    for point in row["by_copies"]:
        planted = f"planted {point['copies']} ×"
        for end in ("", "_low", "_high"):
            flat[f"exposure, {planted}{end}"] = point[f"exposure{end}"]
        flat[f"completed, {planted}"] = _completed(point)
    return flat


def _completed(row: Row, name: str = "completion") -> str:
    """A rate with its interval; "" without trials."""
    if not (trials := row.get(f"{name}_trials")):
        return ""
    low, high = (percent(row[f"{name}_{end}"]) for end in ("low", "high"))
    return f"{row[f'{name}_completed']} of {trials} ({low.removesuffix('%')} to {high})"


def _figures(rows: Sequence[Row], tolerance: float) -> list[Figure]:
    measured = [row for row in rows if None not in (row["exposure"], row["test_perplexity"])]
    with_copies = [row for row in rows if row["by_copies"]]
    copies = [point["copies"] for row in with_copies for point in row["by_copies"]]
    figures = list[Figure]()
    if len(measured) > 1:
        caption = _TRADE_OFF.format(tolerance=100 * tolerance)
        figures.append(Figure(draw=partial(_trade_off, measured, tolerance), caption=caption))
    if len(set(copies)) > 1:
        draw = partial(_exposure_by_copies, with_copies)
        figures.append(Figure(draw=draw, caption=_COPIES, points=len(copies)))
    return figures


def _trade_off(rows: Sequence[Row], tolerance: float, width: int) -> Chart:
    """Mean exposure against test perplexity, each with its interval."""
    points, bands = [], []
    for row in rows:
        point = _point(row, row, x=row["test_perplexity"])
        if row["perplexity_ratio_low"] is not None:
            base = row["test_perplexity"] / row["perplexity_ratio"]
            for end in ("low", "high"):
                point[f"x_{end}"] = base * row[f"perplexity_ratio_{end}"]
        if row["undefended"]:
            bands.append({"x": point["x"] / (1 + tolerance), "x2": point["x"] * (1 + tolerance)})
        points.append(point)
    axis, scale = alt.Axis(grid=False, tickCount=8), alt.Scale(zero=False)
    x = alt.X("x:Q", title="test perplexity", axis=axis, scale=scale)
    band = inline(bands).mark_rect(fill=QUIET, opacity=0.13).encode(x=x, x2="x2:Q")
    return alt.layer(band, *_marks(points, x)).properties(width=width, height=_HEIGHT)


def _exposure_by_copies(rows: Sequence[Row], width: int) -> Chart:
    """Mean exposure by copies planted, one line per training, with intervals."""
    points = []
    for index, row in enumerate(rows):
        shift = 1 + 0.015 * (index - len(rows) / 2)  # so that intervals do not overlap
        points += [_point(row, entry, x=entry["copies"] * shift) for entry in row["by_copies"]]
    copies = sorted({entry["copies"] for row in rows for entry in row["by_copies"]})
    scale = alt.Scale(type="log", domain=[copies[0] / 1.1, copies[-1] * 1.1], nice=False)
    axis = alt.Axis(values=copies, format="d", grid=False)
    x = alt.X("x:Q", title="copies planted", scale=scale, axis=axis)
    controls = [row["never_planted"] for row in rows if row["never_planted"] is not None]
    mean = inline([{"y": sum(controls) / len(controls)}] if controls else [])
    rule = mean.mark_rule(stroke=QUIET, strokeDash=[1, 4]).encode(y="y:Q")
    marks = _marks(points, x, lines=True)
    return alt.layer(rule, *marks).properties(width=width, height=_HEIGHT)


def _point(row: Row, measured: Row, *, x: float) -> dict[str, Any]:
    """A training at `x`, with the exposure in `measured`: all canaries, or those with n copies."""
    exposure, low, high = (measured[f"exposure{end}"] for end in ("", "_low", "_high"))
    colour = ACCENT if row["recommended"] else INK
    return {
        "label": printable(row["name"]),
        **{"x": x, "x_low": x, "x_high": x, "y": exposure},
        **{"y_low": exposure if low is None else low, "y_high": exposure if low is None else high},
        **{"colour": colour, "fill": "transparent" if row["undefended"] else colour},
    }


def _marks(points: Sequence[Row], x: Any, *, lines: bool = False) -> list[Chart]:
    """Points with their intervals, and lines if wanted; each training has a shape.

    The accent colour marks the recommended training, a hollow point the undefended one.
    """
    colour = alt.Stroke("colour:N", scale=None, legend=None)
    y = alt.Y("y:Q", title="mean exposure, bits")
    chart = inline(points).encode(x=x, y=y, stroke=colour)
    names = alt.Legend(title=None, orient="top", labelLimit=190)
    shape = alt.Shape("label:N", sort=None, legend=names)
    fill = alt.Fill("fill:N", scale=None, legend=None)
    dash = alt.StrokeDash("label:N", sort=None, legend=None)
    return [
        *([chart.mark_line(strokeWidth=2).encode(strokeDash=dash)] if lines else []),
        chart.mark_rule(strokeWidth=1.5).encode(y="y_low:Q", y2="y_high:Q"),
        chart.mark_rule(strokeWidth=1.5).encode(x="x_low:Q", x2="x_high:Q"),
        chart.mark_point(size=80, opacity=1).encode(shape=shape, fill=fill),
    ]
