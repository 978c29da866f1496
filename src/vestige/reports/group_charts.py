"""Charts of two groups: scores of the audited and of the others, and sorted p-values."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.reports.charts import ACCENT, BROAD, INK, QUIET, TEXT, Chart, alt, inline, ring

_POINTS = 300
"""P-values up to which each is a point."""


def two_groups(
    audited: Sequence[float],
    known: Sequence[float],
    *,
    names: tuple[str, str] = ("audited", "non-members"),
    of: str = "users",
    score: str = "",
    width: int = BROAD,
) -> Chart:
    """Scores of audited users, upwards, and of non-members, downwards, as shares of each group.

    Args:
        audited, known: the scores, at least one of each.
        names: of the two groups.
        of: whose scores they are.
        score: what they are, on the axis; what an audit of users has by default.
        width: in pixels.
    """
    edges = score_edges([*audited, *known], max(10, width // 22))
    values = []
    for scores, colour, sign in ((audited, ACCENT, 1), (known, QUIET, -1)):
        shares = np.histogram(scores, edges)[0] / len(scores)
        values += [
            {"x": a, "right": b, "share": sign * share, "zero": 0.0, "colour": colour}
            for a, b, share in zip(edges[:-1], edges[1:], shares.tolist(), strict=True)
            if share
        ]
    most = 1.25 * max(abs(value["share"]) for value in values)
    x = score_axis(edges, width, score=score)
    y = alt.Y(
        "share:Q",
        title=f"share of {of}",
        scale=alt.Scale(domain=[-most, most]),
        axis=alt.Axis(labelExpr="format(abs(datum.value), '~p')", tickCount=5),
    )
    bars = [
        inline([v for v in values if v["colour"] == colour])
        .mark_bar(fill=colour, stroke=colour, fillOpacity=opacity, strokeWidth=0.5)
        .encode(x=x, x2="right:Q", y=y, y2="zero:Q")
        for colour, opacity in ((ACCENT, 0.85), (QUIET, 0.45))
    ]
    labels = [
        {"x": edges[0], "share": 0.92 * most, "name": f"{names[0]} ({len(audited):,})"},
        {"x": edges[0], "share": -0.92 * most, "name": f"{names[1]} ({len(known):,})"},
    ]
    said = inline(labels).mark_text(fill=TEXT, fontSize=13, fontWeight=600, align="left", dx=6)
    return alt.layer(*bars, said.encode(x=x, y=y, text="name:N")).properties(
        width=width, height=260
    )


def sorted_p_values(
    p_values: Sequence[float],
    called: Sequence[bool],
    null: Sequence[float],
    *,
    of: str = "users, the most exposed first",
    width: int = BROAD,
) -> Chart:
    """P-values in rising order; without membership they lie along the diagonal.

    Args:
        p_values: of the audited units, in rising order.
        called: whether each is flagged: a disc, else a ring.
        null: p-values of non-members, a thin line; may be empty.
        of: title of the axis of units.
    """
    x = alt.X("share:Q", title=of, scale=alt.Scale(domain=[0, 1]),
              axis=alt.Axis(format="~p", tickCount=5))  # fmt: skip
    y = alt.Y("p:Q", title="p-value", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    diagonal = inline([{"share": s, "p": s} for s in (0.0, 1.0)])
    layers: list[Any] = [diagonal.mark_line(stroke=QUIET, strokeDash=[5, 4]).encode(x=x, y=y)]
    if null:
        line = inline(_rising(sorted(null), most=_POINTS))
        layers.append(line.mark_line(stroke=INK, strokeWidth=1.6).encode(x=x, y=y))
    if len(p_values) > _POINTS:
        line = inline(_rising(p_values, most=_POINTS))
        layers.append(line.mark_line(stroke=ACCENT, strokeWidth=3).encode(x=x, y=y))
    else:
        for named, fill in ((False, "transparent"), (True, ACCENT)):
            points = zip(_rising(p_values), called, strict=True)
            own = inline({**p, "called": named} for p, one in points if bool(one) is named)
            layers.append(ring(own, 42, ACCENT, fill=fill).encode(x=x, y=y))
    return alt.layer(*layers).properties(width=width, height=260)


def score_edges(scores: Sequence[float], bins: int) -> NDArray[np.float64]:
    """Edges of bins over all scores."""
    low, high = float(min(scores)), float(max(scores))
    step = 1.08 * ((high - low) or 1.0) / bins
    zero = low - step / 2
    first, last = math.floor((low - zero) / step) - 1, math.ceil((high - zero) / step) + 1
    return zero + step * np.arange(first, last + 1, dtype=np.float64)


def score_axis(edges: NDArray[np.float64], width: int, *, score: str = "") -> Any:
    """The axis of scores; `score` names them."""
    long, short = "how much better than expected the model knows the words", "better than expected"
    long, short = (score or long), (score or short)
    return alt.X(
        "x:Q",
        title=f"{long if width == BROAD else short} →",
        scale=alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False),
        axis=alt.Axis(grid=False, tickCount=max(3, width // 90)),
    )


def _rising(p_values: Sequence[float], *, most: int | None = None) -> list[dict[str, float]]:
    """Each p-value at the share of smaller ones, thinned to `most`."""
    kept = len(p_values) if most is None else min(most, len(p_values))
    places = np.linspace(0, len(p_values) - 1, kept).astype(int).tolist()
    return [{"share": (n + 0.5) / len(p_values), "p": float(p_values[n])} for n in places]
