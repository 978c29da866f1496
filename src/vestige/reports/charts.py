"""Charts as inline SVG: a page needs neither script nor network.

Colours are placeholders that the page's style sheet replaces: a chart follows the reader's light
or dark theme.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import lazy_loader  # type: ignore[import-untyped]
from markupsafe import Markup

if TYPE_CHECKING:
    import altair as alt
else:  # a terminal shows the words of a report and draws nothing
    alt = lazy_loader.load("altair")

__all__ = [
    "ACCENT", "BROAD", "FEW", "INK", "QUIET", "SLIM", "TEXT", "Chart", "Figure", "alt", "by_copies",
    "dashed", "disc", "inline", "intervals", "ring", "svg_of", "titled",
]  # fmt: skip

INK, ACCENT, QUIET, TEXT = "#111111", "#222222", "#333333", "#444444"
_COLOURS = {INK: "#57534c", ACCENT: "#b0402a", QUIET: "#8a857c", TEXT: "#23211d"}
"""The placeholders' colours without a style sheet."""

_PAPER = "#fbfaf6"

BROAD, SLIM = 620, 270
"""Width of a chart in pixels on a screen and on a phone."""

FEW = 3
"""A chart of so few points adds nothing to its table."""

_FONT = "system-ui, sans-serif"
Chart = Any
"""An Altair chart: single, layered or concatenated."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart with its caption.

    Attributes:
        draw: from a width in pixels to the chart.
        caption: how to read it.
        points: number of values; None where it also shows intervals or a relation.
        slim: also drawn for phones.
        title: its heading where it is folded.
    """

    template: ClassVar[str] = "figure"
    draw: Callable[[int], Chart]
    caption: str
    points: int | None = None
    slim: bool = False
    title: str = "Chart"

    @property
    def worth_it(self) -> bool:
        """Whether a page shows it."""
        return self.points is None or self.points > FEW

    @cached_property
    def svg(self) -> Markup:
        """The chart as markup; vl-convert escapes every text in it, as tests check."""
        broad = Markup(svg_of(self.draw(BROAD)))
        if not self.slim:
            return broad
        slim = Markup(svg_of(self.draw(SLIM)))
        return Markup('<div class="broad">{}</div><div class="slim">{}</div>').format(broad, slim)

    def chart(self) -> "alt.Chart":
        """The chart in colours that need no style sheet."""
        spec = _spec(self.draw(BROAD))
        spec["config"]["background"] = _PAPER
        text = json.dumps(spec)
        for sentinel, colour in _COLOURS.items():
            text = text.replace(f'"{sentinel}"', f'"{colour}"')
        return alt.Chart.from_dict(json.loads(text))


def svg_of(chart: Chart) -> str:
    """A chart as SVG in the style of the page."""
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(_spec(chart), allowed_base_urls=[])
    return svg


def titled(text: str, **more: Any) -> Any:
    """The title of one of several charts in a row."""
    return alt.TitleParams(text, anchor="start", color=INK, font=_FONT, **more)


def inline(values: Iterable[Mapping[str, Any]]) -> Chart:
    """A chart that contains its records; the caller adds marks and axes."""
    return alt.Chart(alt.InlineData(values=[dict(value) for value in values]))


def disc(chart: Chart, size: int, colour: str = ACCENT, **more: Any) -> Chart:
    """Filled points."""
    return chart.mark_point(fill=colour, stroke=colour, size=size, opacity=1, **more)


def ring(chart: Chart, size: int, colour: str = QUIET, **more: Any) -> Chart:
    """Hollow points."""
    return chart.mark_point(stroke=colour, size=size, opacity=1, **more)


def by_copies(points: Iterable[Mapping[str, Any]]) -> Chart:
    """Points whose `copies` are labels, from left to right in their order."""
    order = alt.EncodingSortField(field="place", order="ascending")
    x = alt.X("copies:N", sort=order, title="copies planted", axis=alt.Axis(labelAngle=0))
    return inline({**point, "place": place} for place, point in enumerate(points)).encode(x=x)


def dashed(**at: float) -> Chart:
    """A dashed line at one value."""
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
    title: str = "Chart",
) -> Figure:
    """Labelled values with their intervals.

    Args:
        points: `label`, `value`, `low` and `high` of each, and perhaps `other` (a ring beside it),
            `filled` (False: a ring in place of a disc) and `bound` (True: a triangle).
        name: title of the axis of labels.
        value: title of the axis of values.
        caption: how to read it.
        across: labels run from left to right; otherwise from top to bottom.
        domain: ends of the axis of values.
        band: `value`, `low` and `high` of a reference, a dashed line in a band.
        title: its heading where it is folded.
    """
    usual = {"filled": True, "bound": False, "other": None}
    rows = [{**usual, **point, "place": place} for place, point in enumerate(points)]

    def draw(width: int) -> Chart:
        return _intervals(rows, (name, value), width, across=across, domain=domain, band=band)

    return Figure(draw=draw, caption=caption, points=len(rows), slim=True, title=title)


def _intervals(
    rows: Sequence[Mapping[str, Any]],
    titles: tuple[str, str],
    width: int,
    *,
    across: bool,
    domain: tuple[float, float] | None,
    band: Mapping[str, float] | None,
) -> Chart:
    labels, values = ("x", "y") if across else ("y", "x")
    channels = {"x": alt.X, "y": alt.Y}
    scale = alt.Scale(domain=list(domain)) if domain else alt.Scale(zero=True)
    axis = alt.Axis(labelAngle=0) if across else alt.Axis()
    order = alt.EncodingSortField(field="place", order="ascending")
    label = channels[labels]("label:N", sort=order, title=titles[0], axis=axis)
    low = channels[values]("low:Q", title=titles[1], scale=scale)
    span = {values: low, f"{values}2": "high:Q"}
    chart, middle = inline(rows).encode(**{labels: label}), {values: "value:Q"}

    def only(test: str) -> Chart:
        return chart.transform_filter(test)

    layers = [
        chart.mark_rule(stroke=ACCENT, strokeWidth=2).encode(**span),
        ring(only("datum.other !== null"), 110).encode(**{values: "other:Q"}),
        disc(only("datum.filled && !datum.bound"), 65).encode(**middle),
        disc(only("datum.bound"), 80, shape="triangle-up").encode(**middle),
        ring(only("!datum.filled && !datum.bound"), 65, ACCENT).encode(**middle),
    ]
    if band is not None:
        known = inline([band])
        layers[:0] = [
            known.mark_rect(fill=QUIET, opacity=0.15).encode(**span),
            known.mark_rule(stroke=QUIET, strokeDash=[5, 4]).encode(**middle),
        ]
    height = 230 if across else alt.Step(18)
    return alt.layer(*layers).properties(width=width, height=height)


def _spec(chart: Chart) -> dict[str, Any]:
    writing = {
        "labelFont": _FONT,
        "titleFont": _FONT,
        "titleFontWeight": "normal",
        "titleColor": INK,
        "labelColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
    }
    axis = {"domainColor": QUIET, "tickColor": QUIET, "gridColor": QUIET, "gridOpacity": 0.2}
    spec: dict[str, Any] = chart.to_dict()
    spec["padding"] = {"left": 12, "right": 12, "top": 4, "bottom": 4}  # for wider fonts than ours
    spec["config"] = {
        "background": None,
        "view": {"stroke": None},
        "axis": {**writing, **axis},
        "legend": {**writing, "orient": "top"},
    }
    return spec
