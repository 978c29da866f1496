"""Charts of an audit: scores and p-values of users beside those of non-members.

Colours are the page's sentinels. Each chart has a width, so that letters stay readable on a phone.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.reports.charts import ACCENT, BROAD, INK, QUIET, TEXT, Chart, alt, disc, inline, ring

DOTS = 400
"""People up to whom each is a dot; of more there are bars."""

_CELL = 11
_TALL = 19  # cells, of the highest bar
_POINTS = 300  # p-values up to which each is a point


def person_among(known: Sequence[float], own: float, *, label: str, width: int = BROAD) -> Chart:
    """One person's score among those of non-members, each a dot; `label` stands beside it.

    Dots at the line or to its right score as high.
    """
    edges = _edges([*known, own], width // _CELL, through=own)
    counts = np.histogram(known, edges)[0]
    dotted = len(known) <= DOTS
    top = (max(int(counts.max()), 6) if dotted else _TALL) + 3.0
    x = _scores_axis(edges, width)
    y = alt.Y("height:Q", axis=None, scale=alt.Scale(domain=[0, top]))
    left = own > (edges[0] + edges[-1]) / 2
    person = inline([{"x": own, "height": 0.0, "top": top - 1.6}])
    said = inline([{"x": own, "height": top - 1.0, "label": label}])
    marks = [
        _dots(counts, edges) if dotted else _bars(counts, edges),
        person.mark_rule(stroke=ACCENT, strokeWidth=3).encode(x=x, y=y, y2="top:Q"),
        said.mark_text(
            fill=ACCENT, fontSize=14, fontWeight=600, align="right" if left else "left"
        ).encode(x=x, y=y, text="label:N"),
    ]
    first = marks[0].encode(x=x, y=y)
    height = round(_CELL * min(top, _TALL + 3))
    return alt.layer(first, *marks[1:]).properties(width=width, height=height)


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
    edges = _edges([*audited, *known], max(10, width // 22))
    values = []
    for scores, colour, sign in ((audited, ACCENT, 1), (known, QUIET, -1)):
        shares = np.histogram(scores, edges)[0] / len(scores)
        values += [
            {"x": a, "right": b, "share": sign * share, "zero": 0.0, "colour": colour}
            for a, b, share in zip(edges[:-1], edges[1:], shares.tolist(), strict=True)
            if share
        ]
    most = 1.25 * max(abs(value["share"]) for value in values)
    x = _scores_axis(edges, width, score=score)
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
    """P-values in rising order against what chance alone gives.

    Args:
        p_values: of the audited users, in rising order.
        called: whether each counts as a member: a disc; a ring does not.
        null: of the same users against models that never saw them, the thin line; may be empty.
        of: whose they are.
    """
    x = alt.X("share:Q", title=of, scale=alt.Scale(domain=[0, 1]),
              axis=alt.Axis(format="~p", tickCount=5))  # fmt: skip
    y = alt.Y("p:Q", title="p-value", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    chance = inline([{"share": s, "p": s} for s in (0.0, 1.0)])
    layers: list[Any] = [chance.mark_line(stroke=QUIET, strokeDash=[5, 4]).encode(x=x, y=y)]
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


def person_and_null(own: float, null: Sequence[float], rate: float, *, width: int = BROAD) -> Chart:
    """The p-value of one person beside those against models that never saw their text.

    A disc is the model that was audited, a ring a model of the auditor's own; shaded is where the
    person counts as a member, at or below `rate`.
    """
    target, others = "the audited model", "models that never saw it"
    x = alt.X("p:Q", title="p-value", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    y = alt.Y("of:N", title=None, scale=alt.Scale(domain=[target, others]), axis=None)
    band = inline([{"p": 0.0, "end": rate}])
    names = inline([{"p": 1.0, "of": of} for of in (target, others)])
    rings = inline({"p": p, "of": others} for p in null)
    layers = [
        ring(rings, 90, INK, fill="transparent", strokeWidth=1.8),
        disc(inline([{"p": own, "of": target}]), 90, strokeWidth=1.8),
    ]
    said = names.mark_text(fill=TEXT, fontSize=12, align="right", dy=-18).encode(text="of:N")
    return alt.layer(
        band.mark_rect(fill=ACCENT, opacity=0.16).encode(x=x, x2="end:Q"),
        *(layer.encode(x=x, y=y) for layer in (said, *layers)),
    ).properties(width=width, height=120)


def _dots(counts: NDArray[np.int64], edges: NDArray[np.float64]) -> Any:
    """As many dots as people, stacked in the middle of each bin."""
    middles = ((edges[:-1] + edges[1:]) / 2).tolist()
    stacks = zip(middles, counts.tolist(), strict=True)
    values = [{"x": x, "height": place + 0.6} for x, count in stacks for place in range(count)]
    return inline(values).mark_point(fill=QUIET, stroke=QUIET, strokeWidth=0, size=58, opacity=0.75)


def _bars(counts: NDArray[np.int64], edges: NDArray[np.float64]) -> Any:
    middles, heights = (edges[:-1] + edges[1:]) / 2, _TALL * counts / counts.max()
    bars = zip(middles.tolist(), heights.tolist(), strict=True)
    values = [{"x": x, "height": height} for x, height in bars]
    return inline(values).mark_bar(fill=QUIET, opacity=0.55, size=_CELL - 2)


def _rising(p_values: Sequence[float], *, most: int | None = None) -> list[dict[str, float]]:
    """Each at the share of those that are smaller, in the middle of its step; thinned to a few."""
    kept = len(p_values) if most is None else min(most, len(p_values))
    places = np.linspace(0, len(p_values) - 1, kept).astype(int).tolist()
    return [{"share": (n + 0.5) / len(p_values), "p": float(p_values[n])} for n in places]


def _edges(
    scores: Sequence[float], bins: int, *, through: float | None = None
) -> NDArray[np.float64]:
    """The edges of bins that hold all scores, one of them at a given place."""
    low, high = float(min(scores)), float(max(scores))
    step = 1.08 * ((high - low) or 1.0) / bins
    zero = low - step / 2 if through is None else through
    first, last = math.floor((low - zero) / step) - 1, math.ceil((high - zero) / step) + 1
    return zero + step * np.arange(first, last + 1, dtype=np.float64)


def _scores_axis(edges: NDArray[np.float64], width: int, *, score: str = "") -> Any:
    long, short = "how much better than expected the model knows the words", "better than expected"
    long, short = (score or long), (score or short)
    return alt.X(
        "x:Q",
        title=f"{long if width == BROAD else short} →",
        scale=alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False),
        axis=alt.Axis(grid=False, tickCount=max(3, width // 90)),
    )
