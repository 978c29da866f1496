"""Charts of the papers' tables of extracted secrets: defences, lengths and copies.

Series differ in dash and shape, and shade is opacity: a chart has four colours only.
"""

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

from vestige.reports.charts import (
    ACCENT,
    INK,
    QUIET,
    TEXT,
    Chart,
    Figure,
    alt,
    inline,
    titled,
)
from vestige.reports.disclosure import printable
from vestige.reports.numbers import Row, decimal

CHANCE = "random guess"
_DARKEST = 0.62  # of a heat map's cell: text stays readable on it
_SERIES = ([1, 0], [6, 3], [2, 3], [9, 3, 2, 3], [4, 4])
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")


def table_figures(rows: Sequence[Row]) -> tuple[Figure, ...]:
    """The charts of a table of defences, or of accuracies by length and copies; none for others."""
    keys = set[str]().union(*(row.keys() for row in rows))
    if not {"canary", "copies", "attack", "hamming", "hamming_by_chance"} <= keys:
        return ()
    if "defence" in keys:
        return _defence_figures(rows)
    return _curve_figures(rows) if {"length", "accuracy"} <= keys else ()


def _defence_figures(rows: Sequence[Row]) -> tuple[Figure, ...]:
    figures = []
    for attack in dict.fromkeys(str(row["attack"]) for row in rows):
        own = [row for row in rows if str(row["attack"]) == attack and row["hamming"] is not None]
        if own:
            caption = (
                f"Share of words that are wrong under the attack “{printable(attack)}”, by defence "
                "and copies. The stronger the colour, the more of the secret; a point marks what "
                "guessing may reach as well (its interval holds the baseline, the last line). "
                "Beside: what the defence costs."
            )
            figures.append(Figure(draw=partial(_heat_map, own), caption=caption))
    return tuple(figures)


def _curve_figures(rows: Sequence[Row]) -> tuple[Figure, ...]:
    captions = {
        "hamming": "Share of words that are wrong, by copies planted; the dotted line is guessing",
        "accuracy": "Share of secrets that come back whole, by copies planted",
    }
    figures = []
    for dataset in dict.fromkeys(row.get("dataset") for row in rows):
        own = [row for row in rows if row.get("dataset") == dataset]
        told = (
            "n: unknown words." if dataset is None else f"n: unknown words; {printable(dataset)}."
        )
        for measure, caption in captions.items():
            if any(row.get(measure) is not None for row in own):
                draw = partial(_curves, own, measure)
                figures.append(Figure(draw=draw, caption=f"{caption}. {told}"))
    return tuple(figures)


def _heat_map(rows: Sequence[Row], _: int) -> Chart:
    return heat_map(rows)


def _curves(rows: Sequence[Row], measure: str, _: int) -> Chart:
    return curves(rows, measure=measure)


def heat_map(rows: Sequence[Row]) -> Chart:
    """Words wrong by defence, canary and copies; shade is what is gained over guessing.

    Args:
        rows: of one attack, with defence, canary, copies, hamming with hamming_low and
            hamming_high (or None), hamming_by_chance, intent_accuracy and slot_f1 (or None).

    Returns:
        A point marks what guessing may reach too: the interval holds the baseline. Utility
        stands beside, the baseline below.
    """
    shown = [row for row in rows if row.get("hamming") is not None]
    defences = [printable(name) for name in dict.fromkeys(str(row["defence"]) for row in shown)]
    canaries = list(dict.fromkeys(str(row["canary"]) for row in shown))
    order = [*defences, CHANCE]
    panels = [_heat(shown, canary, order, first=canary == canaries[0]) for canary in canaries]
    utility = _utility(shown, order)
    parts = [*panels, *([utility] if utility else [])]
    return alt.hconcat(*parts, spacing=10).resolve_scale(x="independent")


def curves(rows: Sequence[Row], *, measure: str = "hamming") -> Chart:
    """Accuracy or words wrong by copies; a panel for each canary and length, a line an attack.

    Args:
        rows: with canary, length, copies, attack, accuracy, hamming, hamming_by_chance.
        measure: "accuracy" or "hamming".

    Returns:
        The dotted line is what guessing reaches.
    """
    shown = [row for row in rows if row.get(measure) is not None]
    attacks = sorted(dict.fromkeys(str(row["attack"]) for row in shown), key=_ours_first)
    canaries = list(dict.fromkeys(str(row["canary"]) for row in shown))
    lengths = sorted({int(row["length"]) for row in shown})
    copies = sorted({int(row["copies"]) for row in shown})
    lines = []
    for length in lengths:
        panels = [
            _panel(
                [r for r in shown if r["length"] == length and str(r["canary"]) == canary],
                measure, attacks, copies,
                title=f"{printable(canary)}, n = {length}", left=canary == canaries[0],
            )
            for canary in canaries
        ]  # fmt: skip
        lines.append(alt.hconcat(*panels, spacing=22))
    return alt.vconcat(*lines, spacing=14)


def _heat(rows: Sequence[Row], canary: str, order: Sequence[str], *, first: bool) -> Any:
    own = [row for row in rows if str(row["canary"]) == canary]
    copies = sorted({int(row["copies"]) for row in own})
    cells = [_cell(row) for row in own]
    level = fmean(row["hamming_by_chance"] for row in own)
    cells += [{"defence": CHANCE, "copies": n, "text": decimal(level), "gain": 0.0} for n in copies]
    x = alt.X("copies:O", sort=copies, title="copies", axis=alt.Axis(labelAngle=0, orient="bottom"))
    y = _names(order, labels=first)
    chart = inline(cells).encode(x=x, y=y)
    shades = alt.Scale(domain=[0, 1], range=[0.02, _DARKEST])
    shade = alt.Opacity("gain:Q", scale=shades, legend=None)
    return alt.layer(
        chart.mark_rect(fill=ACCENT, stroke=QUIET, strokeOpacity=0.3).encode(opacity=shade),
        chart.mark_text(fill=TEXT, fontSize=12).encode(text="text:N"),
    ).properties(width=54 * len(copies), height=26 * len(order), title=_title(printable(canary)))


def _cell(row: Row) -> dict[str, Any]:
    level, value = float(row["hamming_by_chance"]), float(row["hamming"])
    low, high = row.get("hamming_low"), row.get("hamming_high")
    by_chance = low is not None and high is not None and low <= level <= high
    gain = min(1.0, max(0.0, 1 - value / level)) if level else 0.0
    return {
        "defence": printable(str(row["defence"])),
        "copies": int(row["copies"]),
        "text": decimal(value) + (" ·" if by_chance else ""),
        "gain": gain,
    }


def _utility(rows: Sequence[Row], order: Sequence[str]) -> Any | None:
    """Intent accuracy and slot F1 beside the defences, means over all that was measured."""
    cells = []
    for key, name in (("intent_accuracy", "intents"), ("slot_f1", "slot F1")):
        for defence in order:
            own = [row for row in rows if printable(str(row["defence"])) == defence]
            known = [float(row[key]) for row in own if row.get(key) is not None]
            if known:
                cells.append({"defence": defence, "of": name, "text": decimal(fmean(known), 3)})
    if not cells:
        return None
    x = alt.X("of:O", sort=["intents", "slot F1"], title=None, axis=alt.Axis(labelAngle=0))
    chart = inline(cells).mark_text(fill=TEXT, fontSize=12)
    return chart.encode(x=x, y=_names(order, labels=False), text="text:N").properties(
        width=120, height=26 * len(order), title=_title("utility")
    )


def _names(order: Sequence[str], *, labels: bool) -> Any:
    axis = alt.Axis(ticks=False, domain=False) if labels else None
    return alt.Y("defence:O", sort=list(order), title=None, axis=axis,
                 scale=alt.Scale(domain=list(order)))  # fmt: skip


def _panel(
    rows: Sequence[Row],
    measure: str,
    attacks: Sequence[str],
    copies: Sequence[int],
    *,
    title: str,
    left: bool,
) -> Any:
    values = [
        {"copies": int(r["copies"]), "y": float(r[measure]), "attack": printable(str(r["attack"]))}
        for r in rows
    ]
    scale = alt.Scale(type="log", domain=[copies[0] / 1.3, copies[-1] * 1.3], nice=False)
    axis = alt.Axis(values=list(copies), format="d", grid=False)
    x = alt.X("copies:Q", title=None, scale=scale, axis=axis)
    name = {"hamming": "words wrong", "accuracy": "whole secrets"}[measure] if left else None
    axis = alt.Axis(tickCount=5, labels=left, titlePadding=12)
    y = alt.Y("y:Q", title=name, scale=alt.Scale(domain=[0, 1]), axis=axis)
    names = [printable(attack) for attack in attacks]

    def told_apart(by: Any, values: Sequence[Any]) -> Any:
        scale = alt.Scale(domain=names, range=[values[n % len(values)] for n in range(len(names))])
        return by("attack:N", title="attack", scale=scale)

    chart = inline(values).encode(x=x, y=y, color=told_apart(alt.Color, (ACCENT, INK, QUIET)))
    points = chart.mark_point(size=38, opacity=1, strokeWidth=1.6)
    layers = [
        chart.mark_line(strokeWidth=2).encode(strokeDash=told_apart(alt.StrokeDash, _SERIES)),
        points.encode(shape=told_apart(alt.Shape, _SHAPES)),
    ]
    levels = [float(r["hamming_by_chance"]) for r in rows if r.get("hamming_by_chance") is not None]
    if measure == "hamming" and levels:
        level = inline([{"y": fmean(levels)}])
        layers.insert(0, level.mark_rule(stroke=QUIET, strokeDash=[1, 4]).encode(y="y:Q"))
    return alt.layer(*layers).properties(width=175, height=110, title=_title(title))


def _ours_first(attack: str) -> tuple[bool, bool, str]:
    return attack != "auto", attack != "paper", attack


def _title(text: str) -> Any:
    return titled(text, frame="group", fontSize=12, fontWeight="normal")
