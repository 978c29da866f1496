"""Charts as inline SVG: drawn once, here, so that the page needs neither script nor network.

Colours are sentinels that the page's style sheet replaces, so that a chart follows the
reader's light or dark theme.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert

INK, ACCENT, QUIET, TEXT = "#111111", "#222222", "#333333", "#444444"
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
    return to_svg(layers, height=240)


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
    return to_svg(alt.layer(*layers), height=190)


def completions(points: Sequence[Mapping[str, Any]]) -> str:
    """Share of canaries completed, by how often they were planted.

    Args:
        points: copies (a label), rate with its ends low and high, and beam; in their order.

    Returns:
        SVG. A disc with its interval is greedy decoding, a ring the beam's best.
    """
    values = [{**point, "place": place} for place, point in enumerate(points)]
    order = alt.EncodingSortField(field="place", order="ascending")
    x = alt.X("copies:N", sort=order, title="copies planted", axis=alt.Axis(labelAngle=0))
    y = alt.Y("low:Q", title="share completed", scale=alt.Scale(domain=[0, 1]))
    chart = alt.Chart(alt.InlineData(values=values)).encode(x=x)
    layers = alt.layer(
        chart.mark_rule(stroke=ACCENT, strokeWidth=2).encode(y=y, y2="high:Q"),
        chart.mark_point(stroke=QUIET, size=150, opacity=1).encode(y="beam:Q"),
        chart.mark_point(fill=ACCENT, stroke=ACCENT, size=55, opacity=1).encode(y="rate:Q"),
    )
    return to_svg(layers, height=220)


def exposures(points: Sequence[Mapping[str, Any]], never: Mapping[str, Any]) -> str:
    """Median exposure in bits, by how often canaries were planted.

    Args:
        points: copies (a label), exposure with its ends low and high, bound, whether it is so much
            or more, and other, the median of the same words in another order, or None; in their
            order.
        never: exposure, low and high of the controls.

    Returns:
        SVG. A disc with its interval is planted, a triangle a bound, a ring its words in another
        order; the dashed line with its band is never planted.
    """
    values = [{**point, "place": place} for place, point in enumerate(points)]
    order = alt.EncodingSortField(field="place", order="ascending")
    x = alt.X("copies:N", sort=order, title="copies planted", axis=alt.Axis(labelAngle=0))
    y = alt.Y("low:Q", title="exposure in bits")
    chart = alt.Chart(alt.InlineData(values=values)).encode(x=x)
    controls = alt.Chart(alt.InlineData(values=[dict(never)]))
    layers = alt.layer(
        controls.mark_rect(fill=QUIET, opacity=0.15).encode(y=y, y2="high:Q"),
        controls.mark_rule(stroke=QUIET, strokeDash=[5, 4]).encode(y="exposure:Q"),
        chart.mark_rule(stroke=ACCENT, strokeWidth=2).encode(y=y, y2="high:Q"),
        chart.mark_point(stroke=QUIET, size=90, opacity=1).encode(y="other:Q"),
        chart.transform_filter("!datum.bound")
        .mark_point(fill=ACCENT, stroke=ACCENT, size=55, opacity=1)
        .encode(y="exposure:Q"),
        chart.transform_filter("datum.bound")
        .mark_point(shape="triangle-up", fill=ACCENT, stroke=ACCENT, size=90, opacity=1)
        .encode(y="exposure:Q"),
    )
    return to_svg(layers, height=240)


def to_svg(chart: Any, *, height: int, width: int = _WIDTH) -> str:
    """A chart in the page's own manner, in pixels; axes and labels come to that."""
    return in_our_manner(chart.properties(width=width, height=height))


def in_our_manner(chart: Any) -> str:
    """A chart of a size of its own, or several of them, as SVG in the page's manner."""
    spec = chart.to_dict()
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
        "legend": {
            "labelFont": _FONT,
            "titleFont": _FONT,
            "titleFontWeight": "normal",
            "titleColor": INK,
            "labelColor": INK,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "orient": "top",
        },
    }
    svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return svg
