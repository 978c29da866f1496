"""Charts as inline SVG, for pages without scripts and network access.

Colours are placeholders, which the style sheet of the page replaces by those of the light or dark
theme.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import lazy_loader  # type: ignore[import-untyped]
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

if TYPE_CHECKING:
    import altair as alt
else:  # a terminal draws no charts
    alt = lazy_loader.load("altair")

__all__ = [
    "ACCENT", "BROAD", "INK", "QUIET", "TEXT", "Chart", "Figure", "alt", "dashed", "disc",
    "inline", "intervals", "ring", "score_axis", "score_edges", "sorted_p_values", "svg_of",
    "titled", "two_groups",
]  # fmt: skip

INK, ACCENT, QUIET, TEXT = "#111111", "#222222", "#333333", "#444444"
_COLOURS = {INK: "#57534c", ACCENT: "#b0402a", QUIET: "#8a857c", TEXT: "#23211d"}
"""Colours of the placeholders without a style sheet."""

BROAD, SLIM = 620, 270
"""Width of a chart in pixels, on a screen and on a phone."""

MIN_POINTS = 3
"""Charts of this many points or fewer are not shown: the table is enough."""

MAX_POINTS = 300
"""Most points of a curve."""

_FONT = "system-ui, sans-serif"
Chart = Any
"""An Altair chart: single, layered or concatenated."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart with its caption.

    Attributes:
        draw: makes the chart for a width in pixels.
        caption: explanation of the chart.
        points: number of values; None if the chart shows more than values.
        slim: the chart is also drawn for phones.
    """

    template: ClassVar[str] = "figure"
    title: ClassVar[str] = "Chart"
    draw: Callable[[int], Chart]
    caption: str
    points: int | None = None
    slim: bool = False

    @property
    def worth_it(self) -> bool:
        """Whether a page shows it."""
        return self.points is None or self.points > MIN_POINTS

    @cached_property
    def svg(self) -> Markup:
        """The chart as markup; vl-convert escapes all texts in it, as tests check."""
        broad = Markup(svg_of(self.draw(BROAD)))
        if not self.slim:
            return broad
        narrow = Markup(svg_of(self.draw(SLIM)))
        return Markup('<div class="broad">{}</div><div class="slim">{}</div>').format(broad, narrow)

    def chart(self) -> "alt.Chart":
        """The chart with colours for use without a style sheet."""
        spec = _spec(self.draw(BROAD))
        spec["config"]["background"] = "#fbfaf6"
        encoded = json.dumps(spec)
        for placeholder, colour in _COLOURS.items():
            encoded = encoded.replace(f'"{placeholder}"', f'"{colour}"')
        return alt.Chart.from_dict(json.loads(encoded))


def svg_of(chart: Chart) -> str:
    """A chart as SVG in the style of the page."""
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(_spec(chart), allowed_base_urls=[])
    return svg


def _spec(chart: Chart) -> dict[str, Any]:
    font = {"Font": _FONT, "Color": INK, "FontSize": 12}
    text_style = {
        f"{text}{name}": value for text in ("label", "title") for name, value in font.items()
    }
    axis = {"domainColor": QUIET, "tickColor": QUIET, "gridColor": QUIET, "gridOpacity": 0.2}
    spec: dict[str, Any] = chart.to_dict()
    # Margins for readers with a wider font.
    spec["padding"] = {"left": 12, "right": 12, "top": 4, "bottom": 4}
    spec["config"] = {
        "background": None,
        "view": {"stroke": None},
        "axis": {**text_style, **axis, "titleFontWeight": "normal"},
        "legend": {**text_style, "symbolStrokeColor": INK},
    }
    return spec


def titled(text: str, **more: Any) -> Any:
    """The title of one of several adjacent charts."""
    return alt.TitleParams(text, anchor="start", color=INK, font=_FONT, **more)


def inline(values: Iterable[Mapping[str, Any]]) -> Chart:
    """A chart of some records, without marks and axes."""
    return alt.Chart(alt.InlineData(values=[dict(value) for value in values]))


def disc(chart: Chart, size: int, colour: str = ACCENT, **more: Any) -> Chart:
    """Filled points."""
    return chart.mark_point(fill=colour, stroke=colour, size=size, opacity=1, **more)


def ring(chart: Chart, size: int, colour: str = QUIET, **more: Any) -> Chart:
    """Hollow points."""
    return chart.mark_point(stroke=colour, size=size, opacity=1, **more)


def dashed(**at: float) -> Chart:
    """A dashed line at a value."""
    return inline([at]).mark_rule(stroke=QUIET, strokeDash=[5, 4])


def intervals(
    points: Sequence[Mapping[str, Any]],
    *,
    name: str,
    value: str,
    caption: str,
    across: bool = True,
    domain: tuple[float, float] | None = None,
    band: Mapping[str, float] | None = None,
) -> Figure:
    """Labelled values with their intervals.

    Args:
        points: mappings with `label`, `value`, `low` and `high`; optionally `other` (a second
            value, drawn as a ring), `filled` (False: a ring instead of a disc) and `bound` (True:
            a triangle).
        name: title of the axis of labels.
        value: title of the axis of values.
        caption: explanation of the chart.
        across: labels run from left to right, otherwise from top to bottom.
        domain: both ends of the axis of values.
        band: `value`, `low` and `high` of a reference, drawn as a dashed line in a band.
    """
    defaults = {"filled": True, "bound": False, "other": None}
    rows = [{**defaults, **point, "place": index} for index, point in enumerate(points)]

    def draw(width: int) -> Chart:
        labels, values = ("x", "y") if across else ("y", "x")
        channels = {"x": alt.X, "y": alt.Y}
        axis = alt.Axis(labelAngle=0) if across else alt.Axis()
        order = alt.EncodingSortField(field="place", order="ascending")
        label = channels[labels]("label:N", sort=order, title=name, axis=axis)
        scale = alt.Scale(domain=list(domain)) if domain else alt.Scale(zero=True)
        low = channels[values]("low:Q", title=value, scale=scale)
        span, middle = {values: low, f"{values}2": "high:Q"}, {values: "value:Q"}
        layers = [] if band is None else _reference_band(band, span, middle)
        layers += _marks(inline(rows).encode(**{labels: label}), span, middle, values)
        height = 230 if across else alt.Step(18)
        return alt.layer(*layers).properties(width=width, height=height)

    return Figure(draw=draw, caption=caption, points=len(rows), slim=True)


def _marks(chart: Chart, span: Any, middle: Any, values: str) -> list[Chart]:
    def where(condition: str) -> Chart:
        return chart.transform_filter(condition)

    return [
        chart.mark_rule(stroke=ACCENT, strokeWidth=2).encode(**span),
        ring(where("datum.other !== null"), 110).encode(**{values: "other:Q"}),
        disc(where("datum.filled && !datum.bound"), 65).encode(**middle),
        disc(where("datum.bound"), 80, shape="triangle-up").encode(**middle),
        ring(where("!datum.filled && !datum.bound"), 65, ACCENT).encode(**middle),
    ]


def _reference_band(band: Mapping[str, float], span: Any, middle: Any) -> list[Chart]:
    return [
        inline([band]).mark_rect(fill=QUIET, opacity=0.15).encode(**span),
        inline([band]).mark_rule(stroke=QUIET, strokeDash=[5, 4]).encode(**middle),
    ]


def two_groups(
    audited: Sequence[float],
    reference: Sequence[float],
    *,
    names: tuple[str, str] = ("audited", "non-members"),
    of: str = "users",
    score: str = "",
    width: int = BROAD,
) -> Chart:
    """Histograms of two groups as shares, the first upwards and the second downwards.

    Args:
        audited: scores of the first group, at least one.
        reference: scores of the second group, at least one.
        names: names of the groups.
        of: the scored units, such as users.
        score: name of the score, see `score_axis`.
        width: width in pixels.
    """
    edges = score_edges([*audited, *reference], max(10, width // 22))
    groups = ((audited, ACCENT, 0.85, 1), (reference, QUIET, 0.45, -1))
    shares = [np.histogram(scores, edges)[0] / len(scores) for scores, *_ in groups]
    limit = 1.25 * max(share.max() for share in shares)
    x = score_axis(edges, width, score=score)
    y = alt.Y(
        "share:Q",
        title=f"share of {of}",
        scale=alt.Scale(domain=[-limit, limit]),
        axis=alt.Axis(labelExpr="format(abs(datum.value), '~p')", tickCount=5),
    )
    layers = []
    for name, share, (scores, colour, opacity, sign) in zip(names, shares, groups, strict=True):
        bins = zip(edges[:-1].tolist(), edges[1:].tolist(), (sign * share).tolist(), strict=True)
        values = [{"x": a, "right": b, "share": s, "zero": 0.0} for a, b, s in bins if s]
        bars = inline(values).mark_bar(
            fill=colour, stroke=colour, fillOpacity=opacity, strokeWidth=0.5
        )
        label = {"x": edges[0], "share": sign * 0.92 * limit, "name": f"{name} ({len(scores):,})"}
        text = inline([label]).mark_text(fill=TEXT, fontSize=13, fontWeight=600, align="left", dx=6)
        layers += [
            bars.encode(x=x, x2="right:Q", y=y, y2="zero:Q"),
            text.encode(x=x, y=y, text="name:N"),
        ]
    return alt.layer(*layers).properties(width=width, height=260)


def score_edges(scores: Sequence[float], bins: int) -> NDArray[np.float64]:
    """Edges of histogram bins over all scores."""
    low, high = float(min(scores)), float(max(scores))
    step = 1.08 * ((high - low) or 1.0) / bins
    zero = low - step / 2
    first, last = math.floor((low - zero) / step) - 1, math.ceil((high - zero) / step) + 1
    return zero + step * np.arange(first, last + 1, dtype=np.float64)


def score_axis(edges: NDArray[np.float64], width: int, *, score: str = "") -> Any:
    """The axis of scores; the default name is that of an audit of users."""
    short = "better than expected"
    default = f"how much {short} the model knows the words" if width == BROAD else short
    return alt.X(
        "x:Q",
        title=f"{score or default} →",
        scale=alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False),
        axis=alt.Axis(grid=False, tickCount=max(3, width // 90)),
    )


def sorted_p_values(
    p_values: Sequence[float],
    flagged: Sequence[bool],
    non_members: Sequence[float],
    *,
    of: str = "users, the most exposed first",
    width: int = BROAD,
) -> Chart:
    """Sorted p-values, which follow the diagonal if there are no members.

    Args:
        p_values: p-values of the audited units, ascending.
        flagged: whether each unit is flagged (a disc, otherwise a ring). Many units become a line.
        non_members: p-values of non-members, drawn as a thin line; may be empty.
        of: title of the axis of units.
        width: width in pixels.
    """
    shares = alt.Axis(format="~p", tickCount=5)
    x = alt.X("share:Q", title=of, scale=alt.Scale(domain=[0, 1]), axis=shares)
    y = alt.Y("p:Q", title="p-value", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    diagonal = inline([{"share": s, "p": s} for s in (0.0, 1.0)])
    layers: list[Chart] = [diagonal.mark_line(stroke=QUIET, strokeDash=[5, 4])]
    if non_members:
        layers.append(
            inline(_quantile_points(sorted(non_members))).mark_line(stroke=INK, strokeWidth=1.6)
        )
    points = _quantile_points(p_values)
    if len(points) < len(p_values):
        layers.append(inline(points).mark_line(stroke=ACCENT, strokeWidth=3))
    else:
        for is_flagged, fill in ((False, "transparent"), (True, ACCENT)):
            pairs = zip(points, flagged, strict=True)
            group = [point for point, flag in pairs if bool(flag) is is_flagged]
            layers.append(ring(inline(group), 42, ACCENT, fill=fill))
    layers = [layer.encode(x=x, y=y) for layer in layers]
    return alt.layer(*layers).properties(width=width, height=260)


def _quantile_points(p_values: Sequence[float]) -> list[dict[str, float]]:
    """Sorted p-values with their quantiles, thinned to `MAX_POINTS`."""
    count = len(p_values)
    indices = np.linspace(0, count - 1, min(MAX_POINTS, count)).astype(int).tolist()
    return [{"share": (n + 0.5) / count, "p": float(p_values[n])} for n in indices]
