"""Where does the truth stand among all secrets, and how far do guesses stand out? Two charts.

From plain points to SVG, in the sentinel colours of the page.
"""

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

import altair as alt

from vestige.reports.components.charts import ACCENT, INK, QUIET, to_svg

Row = Mapping[str, Any]
_LINE = 34
_POWER = "datum.value < 1000 ? datum.label : '10^' + format(log(datum.value) / LN10, '.0f')"


def ranks(points: Sequence[Row]) -> str:
    """The rank of every truth among all secrets, on a logarithmic axis.

    Args:
        points: label (of its line), rank, low, high, space, and said (False for controls); lines
            stand in the order of their first point.

    Returns:
        SVG. A disc was planted, a ring never said; the tick is what guessing needs on average.
    """
    labels = list(dict.fromkeys(str(point["label"]) for point in points))
    values = [
        {**point, "aside": aside} for point, aside in zip(points, _aside(points), strict=True)
    ]
    most = max(float(point["space"]) for point in points)
    axis = alt.Axis(values=_powers(most), labelExpr=_POWER if most > 1e6 else alt.Undefined)
    scale = alt.Scale(type="log", domain=[0.8, most * 1.25], nice=False)
    x = alt.X("rank:Q", title="rank of the truth (1: the first guess)", scale=scale, axis=axis)
    y = alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(labelLimit=250, grid=False))
    ends = {label: float(p["space"]) for label, p in zip(_labels(points), points, strict=True)}
    lines = [
        {"label": label, "rank": 1.0, "space": space, "half": (space + 1) / 2}
        for label, space in ends.items()
    ]
    base, chart = (alt.Chart(alt.InlineData(values=data)) for data in (lines, values))
    offset = alt.YOffset("aside:Q", scale=alt.Scale(domain=[-1, 1]))
    layers = alt.layer(
        base.mark_rule(stroke=QUIET, opacity=0.35).encode(x=x, x2="space:Q", y=y),
        base.mark_tick(color=QUIET, thickness=2, size=18).encode(x="half:Q", y=y),
        chart.mark_rule(stroke=ACCENT, strokeWidth=2, opacity=0.6).encode(
            x="low:Q", x2="high:Q", y=y, yOffset=offset
        ),
        *(
            _points([v for v in values if bool(v["said"]) == said], said).encode(
                x=x, y=y, yOffset=offset
            )
            for said in (True, False)
        ),
    )
    return to_svg(layers, height=_LINE * len(labels) + 10, width=400)


def shares(certainties: Sequence[float]) -> str:
    """The best guesses' shares of the weight exp(-loss), best first.

    Args:
        certainties: at least one, in [0, 1].
    """
    values = [{"place": place, "share": share} for place, share in enumerate(certainties, 1)]
    x = alt.X("place:O", title="guess, best first", axis=alt.Axis(labelAngle=0))
    y = alt.Y("share:Q", title="share of the weight", axis=alt.Axis(format="~p"),
              scale=alt.Scale(domain=[0, max(certainties) * 1.1]))  # fmt: skip
    bars = alt.Chart(alt.InlineData(values=values)).mark_bar(fill=ACCENT, size=18)
    return to_svg(bars.encode(x=x, y=y), height=170, width=400)


def _points(values: Sequence[Row], said: bool) -> Any:
    chart = alt.Chart(alt.InlineData(values=[dict(value) for value in values]))
    if said:
        return chart.mark_point(fill=ACCENT, stroke=ACCENT, size=70, opacity=0.9)
    return chart.mark_point(stroke=INK, fill="transparent", strokeWidth=1.8, size=70, opacity=1)


def _labels(points: Sequence[Row]) -> list[str]:
    return [str(point["label"]) for point in points]


def _aside(points: Sequence[Row]) -> list[float]:
    """Where within its line each point stands, so that equal ranks do not hide each other."""
    number = {label: _labels(points).count(label) for label in _labels(points)}
    seen = dict.fromkeys(number, 0)
    found = []
    for label in _labels(points):
        found.append(0.0 if number[label] == 1 else 0.5 - seen[label] / (number[label] - 1))
        seen[label] += 1
    return found


def _powers(most: float) -> list[float]:
    top = int(log10(most) + 1e-9)
    step = max(1, -(-top // 6))
    return [10.0**power for power in range(0, top + 1, step)]
