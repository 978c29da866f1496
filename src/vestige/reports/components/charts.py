"""Charts as inline SVG: the page needs neither script nor network.

Colours are sentinels that the page's style sheet replaces, so that a chart follows the
reader's light or dark theme.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import lazy_loader  # type: ignore[import-untyped]
from markupsafe import Markup

if TYPE_CHECKING:
    import altair as alt
else:  # words of a report are wanted in a terminal, too, where nothing is drawn
    alt = lazy_loader.load("altair")

__all__ = ["ACCENT", "BROAD", "INK", "QUIET", "SLIM", "TEXT", "Chart", "Figure", "alt"]

INK, ACCENT, QUIET, TEXT = "#111111", "#222222", "#333333", "#444444"
_COLOURS = {INK: "#57534c", ACCENT: "#b0402a", QUIET: "#8a857c", TEXT: "#23211d"}
"""What the sentinels are where there is no style sheet."""

_PAPER = "#fbfaf6"

BROAD, SLIM = 620, 270
"""Width in pixels of a chart on a screen and on a phone."""

FEW = 3
"""Points up to which a chart says no more than the table or list beside it."""

_FONT = "system-ui, sans-serif"
Chart = Any
"""An Altair chart: single, layered or concatenated."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart and what stands under it.

    Attributes:
        draw: from a width in pixels to the chart.
        caption: how to read it.
        points: how many values it shows; none where it also shows their intervals or a relation.
        slim: it is drawn for phones, too.
    """

    template: ClassVar[str] = "figure"
    draw: Callable[[int], Chart]
    caption: str
    points: int | None = None
    slim: bool = False

    @property
    def worth_it(self) -> bool:
        """Whether a page shows it: a chart of a few points gives way to their list."""
        return self.points is None or self.points > FEW

    @cached_property
    def svg(self) -> Markup:
        """The chart as markup; vl-convert escapes every text that it draws, and tests hold that."""
        broad = Markup(in_our_manner(self.draw(BROAD)))
        if not self.slim:
            return broad
        slim = Markup(in_our_manner(self.draw(SLIM)))
        return Markup('<div class="broad">{}</div><div class="slim">{}</div>').format(broad, slim)

    def chart(self) -> "alt.Chart":
        """The chart by itself, in colours that need no style sheet."""
        spec = _spec(self.draw(BROAD))
        spec["config"]["background"] = _PAPER
        text = json.dumps(spec)
        for sentinel, colour in _COLOURS.items():
            text = text.replace(f'"{sentinel}"', f'"{colour}"')
        return alt.Chart.from_dict(json.loads(text))


def in_our_manner(chart: Chart) -> str:
    """A chart as SVG in the page's manner."""
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(_spec(chart), allowed_base_urls=[])
    return svg


def titled(text: str, **more: Any) -> Any:
    """The title of one of several charts that stand together."""
    return alt.TitleParams(text, anchor="start", color=INK, font=_FONT, **more)


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
