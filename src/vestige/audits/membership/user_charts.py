"""The chart of one person's score among those of non-members."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.reports.charts import ACCENT, BROAD, QUIET, Chart, alt, inline, score_axis, score_edges

DOTS = 400
"""Non-members up to whom each is a dot; more are bars."""
CELL, TALL = 11, 19
"""Pixels of a dot, and dots of the highest stack."""


def one_among(known: Sequence[float], own: float, *, label: str, width: int = BROAD) -> Chart:
    """One score, a line with a label, among those of the reference, each a dot.

    Dots to the right of the line have higher scores.
    """
    edges = score_edges([*known, own], width // CELL, through=own)
    counts = np.histogram(known, edges)[0]
    dotted = len(known) <= DOTS
    top = (max(int(counts.max()), 6) if dotted else TALL) + 3.0
    x = score_axis(edges, width)
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
