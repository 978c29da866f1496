"""What changed since earlier runs: a table and a chart for a page or a card."""

from collections.abc import Sequence
from functools import partial

from vestige.audits.release.since import Change
from vestige.reports.blocks import Cell, Table
from vestige.reports.charts import (
    ACCENT,
    INK,
    QUIET,
    Chart,
    Figure,
    alt,
    disc,
    inline,
    ring,
    titled,
)
from vestige.reports.quantities import Measured
from vestige.reports.report import Report
from vestige.reports.words import NOTHING

TITLE = "What changed since the last release"
COLUMNS = ("question", "change", "then", "now", "difference")
KEY = (
    "Runs are matched by directory name and kind. Less is better in every row. Better and worse "
    "mean that the whole 95% interval of the difference is on one side of 0; no change shown does "
    "not mean unchanged. The two runs are treated as independent. A number without an interval is "
    "exact for what was read and says nothing about another training."
)
CAPTION = (
    "Rings: then. Discs: now. Lines: 95% intervals. Each row has its own axis; further left is "
    "better."
)


def blocks_of(changes: Sequence[Change]) -> tuple[Table | Figure, ...]:
    """A table with one row per change, and a chart of what was compared."""
    return (_table(changes), *_figures(changes))


def report_of_changes(changes: Sequence[Change]) -> Report:
    """The changes for a terminal."""
    words = [one.verdict for one in changes]
    counts = [f"{words.count(word)} {word}" for word in dict.fromkeys(words)]
    return Report(
        kind="changes",
        title=TITLE,
        evidence=(f"Of {len(words)} numbers: {', '.join(counts)}.",),
        blocks=blocks_of(changes),
    )


def _table(changes: Sequence[Change]) -> Table:
    return Table(title=TITLE, columns=COLUMNS, texts=2, rows=tuple(map(_row, changes)), key=KEY)


def _figures(changes: Sequence[Change]) -> tuple[Figure, ...]:
    compared = [one for one in changes if one.difference is not None]
    if not compared:
        return ()
    return (Figure(draw=partial(_dumbbells, compared), caption=CAPTION, slim=True),)


def _row(one: Change) -> tuple[str | Cell, ...]:
    quantity = one.quantity and f"{one.run}: {one.quantity}"
    return (
        Cell(
            text=one.question,
            notes=tuple(filter(None, (quantity or one.run, _words(one), one.why))),
        ),
        "no longer measured" if one.verdict == "gone" else one.verdict,
        _amount(one.then, one.unit),
        _amount(one.now, one.unit),
        _difference(one),
    )


def _words(one: Change) -> str:
    """The verdicts of the run, if they differ."""
    then, now = one.verdicts
    return f"{then or NOTHING} then, {now or NOTHING} now" if then != now else ""


def _amount(found: Measured | None, unit: str) -> str | Cell:
    if found is None:
        return NOTHING
    return Cell(text=found.amount(unit), notes=(found.interval,) if found.interval else ())


def _difference(one: Change) -> str | Cell:
    if one.difference is None:
        return NOTHING
    if one.low == one.high == one.difference:
        ends = ""
    elif one.low is None and one.high is None:
        ends = "interval unknown"
    elif one.low is None:
        ends = f"at most {one.high:+.4g}"
    else:
        ends = f"{one.low:+.4g} " + ("or more" if one.high is None else f"to {one.high:+.4g}")
    sign = f"{one.difference:+.4g}" if one.difference else "0"
    return Cell(text=sign, notes=(ends,) if ends else ())


def _dumbbells(compared: Sequence[Change], width: int) -> Chart:
    return alt.vconcat(*(_dumbbell(one, width - 40) for one in compared), spacing=14)


def _dumbbell(one: Change, width: int) -> Chart:
    assert one.now is not None
    assert one.then is not None
    scale = alt.Scale(zero=False, nice=True, padding=8)
    place = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[0, 3], nice=False))
    axis = alt.Axis(grid=False, tickCount=5, labelOverlap=True, title=one.unit or one.quantity)
    x = alt.X("x:Q", scale=scale, axis=axis)
    layers = []
    for found, y, colour in ((one.then, 2, QUIET), (one.now, 1, ACCENT)):
        low, high = (found.value if end is None else end for end in (found.low, found.high))
        chart = inline([{"x": found.value, "low": low, "high": high, "y": y}])
        span = chart.mark_rule(stroke=colour, strokeWidth=2)
        layers.append(span.encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q", y=place))
        mark = ring(chart, 90, INK, strokeWidth=2) if y == 2 else disc(chart, 90, colour)
        layers.append(mark.encode(x=x, y=place))
    title = titled(f"{one.run}: {one.verdict}", fontSize=12, limit=width)
    return alt.layer(*layers).properties(width=width, height=36, title=title)
