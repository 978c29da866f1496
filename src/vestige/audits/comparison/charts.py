"""Charts of a comparison: leakage against utility, and leakage against copies.

Names are beside their points; the accent colour marks the recommended training.
"""

import math
from collections.abc import Sequence
from typing import Any

from vestige.reports.charts import ACCENT, INK, QUIET, Chart, alt, inline
from vestige.reports.disclosure import printable
from vestige.reports.words import Row

HEIGHT = 320
LINE = 15
"""Least pixels between two names."""


def trade(rows: Sequence[Row], tolerance: float, width: int) -> Chart:
    """Mean exposure against test perplexity, each with its interval.

    Args:
        rows: of a comparison, each with exposure and test_perplexity.
        tolerance: share of the undefended perplexity that counts as equal.
        width: in pixels.
    """
    points = [_point(row, row, x=row["test_perplexity"]) for row in rows]
    for point, row in zip(points, rows, strict=True):
        if not row["undefended"] and row["perplexity_ratio_low"] is not None:
            base = row["test_perplexity"] / row["perplexity_ratio"]
            point["x_low"] = base * row["perplexity_ratio_low"]
            point["x_high"] = base * row["perplexity_ratio_high"]
    ends = [point[end] for point in points for end in ("x", "x_low", "x_high")]
    room = max(0.08 * (max(ends) - min(ends)), 0.06 * max(ends))
    low, high = min(ends) - room, max(ends) + room
    scale = alt.Scale(domain=[low, high], nice=False, zero=False)
    x = alt.X("x:Q", title="test perplexity", scale=scale, axis=alt.Axis(grid=False, tickCount=8))
    bands = [
        {"x": max(low, base / (1 + tolerance)), "x2": min(high, base * (1 + tolerance))}
        for base in (row["test_perplexity"] for row in rows if row["undefended"])
    ]
    band = inline(bands).mark_rect(fill=QUIET, opacity=0.13).encode(x=x, x2="x2:Q")
    edge = low + 0.7 * (high - low)  # right of it, names are on the left
    return alt.layer(
        band,
        *_marks(points, x),
        _names([one for one in points if one["x"] <= edge], points, left=False),
        _names([one for one in points if one["x"] > edge], points, left=True),
    ).properties(width=width, height=HEIGHT)


def repetitions(rows: Sequence[Row], width: int) -> Chart:
    """Mean exposure by copies planted, one line per training, with intervals."""
    points, last = [], []
    for place, row in enumerate(rows):
        aside = 1 + 0.015 * (place - len(rows) / 2)  # so that intervals do not overlap
        line = [_point(row, one, x=one["copies"] * aside) for one in row["by_copies"]]
        points += line
        last.append(max(line, key=lambda point: point["x"]))
    copies = sorted({one["copies"] for row in rows for one in row["by_copies"]})
    scale = alt.Scale(type="log", domain=[copies[0] / 1.1, copies[-1] * 1.1], nice=False)
    axis = alt.Axis(values=copies, format="d", grid=False)
    x = alt.X("x:Q", title="copies planted", scale=scale, axis=axis)
    never = [row["never_planted"] for row in rows if row["never_planted"] is not None]
    level = inline([{"y": sum(never) / len(never)}] if never else [])
    lines = (
        inline(points)
        .mark_line(strokeWidth=2)
        .encode(
            x=x,
            y=_exposure(points),
            stroke=alt.Stroke("colour:N", scale=None, legend=None),
            strokeDash=alt.StrokeDash("label:N", legend=None),
        )
    )
    return alt.layer(
        level.mark_rule(stroke=QUIET, strokeDash=[1, 4]).encode(y="y:Q"),
        lines,
        *_marks(points, x, size=45),
        _names(last, points, left=False),
    ).properties(width=width - 100, height=HEIGHT)


def _point(row: Row, measured: Row, *, x: float) -> dict[str, Any]:
    """A training at `x`, with its exposure in `measured`."""
    exposure, low, high = (measured[f"exposure{end}"] for end in ("", "_low", "_high"))
    colour = ACCENT if row["recommended"] else INK
    return {
        "label": printable(row["name"]),
        **{"x": x, "x_low": x, "x_high": x, "y": exposure},
        **{"y_low": exposure if low is None else low, "y_high": exposure if low is None else high},
        **{"colour": colour, "fill": "transparent" if row["undefended"] else colour},
    }


def _exposure(points: Sequence[Row]) -> Any:
    return alt.Y(
        "y:Q",
        title="mean exposure, bits",
        scale=alt.Scale(domain=_domain(points), nice=False),
    )


def _domain(points: Sequence[Row]) -> list[float]:
    ends = [0.0, *(point[end] for point in points for end in ("y", "y_low", "y_high"))]
    room = max(0.08 * (max(ends) - min(ends)), 1e-6)
    return [min(ends) - room if min(ends) else 0.0, max(ends) + room]


def _marks(points: Sequence[Row], x: Any, *, size: int = 90) -> list[Chart]:
    """Points with their intervals, in the colours that they hold."""
    colour = alt.Stroke("colour:N", scale=None, legend=None)
    chart = inline(points).encode(x=x, y=_exposure(points), stroke=colour)
    return [
        chart.mark_rule(strokeWidth=1.5).encode(y="y_low:Q", y2="y_high:Q"),
        chart.mark_rule(strokeWidth=1.5).encode(x="x_low:Q", x2="x_high:Q"),
        chart.mark_point(size=size, opacity=1).encode(
            fill=alt.Fill("fill:N", scale=None, legend=None)
        ),
    ]


def _names(points: Sequence[Row], all_points: Sequence[Row], *, left: bool) -> Chart:
    """Names at the heights of their points; where two would overlap, the lower one moves down."""
    low, high = _domain(all_points)
    moved, above = [], math.inf
    for point in sorted(points, key=lambda point: -point["y"]):
        above = min(point["y"], above - LINE * (high - low) / HEIGHT)
        moved.append({**point, "y": above})
    chart = inline(moved).mark_text(
        align="right" if left else "left",
        baseline="middle",
        dx=-8 if left else 8,
        font="system-ui, sans-serif",
        fontSize=12,
        limit=190,
    )
    end, fill = "x_low:Q" if left else "x_high:Q", alt.Fill("colour:N", scale=None, legend=None)
    return chart.encode(x=end, y="y:Q", text="label:N", fill=fill)
