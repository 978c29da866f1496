"""Exposure of canaries in bits, by how often they were planted."""

from collections.abc import Sequence
from typing import Any

from vestige.reports.charts import ACCENT, QUIET, Chart, Figure, alt, by_copies, disc, inline, ring
from vestige.reports.disclosure import printable
from vestige.reports.numbers import NOTHING, Row, interval
from vestige.reports.report import Report, lines
from vestige.reports.tables import Table
from vestige.reports.words import pairs
from vestige.results import Run

COLUMNS = ("copies", "canaries", "exposure", "interval", "other order", "interval")
"""Of the table: medians in bits; with ≥, bounds, where the references resolve no more."""

NEVER = "never planted"
_OF_A_GROUP = r"verdict|claim|sentence|.*_(\d+_copies|planted|controls)(_low|_high|_is_bound)?"
_CAPTION = (
    "Median exposure in bits by how often canaries were planted (disc, with its 95 % interval; "
    "triangle: so much or more), of the same words in another order (ring), and of canaries never "
    "planted (dashed line, with its interval as a band); chance alone gives 1."
)
LIMITS = (
    "Exposure compares a canary with phrases of as many random words. Of one that is likelier "
    "than every phrase of a sample only a bound is known (≥): two such canaries cannot be told "
    "apart, and more references or exact ranks say more.",
    "A skew-normal fit goes on beyond the references, but nothing there checks it: two equal "
    "trainings differ in it by bits. It is in the run's rows, marked as extrapolated, and in "
    "no headline, chart or verdict.",
    "Half of the canaries that were never planted reach 1 bit, and one in 2^x reaches x.",
    "What the same words reach in another order is word frequency, not memory of the "
    "sequence; only what the canary has beyond it is.",
    "Intervals of medians take canaries as drawn alike and each by itself. They say nothing "
    "about another training of the same kind: repeat it with other seeds for that.",
)


def exposure_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `CanaryExposure`; no phrase is in it."""
    points, never = exposure_points(run.rows, run.summary)
    figure = Figure(
        draw=lambda width: exposures(points, never, width=width),
        caption=_CAPTION,
        points=len(points),
        slim=True,
    )
    table = Table(
        title="Exposure by copies",
        columns=COLUMNS,
        rows=tuple(exposure_table(run.rows, run.summary)),
        key="Medians in bits, with their 95 % intervals.",
    )
    return Report(
        kind="exposure",
        title="How exposed are the canaries?",
        evidence=lines(describe_exposure(run.summary)),
        blocks=(figure, table),
        facts=pairs(run.summary, show_secrets=show_secrets, left_out=_OF_A_GROUP),
        limits=LIMITS,
    )


def describe_exposure(summary: Row) -> str:
    """What was measured, and what it means."""
    return printable(str(summary.get("sentence") or summary["verdict"]))


def exposure_table(rows: Sequence[Row], summary: Row) -> list[tuple[str, ...]]:
    """One row for each number of copies, then the controls; cells in the order of `COLUMNS`."""
    return [
        (
            name,
            f"{summary[f'canaries_{key}']:,}",
            _number(summary, "exposure", key),
            interval(*_ends(summary, "exposure", key)),
            _number(summary, "shuffled_exposure", key),
            interval(*_ends(summary, "shuffled_exposure", key)),
        )
        for name, key in _groups(rows)
    ]


def exposure_points(
    rows: Sequence[Row], summary: Row
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The points of the chart, one for each number of copies, and that of the controls."""
    points = []
    for name, key in _groups(rows):
        median, other = float(summary[f"exposure_{key}"]), summary[f"shuffled_exposure_{key}"]
        bound, ends = bool(summary[f"exposure_{key}_is_bound"]), _ends(summary, "exposure", key)
        low, high = (median if end is None else float(end) for end in ends)
        own = {"exposure": median, "bound": bound, "low": low, "high": high, "other": other}
        points.append({"copies": name, **own})
    return points[:-1], points[-1]


def _groups(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The name and key of each number of copies, rising, then of the controls."""
    copies = sorted({int(row["copies"]) for row in rows} - {0})
    return [*((f"{n:,}", f"{n}_copies") for n in copies), (NEVER, "controls")]


def _number(summary: Row, measure: str, key: str) -> str:
    value, bound = (summary[f"{measure}_{key}{end}"] for end in ("", "_is_bound"))
    return NOTHING if value is None else f"{'≥ ' if bound else ''}{value:.2f}"


def _ends(summary: Row, measure: str, key: str) -> tuple[float | None, float | None]:
    return summary[f"{measure}_{key}_low"], summary[f"{measure}_{key}_high"]


def exposures(points: Sequence[Row], never: Row, *, width: int) -> Chart:
    """Median exposure in bits, by how often canaries were planted.

    Args:
        points: copies (a label), exposure with its ends low and high, bound, whether it is so much
            or more, and other, the median of the same words in another order, or None; in their
            order.
        never: exposure, low and high of the controls.

    Returns:
        A disc with its interval is planted, a triangle a bound, a ring its words in another
        order; the dashed line with its band is never planted.
    """
    y = alt.Y("low:Q", title="exposure in bits")
    chart, controls = by_copies(points), inline([never])
    return alt.layer(
        controls.mark_rect(fill=QUIET, opacity=0.15).encode(y=y, y2="high:Q"),
        controls.mark_rule(stroke=QUIET, strokeDash=[5, 4]).encode(y="exposure:Q"),
        chart.mark_rule(stroke=ACCENT, strokeWidth=2).encode(y=y, y2="high:Q"),
        ring(chart, 90).encode(y="other:Q"),
        disc(chart.transform_filter("!datum.bound"), 55).encode(y="exposure:Q"),
        disc(chart.transform_filter("datum.bound"), 90, shape="triangle-up").encode(y="exposure:Q"),
    ).properties(width=width, height=240)
