"""Charts of scores and p-values of audited units beside those of reference units."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.reports.charts import ACCENT, BROAD, INK, QUIET, TEXT, Chart, alt, disc, inline, ring

POINTS = 300
"""P-values up to which each is a point; more are a line."""

DOTS = 400
"""Units up to which each is a dot; more are bars."""
CELL, TALL = 11, 19
"""Pixels of a dot, and dots of the highest stack."""

KNOWN_BETTER = "how much better than expected the model knows the words"


def two_groups(
    audited: Sequence[float],
    known: Sequence[float],
    *,
    names: tuple[str, str] = ("audited", "reference"),
    of: str = "users",
    score: str = KNOWN_BETTER,
    width: int = BROAD,
) -> Chart:
    """Scores of audited units, upwards, and of reference units, downwards, as shares of each group.

    Args:
        audited: scores, at least one.
        known: scores of the reference, at least one.
        names: of the two groups.
        of: what has the scores.
        score: title of their axis.
        width: in pixels.
    """
    edges = score_edges([*audited, *known], max(10, width // 22))
    groups = ((audited, ACCENT, 1, 0.85), (known, QUIET, -1, 0.45))
    shares = [sign * np.histogram(own, edges)[0] / len(own) for own, _, sign, _ in groups]
    most = 1.25 * max(float(np.abs(one).max()) for one in shares)
    x = score_axis(edges, width, title=score)
    y = alt.Y(
        "share:Q",
        title=f"share of {of}",
        scale=alt.Scale(domain=[-most, most]),
        axis=alt.Axis(labelExpr="format(abs(datum.value), '~p')", tickCount=5),
    )
    layers = []
    for share, (_, colour, _, opacity) in zip(shares, groups, strict=True):
        bars = zip(edges[:-1], edges[1:], share.tolist(), strict=True)
        values = [{"x": a, "right": b, "share": s, "zero": 0.0} for a, b, s in bars if s]
        mark = inline(values).mark_bar(
            fill=colour, stroke=colour, fillOpacity=opacity, strokeWidth=0.5
        )
        layers.append(mark.encode(x=x, x2="right:Q", y=y, y2="zero:Q"))
    labels = [
        {"x": edges[0], "share": sign * 0.92 * most, "name": f"{name} ({len(own):,})"}
        for name, (own, _, sign, _) in zip(names, groups, strict=True)
    ]
    text = inline(labels).mark_text(fill=TEXT, fontSize=13, fontWeight=600, align="left", dx=6)
    layers.append(text.encode(x=x, y=y, text="name:N"))
    return alt.layer(*layers).properties(width=width, height=260)


def sorted_p_values(
    p_values: Sequence[float],
    flagged: Sequence[bool],
    null: Sequence[float],
    *,
    of: str = "users, the smallest p-value first",
    width: int = BROAD,
) -> Chart:
    """P-values in rising order; without membership they lie near the dashed diagonal.

    Args:
        p_values: of the audited units, in rising order.
        flagged: a disc; the others are rings.
        null: of the same units against models that never saw them, a thin line; may be empty.
        of: title of the axis of units.
        width: in pixels.
    """
    scale = alt.Scale(domain=[0, 1])
    x = alt.X("share:Q", title=of, scale=scale, axis=alt.Axis(format="~p", tickCount=5))
    y = alt.Y("p:Q", title="p-value", scale=scale, axis=alt.Axis(tickCount=5))
    diagonal = inline([{"share": one, "p": one} for one in (0.0, 1.0)])
    layers: list[Any] = [diagonal.mark_line(stroke=QUIET, strokeDash=[5, 4])]
    if null:
        layers.append(inline(_rising(sorted(null))).mark_line(stroke=INK, strokeWidth=1.6))
    points = _rising(p_values)
    if len(p_values) > POINTS:
        layers.append(inline(points).mark_line(stroke=ACCENT, strokeWidth=3))
    else:
        both = list(zip(points, flagged, strict=True))
        layers.append(ring(inline(point for point, own in both if not own), 42, ACCENT))
        layers.append(disc(inline(point for point, own in both if own), 42))
    layers = [layer.encode(x=x, y=y) for layer in layers]
    return alt.layer(*layers).properties(width=width, height=260)


def one_among(known: Sequence[float], own: float, *, label: str, width: int = BROAD) -> Chart:
    """One score, a line with a label, among those of the reference, each a dot.

    Dots to the right of the line have higher scores.
    """
    edges = score_edges([*known, own], width // CELL, through=own)
    counts = np.histogram(known, edges)[0]
    dotted = len(known) <= DOTS
    top = (max(int(counts.max()), 6) if dotted else TALL) + 3.0
    x = score_axis(edges, width, title=KNOWN_BETTER)
    y = alt.Y("height:Q", axis=None, scale=alt.Scale(domain=[0, top]))
    align = "right" if own > (edges[0] + edges[-1]) / 2 else "left"
    line = inline([{"x": own, "height": 0.0, "top": top - 1.6}])
    text = inline([{"x": own, "height": top - 1.0, "label": label}])
    layers = [
        (_dots if dotted else _bars)(counts, edges).encode(x=x, y=y),
        line.mark_rule(stroke=ACCENT, strokeWidth=3).encode(x=x, y=y, y2="top:Q"),
        text.mark_text(fill=ACCENT, fontSize=14, fontWeight=600, align=align).encode(
            x=x, y=y, text="label:N"
        ),
    ]
    height = round(CELL * min(top, TALL + 3))
    return alt.layer(*layers).properties(width=width, height=height)


def score_edges(
    scores: Sequence[float], bins: int, *, through: float | None = None
) -> NDArray[np.float64]:
    """Edges of bins that hold all scores, one of them at a given score."""
    low, high = float(min(scores)), float(max(scores))
    step = 1.08 * ((high - low) or 1.0) / bins
    zero = low - step / 2 if through is None else through
    first, last = math.floor((low - zero) / step) - 1, math.ceil((high - zero) / step) + 1
    return zero + step * np.arange(first, last + 1, dtype=np.float64)


def score_axis(edges: NDArray[np.float64], width: int, *, title: str) -> Any:
    """The axis of scores."""
    if title == KNOWN_BETTER and width < BROAD:
        title = "better than expected"
    return alt.X(
        "x:Q",
        title=f"{title} →",
        scale=alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False),
        axis=alt.Axis(grid=False, tickCount=max(3, width // 90)),
    )


def _dots(counts: NDArray[np.int64], edges: NDArray[np.float64]) -> Any:
    """As many dots as units, stacked in the middle of each bin."""
    stacks = zip(((edges[:-1] + edges[1:]) / 2).tolist(), counts.tolist(), strict=True)
    values = [{"x": x, "height": place + 0.6} for x, count in stacks for place in range(count)]
    return inline(values).mark_point(fill=QUIET, stroke=QUIET, strokeWidth=0, size=58, opacity=0.75)


def _bars(counts: NDArray[np.int64], edges: NDArray[np.float64]) -> Any:
    middles, heights = (edges[:-1] + edges[1:]) / 2, TALL * counts / counts.max()
    bars = zip(middles.tolist(), heights.tolist(), strict=True)
    values = [{"x": x, "height": height} for x, height in bars]
    return inline(values).mark_bar(fill=QUIET, opacity=0.55, size=CELL - 2)


def _rising(p_values: Sequence[float]) -> list[dict[str, float]]:
    """Each at the share of those that are smaller, in the middle of its step; at most `POINTS`."""
    number = len(p_values)
    places = np.linspace(0, number - 1, min(POINTS, number)).astype(int).tolist()
    return [{"share": (n + 0.5) / number, "p": float(p_values[n])} for n in places]
