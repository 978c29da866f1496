"""Charts of seen and unseen text: log-probabilities, ranks, and the effect of silent units.

Seen text is filled or solid, unseen text dashed.
"""

from collections.abc import Sequence
from math import exp
from typing import Any

from vestige.reports.charts import ACCENT, BROAD, INK, Chart, alt, inline, titled
from vestige.reports.words import Row

_ENDS = ("value", "low", "high")
_PANELS = {"frequent": "frequent words", "rest": "the rest"}
_HEIGHT = 220
_LEAST = 0.02  # least end of an axis of accuracies
_NARROW = 400  # pixels; below it, panels are stacked
_ASIDE = 130  # pixels of two panels' axes


def log_probabilities(rows: Sequence[Row], *, width: int = BROAD) -> Chart:
    """Histograms of frequent words and of the rest, as in Figure 5."""
    panels = []
    for words, title in _PANELS.items():
        own = [row for row in rows if (row["figure"], row["words"]) == ("log-probabilities", words)]
        x = alt.X("x:Q", title="log-probability of the true word", axis=alt.Axis(tickCount=6))
        y = alt.Y("y:Q", title="share of words", axis=alt.Axis(format="~p", tickCount=5))
        layers = []
        for text in ("seen", "unseen"):
            chart = inline(_steps([r for r in own if r["text"] == text])).encode(x=x, y=y)
            if text == "seen":
                layers.append(chart.mark_area(fill=ACCENT, opacity=0.35, interpolate="step-after"))
            layers.append(_line(chart, text, interpolate="step-after"))
        panels.append(_panel(layers, title, width))
    return _beside(panels, width)


def ranks(rows: Sequence[Row], *, width: int = BROAD) -> Chart:
    """Mean predicted rank by position in the table of frequencies, as in Figure 6."""
    own = [row for row in rows if (row["figure"], row["measure"]) == ("ranks", "rank")]
    points = [{**row, "x": (row["start"] + row["stop"]) / 2} for row in own]
    x = alt.X("x:Q", title="position of the word by frequency (1 is the commonest)")
    layers = _curves(points, x, "mean rank in the predictions", scale=alt.Scale(type="log"))
    return alt.layer(*layers).properties(width=width - _ASIDE // 2, height=_HEIGHT + 40)


def accuracy(rows: Sequence[Row], *, width: int = BROAD) -> Chart:
    """Accuracy by the share of silent units, as in Figure 7."""
    axis = alt.Axis(format="~p", tickCount=5)
    known = [row["high"] or row["value"] or 0.0 for row in rows if row["measure"] == "accuracy"]
    scale = alt.Scale(domain=[0, max([_LEAST, *known])], nice=True)
    return _silenced(rows, "accuracy", "accuracy", width, axis=axis, scale=scale)


def fall(rows: Sequence[Row], *, width: int = BROAD) -> Chart:
    """How much the ranks of words grow, by the share of silent units."""
    own = [
        {**row, **{end: None if row[end] is None else exp(row[end]) for end in _ENDS}}
        for row in rows
        if row["measure"] == "log_rank_lost"
    ]
    axes = {"axis": alt.Axis(tickCount=5), "scale": alt.Scale(type="log", nice=False)}
    return _silenced(own, "log_rank_lost", "rank, times that of the whole model", width, **axes)


def _silenced(rows: Sequence[Row], measure: str, y: str, width: int, **how: Any) -> Chart:
    panels = []
    for words, title in _PANELS.items():
        key = ("ablation", words, measure)
        own = [row for row in rows if (row["figure"], row["words"], row["measure"]) == key]
        axis = alt.Axis(format="~p", tickCount=5)
        x = alt.X("x:Q", title="silent hidden units", axis=axis)
        points = [{**row, "x": row["start"]} for row in own]
        panels.append(_panel(_curves(points, x, y, **how), title, width))
    return _beside(panels, width)


def _curves(points: Sequence[Row], x: Any, title: str, **how: Any) -> list[Any]:
    """A line with its band for seen text, and one for unseen text."""
    layers = []
    y, low = (alt.Y(name, title=title, **how) for name in ("value:Q", "low:Q"))
    for text, colour in (("seen", ACCENT), ("unseen", INK)):
        own = [p for p in points if p["text"] == text and p["value"] is not None]
        known = [p for p in own if p["low"] is not None]
        chart, bands = (inline(_plain(some)) for some in (own, known))
        if known:
            area = bands.mark_area(fill=colour, opacity=0.15)
            layers.append(area.encode(x=x, y=low, y2="high:Q"))
        points_of = chart.mark_point(stroke=colour, fill=colour, size=22)
        layers += [one.encode(x=x, y=y) for one in (_line(chart, text), points_of)]
    return layers


def _line(chart: Any, text: str, **more: Any) -> Any:
    if text == "seen":
        return chart.mark_line(stroke=ACCENT, strokeWidth=2, **more)
    return chart.mark_line(stroke=INK, strokeWidth=1.6, strokeDash=[5, 3], **more)


def _steps(cells: Sequence[Row]) -> list[dict[str, float]]:
    """The corners of a histogram, down to 0 at its end."""
    known = [cell for cell in cells if cell["value"] is not None]
    corners = [{"x": float(cell["start"]), "y": float(cell["value"])} for cell in known]
    return [*corners, {"x": float(known[-1]["stop"]), "y": corners[-1]["y"]}] if known else []


def _plain(points: Sequence[Row]) -> list[dict[str, Any]]:
    return [{name: point[name] for name in ("x", "value", "low", "high")} for point in points]


def _panel(layers: Sequence[Any], title: str, width: int) -> Any:
    own = width - _ASIDE // 2 if width < _NARROW else (width - _ASIDE) // 2
    named = titled(title, fontSize=13)
    return alt.layer(*layers).properties(width=own, height=_HEIGHT, title=named)


def _beside(panels: Sequence[Any], width: int) -> Chart:
    together = alt.vconcat if width < _NARROW else alt.hconcat
    return together(*panels, spacing=18).resolve_scale(y="independent")
