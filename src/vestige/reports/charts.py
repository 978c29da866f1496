"""Charts as inline SVG: drawn once, here, so that the page needs neither script nor network.

Colours are sentinels that the page's style sheet replaces, so that a chart follows the
reader's light or dark theme.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert

INK, ACCENT, QUIET = "#111111", "#222222", "#333333"
_WIDTH = 620
_FONT = "system-ui, sans-serif"


def profile(rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> str:
    """Probability of each token after the true prefix, before and after the update.

    Args:
        rows: of a DifferentialRank: position, before, after.
        labels: what stands under each position.

    Returns:
        SVG. The length of each line is the token's gain, as in the paper's Figure 1.
    """
    values = [
        {
            "position": index,
            "token": f"{index + 1} · {label}",
            "before": float(row["before"]),
            "after": float(row["after"]),
        }
        for index, (row, label) in enumerate(zip(rows, labels, strict=True))
    ]
    order = alt.EncodingSortField(field="position", order="ascending")
    x = alt.X("token:N", sort=order, title=None, axis=alt.Axis(labelAngle=-35, labelLimit=110))
    y = alt.Y("before:Q", title="probability given the prefix", scale=alt.Scale(domain=[0, 1]))
    chart = alt.Chart(alt.InlineData(values=values)).encode(x=x)
    layers = alt.layer(
        chart.mark_rule(stroke=ACCENT, strokeWidth=3).encode(y=y, y2="after:Q"),
        chart.mark_point(stroke=QUIET, size=55, opacity=1).encode(y=y),
        chart.mark_point(fill=ACCENT, stroke=ACCENT, size=75, opacity=1).encode(y="after:Q"),
    )
    return _svg(layers, height=240)


def scores(rows: Sequence[Mapping[str, Any]], threshold: float | None) -> str:
    """Score of every phrase by its rank, with the null pair's threshold where there is one."""
    values = [
        {"place": place, "score": float(row["score"])} for place, row in enumerate(rows, start=1)
    ]
    x = alt.X("place:Q", title="phrase, best first", axis=alt.Axis(tickMinStep=1, grid=False))
    y = alt.Y("score:Q", title="score")
    points = alt.Chart(alt.InlineData(values=values)).mark_point(
        fill=ACCENT, stroke=ACCENT, size=28, opacity=1
    )
    layers: list[Any] = [points.encode(x=x, y=y)]
    if threshold is not None:
        line = alt.Chart(alt.InlineData(values=[{"score": threshold}]))
        layers.append(line.mark_rule(stroke=QUIET, strokeDash=[5, 4]).encode(y=y))
    return _svg(alt.layer(*layers), height=190)


def _svg(chart: Any, *, height: int) -> str:
    spec = chart.properties(width=_WIDTH, height=height).to_dict()
    spec["config"] = {
        "background": None,
        "view": {"stroke": None},
        "axis": {
            "labelFont": _FONT,
            "titleFont": _FONT,
            "titleFontWeight": "normal",
            "titleColor": INK,
            "labelColor": INK,
            "domainColor": QUIET,
            "tickColor": QUIET,
            "gridColor": QUIET,
            "gridOpacity": 0.2,
            "labelFontSize": 12,
            "titleFontSize": 12,
        },
    }
    svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return svg
