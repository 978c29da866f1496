"""Charts of a comparison: leakage against utility, and leakage against copies.

The accent colour marks the recommended training, a hollow point the undefended one.
"""

from collections.abc import Sequence
from typing import Any

from vestige.reports.charts import ACCENT, INK, QUIET, Chart, alt, inline
from vestige.reports.disclosure import printable
from vestige.reports.words import Row

HEIGHT = 320


def trade(rows: Sequence[Row], tolerance: float, width: int) -> Chart:
    """Mean exposure against test perplexity, each with its interval.

    Args:
        rows: of a comparison, each with exposure and test_perplexity.
        tolerance: share of the undefended perplexity that counts as equal.
        width: in pixels.
    """
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
    return alt.layer(band, *_marks(points, x)).properties(width=width, height=HEIGHT)


def repetitions(rows: Sequence[Row], width: int) -> Chart:
    """Mean exposure by copies planted, one line per training, with intervals."""
    points = []
    for place, row in enumerate(rows):
        aside = 1 + 0.015 * (place - len(rows) / 2)  # so that intervals do not overlap
        points += [_point(row, one, x=one["copies"] * aside) for one in row["by_copies"]]
    copies = sorted({one["copies"] for row in rows for one in row["by_copies"]})
    scale = alt.Scale(type="log", domain=[copies[0] / 1.1, copies[-1] * 1.1], nice=False)
    axis = alt.Axis(values=copies, format="d", grid=False)
    x = alt.X("x:Q", title="copies planted", scale=scale, axis=axis)
    never = [row["never_planted"] for row in rows if row["never_planted"] is not None]
    level = inline([{"y": sum(never) / len(never)}] if never else [])
    rule = level.mark_rule(stroke=QUIET, strokeDash=[1, 4]).encode(y="y:Q")
    marks = _marks(points, x, lines=True)
    return alt.layer(rule, *marks).properties(width=width, height=HEIGHT)


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


def _marks(points: Sequence[Row], x: Any, *, lines: bool = False) -> list[Chart]:
    """Points with their intervals, and perhaps lines; each training has a shape."""
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
