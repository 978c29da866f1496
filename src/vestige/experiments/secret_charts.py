"""Figures 2 to 5 and Table 3 as pictures: the share of wrong words, by length, copies, defence."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert

ATTACKS = {"auto": "ours", "paper": "the paper's", "embedding": "trivial"}
_ORDER = ["none", "D", "ES", "CE", "D+ES", "ES+CE", "D+CE", "D+ES+CE"]


def length_chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Hamming distance per token by unknown words: a line for each attack, a panel a number of
    copies and canary; dashed: guessing.

    Args:
        rows: with canary, length, copies, attack, hamming, its ends and hamming_by_chance.

    Returns:
        SVG.
    """
    names = ("canary", "length", "copies", "hamming", "hamming_low", "hamming_high")
    values = [
        {name: row[name] for name in names}
        | {"attack": ATTACKS[row["attack"]], "chance": row["hamming_by_chance"]}
        for row in rows
    ]
    base = alt.Chart(alt.InlineData(values=values))
    x = alt.X("length:O", title="unknown words", axis=alt.Axis(labelAngle=0))
    y = alt.Y("hamming:Q", title="wrong words", scale=alt.Scale(domain=[0, 1]))
    color = alt.Color("attack:N", title="attack", sort=list(ATTACKS.values()))
    lines = base.mark_line(point=True).encode(x=x, y=y, color=color)
    bars = base.mark_rule(opacity=0.4).encode(
        x=x, y="hamming_low:Q", y2="hamming_high:Q", color=color
    )
    chance = base.mark_line(strokeDash=[4, 4], color="gray").encode(x=x, y="chance:Q")
    panels = alt.layer(lines, bars, chance).properties(width=150, height=140)
    return _svg(panels.facet(row="copies:O", column="canary:N"))


def defence_chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """A heat map of the Hamming distance per token: defences against canary and copies, a panel
    for each attack; 0.9 is what guessing reaches.

    Args:
        rows: with copies, defence, canary, attack and hamming.

    Returns:
        SVG.
    """
    values = [
        {
            "defence": row["defence"],
            "attack": ATTACKS[row["attack"]],
            "said": f"{row['canary']} × {row['copies']:,}",
            "hamming": row["hamming"],
        }
        for row in rows
    ]
    said = list(dict.fromkeys(value["said"] for value in values))
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("said:N", sort=said, title=None, axis=alt.Axis(labelAngle=-60)),
        y=alt.Y("defence:N", sort=_ORDER, title=None),
    )
    scale = alt.Scale(domain=[0, 0.9], scheme="viridis", clamp=True)
    fill = alt.Color("hamming:Q", title="wrong words (0.9: a guess)", scale=scale)
    numbers = base.mark_text(fontSize=9).encode(
        text=alt.Text("hamming:Q", format=".2f"),
        color=alt.condition("datum.hamming > 0.5", alt.value("black"), alt.value("white")),
    )
    panels = alt.layer(base.mark_rect().encode(color=fill), numbers).properties(width=300)
    return _svg(panels.facet(column=alt.Column("attack:N", title="attack")))


def _svg(chart: alt.FacetChart) -> str:
    svg: str = vl_convert.vegalite_to_svg(chart.to_dict(), allowed_base_urls=[])
    return svg
