"""Marks that several charts have, in the sentinel colours of the page."""

from collections.abc import Iterable, Mapping
from typing import Any

from vestige.reports.components.charts import ACCENT, QUIET, Chart, alt


def inline(values: Iterable[Mapping[str, Any]]) -> Chart:
    """A chart of records that it holds itself; marks and axes are the caller's."""
    return alt.Chart(alt.InlineData(values=[dict(value) for value in values]))


def disc(chart: Chart, size: int, colour: str = ACCENT, **more: Any) -> Chart:
    """Filled points."""
    return chart.mark_point(fill=colour, stroke=colour, size=size, opacity=1, **more)


def ring(chart: Chart, size: int, colour: str = QUIET, **more: Any) -> Chart:
    """Points that are not filled."""
    return chart.mark_point(stroke=colour, size=size, opacity=1, **more)


def by_copies(points: Iterable[Mapping[str, Any]]) -> Chart:
    """Points whose `copies` are labels, side by side in their order."""
    order = alt.EncodingSortField(field="place", order="ascending")
    x = alt.X("copies:N", sort=order, title="copies planted", axis=alt.Axis(labelAngle=0))
    return inline({**point, "place": place} for place, point in enumerate(points)).encode(x=x)


def dashed(**at: float) -> Chart:
    """A dashed line at one value."""
    return inline([at]).mark_rule(stroke=QUIET, strokeDash=[5, 4])
