"""Charts of a comparison: leakage against utility, and leakage against copies.

Labels are next to their points. Lines differ in dashes; the accent colour marks the recommended
training.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from vestige.reports.charts import ACCENT, INK, QUIET, Chart, alt, disc, inline, ring
from vestige.reports.disclosure import printable
from vestige.reports.words import Row

LINE = 15
"""Least pixels between two labels."""

APART = 0.015
"""Relative distance between the points of two lines."""

DASHES = ([1, 0], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [12, 4])


def trade(rows: Sequence[Row], *, tolerance: float, width: int) -> Chart:
    """Mean exposure against test perplexity, each with its interval.

    Args:
        rows: of a comparison, each with exposure and test_perplexity; the undefended among them.
        tolerance: share of the undefended perplexity that counts as equal.
    """
    height, values = 320, [_trade_point(row) for row in rows]
    x_domain = _domain([v[k] for v in values for k in ("x", "x_low", "x_high")], least=0.12)
    y_domain = _domain([0.0, *(v[k] for v in values for k in ("y", "y_low", "y_high"))])
    scale = alt.Scale(domain=x_domain, nice=False, zero=False)
    axis = alt.Axis(grid=False, tickCount=8)
    x, x_low = (
        alt.X(f"{name}:Q", title="test perplexity", scale=scale, axis=axis)
        for name in ("x", "x_low")
    )
    y = alt.Y("y:Q", title="mean exposure, bits", scale=alt.Scale(domain=y_domain, nice=False))
    layers = [band.encode(x=x, x2="x2:Q") for band in _band(rows, tolerance, x_domain)]
    for value, row in zip(values, rows, strict=True):
        chart = inline([value])
        colour = ACCENT if row["recommended"] else INK
        layers += [
            chart.mark_rule(stroke=colour, strokeWidth=1.5).encode(x=x, y="y_low:Q", y2="y_high:Q"),
            chart.mark_rule(stroke=colour, strokeWidth=1.5).encode(x=x_low, x2="x_high:Q", y=y),
            _point(chart, row, colour).encode(x=x, y=y),
        ]
    labels = _labels(rows, values, x_domain, y_domain, height)
    return alt.layer(*layers, *labels).properties(width=width, height=height)


def repetitions(rows: Sequence[Row], *, width: int) -> Chart:
    """Mean exposure by copies planted, one line per training, with intervals."""
    height = 300
    points = [
        _copies_points(row, (place - len(rows) / 2) * APART) for place, row in enumerate(rows)
    ]
    flat = [value for line in points for value in line]
    y_domain = _domain([0.0, *(v[k] for v in flat for k in ("y", "y_low", "y_high"))])
    copies = sorted({value["copies"] for value in flat})
    x_domain = [copies[0] / 1.1, copies[-1] * 1.1]
    scale = alt.Scale(type="log", domain=x_domain, nice=False)
    axis = alt.Axis(values=copies, format="d", grid=False)
    x = alt.X("x:Q", title="copies planted", scale=scale, axis=axis)
    y = alt.Y("y:Q", title="mean exposure, bits", scale=alt.Scale(domain=y_domain, nice=False))
    layers: list[Any] = list(_chance_level(rows))
    for place, (row, values) in enumerate(zip(rows, points, strict=True)):
        chart = inline(values)
        colour = ACCENT if row["recommended"] else INK
        dash = DASHES[place % len(DASHES)]
        layers += [
            chart.mark_rule(stroke=colour, strokeWidth=1, opacity=0.5).encode(
                x=x, y="y_low:Q", y2="y_high:Q"
            ),
            chart.mark_line(stroke=colour, strokeWidth=2, strokeDash=dash).encode(x=x, y=y),
            _point(chart, row, colour, size=45).encode(x=x, y=y),
        ]
    ends = [line[-1] for line in points]
    spread = _apart([_pixel(end["y"], y_domain, height) for end in ends])
    for row, end, at in zip(rows, ends, spread, strict=True):
        value = {"x": x_domain[1], "y": _value(at, y_domain, height), "label": end["label"]}
        layers.append(_label(value, row, dx=6).encode(x=x, y=y, text="label:N"))
    return alt.layer(*layers).properties(width=width, height=height)


def _trade_point(row: Row) -> dict[str, Any]:
    perplexity, ratio = row["test_perplexity"], row["perplexity_ratio"]
    x_low, x_high = perplexity, perplexity
    if not row["undefended"] and row["perplexity_ratio_low"] is not None:
        base = perplexity / ratio
        x_low, x_high = base * row["perplexity_ratio_low"], base * row["perplexity_ratio_high"]
    y_low, y_high = _ends(row)
    ends = {"x_low": x_low, "x_high": x_high, "y_low": y_low, "y_high": y_high}
    return {"x": perplexity, "y": row["exposure"], "label": printable(row["name"]), **ends}


def _copies_points(row: Row, aside: float) -> list[dict[str, Any]]:
    """The points of a line, moved a little so that intervals do not overlap."""
    found = []
    for point in row["by_copies"]:
        low, high = _ends(point)
        ends = {"y_low": low, "y_high": high, "label": printable(row["name"])}
        place = {"copies": point["copies"], "x": point["copies"] * (1 + aside)}
        found.append({**place, "y": point["exposure"], **ends})
    return sorted(found, key=lambda value: value["x"])


def _ends(row: Row) -> tuple[float, float]:
    if row["exposure_low"] is None:
        return row["exposure"], row["exposure"]
    return row["exposure_low"], row["exposure_high"]


def _band(rows: Sequence[Row], tolerance: float, domain: list[float]) -> list[Any]:
    base = next((row["test_perplexity"] for row in rows if row["undefended"]), None)
    if base is None:
        return []
    low, high = max(domain[0], base / (1 + tolerance)), min(domain[1], base * (1 + tolerance))
    return [inline([{"x": low, "x2": high}]).mark_rect(fill=QUIET, opacity=0.13)]


def _chance_level(rows: Sequence[Row]) -> list[Any]:
    known = [row["never_planted"] for row in rows if row["never_planted"] is not None]
    if not known:
        return []
    level = inline([{"y": sum(known) / len(known)}])
    return [level.mark_rule(stroke=QUIET, strokeDash=[1, 4]).encode(y="y:Q")]


def _point(chart: Any, row: Row, colour: str, *, size: int = 90) -> Any:
    if row["undefended"]:
        return ring(chart, size + 20, colour, fill="transparent", strokeWidth=2)
    return disc(chart, size, colour)


def _labels(
    rows: Sequence[Row],
    values: Sequence[Row],
    x_domain: list[float],
    y_domain: list[float],
    height: int,
) -> list[Any]:
    """Names next to their points, clear of the intervals."""
    width = x_domain[1] - x_domain[0]
    edge, near = x_domain[0] + 0.7 * width, 0.06 * width
    layers = []
    for outwards in (1, -1):
        side = [i for i, v in enumerate(values) if (v["x"] <= edge) == (outwards == 1)]
        spread = _apart([_pixel(values[i]["y"], y_domain, height) for i in side])
        for i, at in zip(side, spread, strict=True):
            end, key = (max, "x_high") if outwards == 1 else (min, "x_low")
            x = end(v[key] for v in values if abs(v["x"] - values[i]["x"]) <= near)
            place = {"label": values[i]["label"], "x": x, "y": _value(at, y_domain, height)}
            mark = _label(
                place, rows[i], dx=8 * outwards, align="left" if outwards == 1 else "right"
            )
            layers.append(mark.encode(x="x:Q", y="y:Q", text="label:N"))
    return layers


def _label(value: Row, row: Row, *, dx: int, align: Literal["left", "right"] = "left") -> Any:
    return inline([value]).mark_text(
        align=align,
        baseline="middle",
        dx=dx,
        fill=ACCENT if row["recommended"] else INK,
        font="system-ui, sans-serif",
        fontSize=12,
        fontWeight="bold" if row["recommended"] else "normal",
        limit=190,
    )


def _apart(places: Sequence[float]) -> list[float]:
    """Positions in pixels, moved downwards if two are closer than a label."""
    moved = list(places)
    order = sorted(range(len(places)), key=lambda i: places[i])
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + LINE)
    return moved


def _domain(values: Sequence[float], *, least: float = 0.0) -> list[float]:
    low, high = min(values), max(values)
    room = max((high - low) * 0.08, least * abs(high) / 2, 1e-6)
    return [low if low == 0 else low - room, high + room]


def _pixel(value: float, domain: list[float], height: int) -> float:
    return height * (domain[1] - value) / (domain[1] - domain[0])


def _value(pixel: float, domain: list[float], height: int) -> float:
    return domain[1] - pixel / height * (domain[1] - domain[0])
