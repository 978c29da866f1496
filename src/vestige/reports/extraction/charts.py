"""Charts of extracted secrets: ranks among all, shares of guesses, defences, lengths and copies.

A chart has four sentinel colours only; series are told apart by dash and shape, and shade is
opacity.
"""

from collections.abc import Sequence
from math import log10
from statistics import fmean
from typing import Any

from vestige.reports.charts import ACCENT, INK, QUIET, TEXT, Chart, alt, inline, ring, titled
from vestige.reports.disclosure import printable
from vestige.reports.numbers import Row, decimal

_LINE = 34
_POWER = "datum.value < 1000 ? datum.label : '10^' + format(log(datum.value) / LN10, '.0f')"
CHANCE = "random guess"
_DARKEST = 0.62  # of a heat map's cell: text stays readable on it
_SERIES = ([1, 0], [6, 3], [2, 3], [9, 3, 2, 3], [4, 4])
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")


def ranks(points: Sequence[Row], *, width: int = 400) -> Chart:
    """The rank of every truth among all secrets, on a logarithmic axis.

    Args:
        points: label (of its line), rank, low, high, space, and planted (False for controls); lines
            stand in the order of their first point.

    Returns:
        A disc was planted, a ring never planted; the tick is what guessing needs on average.
    """
    labels = list(dict.fromkeys(_names_of(points)))
    values = [{**p, "aside": aside} for p, aside in zip(points, _aside(points), strict=True)]
    most = max(float(point["space"]) for point in points)
    axis = alt.Axis(values=_powers(most), labelExpr=_POWER if most > 1e6 else alt.Undefined)
    scale = alt.Scale(type="log", domain=[0.8, most * 1.25], nice=False)
    x = alt.X("rank:Q", title="rank of the truth (1: the first guess)", scale=scale, axis=axis)
    y = alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(labelLimit=250, grid=False))
    ends = {label: float(p["space"]) for label, p in zip(_names_of(points), points, strict=True)}
    lines = [
        {"label": label, "rank": 1.0, "space": space, "half": (space + 1) / 2}
        for label, space in ends.items()
    ]
    base, chart = (inline(data) for data in (lines, values))
    offset = alt.YOffset("aside:Q", scale=alt.Scale(domain=[-1, 1]))
    layers = alt.layer(
        base.mark_rule(stroke=QUIET, opacity=0.35).encode(x=x, x2="space:Q", y=y),
        base.mark_tick(color=QUIET, thickness=2, size=18).encode(x="half:Q", y=y),
        chart.mark_rule(stroke=ACCENT, strokeWidth=2, opacity=0.6).encode(
            x="low:Q", x2="high:Q", y=y, yOffset=offset
        ),
        *(_points(values, planted).encode(x=x, y=y, yOffset=offset) for planted in (True, False)),
    )
    return layers.properties(width=width, height=_LINE * len(labels) + 10)


def shares(certainties: Sequence[float], *, width: int = 400) -> Chart:
    """The best guesses' shares of the weight exp(-loss), best first, each in [0, 1]."""
    values = [{"place": place, "share": share} for place, share in enumerate(certainties, 1)]
    x = alt.X("place:O", title="guess, best first", axis=alt.Axis(labelAngle=0))
    y = alt.Y("share:Q", title="share of the weight", axis=alt.Axis(format="~p"),
              scale=alt.Scale(domain=[0, max(certainties) * 1.1]))  # fmt: skip
    bars = inline(values).mark_bar(fill=ACCENT, size=18)
    return bars.encode(x=x, y=y).properties(width=width, height=170)


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


def _points(values: Sequence[Row], planted: bool) -> Any:
    chart = inline(value for value in values if bool(value["planted"]) == planted)
    if planted:
        return chart.mark_point(fill=ACCENT, stroke=ACCENT, size=70, opacity=0.9)
    return ring(chart, 70, INK, fill="transparent", strokeWidth=1.8)


def _names_of(points: Sequence[Row]) -> list[str]:
    return [str(point["label"]) for point in points]


def _aside(points: Sequence[Row]) -> list[float]:
    """Where within its line each point stands, so that equal ranks do not hide each other."""
    number = {label: _names_of(points).count(label) for label in _names_of(points)}
    seen = dict.fromkeys(number, 0)
    found = []
    for label in _names_of(points):
        found.append(0.0 if number[label] == 1 else 0.5 - seen[label] / (number[label] - 1))
        seen[label] += 1
    return found


def _powers(most: float) -> list[float]:
    top = int(log10(most) + 1e-9)
    step = max(1, -(-top // 6))
    return [10.0**power for power in range(0, top + 1, step)]
