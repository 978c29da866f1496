"""Figure 1: what each token of a canary gained, given those before it."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert


def profile_chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Gain by position, a line for each canary and number of copies.

    Args:
        rows: with pattern, copies, position (from 1) and gain.

    Returns:
        SVG. All-low canaries are dashed, as in the paper.
    """
    kept = ("pattern", "copies", "position", "gain")
    values = [{name: row[name] for name in kept} for row in rows]
    patterns = list(dict.fromkeys(row["pattern"] for row in values))
    dashes = [[6, 4] if pattern == "all-low" else [1, 0] for pattern in patterns]
    dash = alt.Scale(domain=patterns, range=dashes)
    chart = alt.Chart(alt.InlineData(values=values)).mark_line(point=True)
    chart = chart.encode(
        x=alt.X("position:O", title="token", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("gain:Q", title="differential score given the prefix"),
        color=alt.Color("copies:O", title="copies"),
        strokeDash=alt.StrokeDash("pattern:N", title="pattern", scale=dash),
    )
    spec = chart.properties(width=420, height=280).to_dict()
    svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return svg
