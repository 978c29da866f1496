"""Canaries that the model completes from their first words."""

from collections.abc import Sequence
from statistics import median_low
from typing import Any

from vestige.metrics.rates import Rate, rate
from vestige.reports.charts import ACCENT, Chart, Figure, alt, by_copies, disc, ring
from vestige.reports.numbers import Row
from vestige.reports.report import Report, lines
from vestige.reports.tables import Table
from vestige.reports.words import pairs
from vestige.results import Run

COLUMNS = ("copies", "canaries", "greedy", "interval", "beam", "interval", "kept", "prefix needed")
"""Of the table: rates are shares of the canaries, the prefix is a median in tokens."""

NEVER, OTHER_ORDER = "never planted", "in another order"
_IN_THE_TABLE = "verdict|claim|(greedy|beam_best|beam_kept|control|shuffled)_.*"
LIMITS = (
    "A canary that is not completed is not thereby safe: a longer prefix, a wider beam, "
    "sampling, or a look at the probabilities may still give it away (see its exposure).",
    "Intervals take canaries as drawn alike and each by itself. They say nothing about "
    "another training of the same kind: repeat it with other seeds for that.",
    "Of canaries that begin alike, greedy decoding completes one at most.",
)


def completion_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `Completion`; no phrase is in it."""
    confidence = run.summary["confidence"]
    points = completion_points(run.rows, confidence=confidence)
    figure = Figure(
        draw=lambda width: completions(points, width=width),
        caption="Share of canaries whose whole rest greedy decoding gives, by how often they were "
        f"planted (disc, with its {_percent(confidence)} interval), and the share that is the "
        "beam’s best continuation (ring).",
        points=len(points),
        slim=True,
    )
    table = Table(
        title="Completed canaries by copies",
        columns=COLUMNS,
        rows=tuple(completion_table(run.rows, confidence=confidence)),
        key="Shares of the canaries with their intervals; “kept” is anywhere in the beam, and the "
        "prefix a median in tokens.",
    )
    return Report(
        kind="completion",
        title="Does the model complete the canaries?",
        evidence=lines(describe_completion(run.summary)),
        blocks=(figure, table) if points else (table,),
        facts=pairs(run.summary, show_secrets=show_secrets, left_out=_IN_THE_TABLE),
        limits=LIMITS,
    )


def describe_completion(summary: Row) -> str:
    """The rate of completion, its interval and the controls beside it, as a sentence."""
    prefix = int(summary["prefix"])
    given = "the first token" if prefix == 1 else f"the first {prefix} tokens"
    controls = [
        f"{int(summary[f'{key}_completed'])} of {int(summary[f'{key}_trials'])} {name}"
        for key, name in (("control", "never planted"), ("shuffled", "in another order"))
        if summary[f"{key}_trials"]
    ]
    beside = f" Controls: {' and '.join(controls)}." if controls else ""
    if not summary["greedy_trials"]:
        return f"No canary was planted.{beside}"
    done, tried = int(summary["greedy_completed"]), int(summary["greedy_trials"])
    return (
        f"Given {given} of each, the model says the whole rest of {done} of {tried} canaries: "
        f"{_percent(summary['greedy_rate'])}, "
        f"{_percent(summary['confidence'])} interval {_percent(summary['greedy_low'])} to "
        f"{_percent(summary['greedy_high'])}.{beside}"
    )


def completion_table(rows: Sequence[Row], *, confidence: float) -> list[tuple[str, ...]]:
    """One row for each number of copies, then the controls; cells in the order of `COLUMNS`."""
    return [
        (
            name,
            str(len(group)),
            *_cells(_rate(group, "greedy", confidence)),
            *_cells(_rate(group, "beam_best", confidence)),
            _cells(_rate(group, "beam_kept", confidence))[0],
            _needed(group),
        )
        for name, group in _groups(rows)
    ]


def completion_points(rows: Sequence[Row], *, confidence: float) -> list[dict[str, Any]]:
    """One point of the chart for each number of copies and kind of control."""
    points = []
    for name, group in _groups(rows):
        greedy, beam = (_rate(group, by, confidence) for by in ("greedy", "beam_best"))
        low, high = greedy.interval
        one = {"copies": name, "rate": greedy.rate, "low": low, "high": high, "beam": beam.rate}
        points.append(one)
    return points


def _groups(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of each number of copies, fewest first, then those of each kind of control."""
    planted = [row for row in rows if row["kind"] == "canary"]
    copies = sorted({int(row["copies"]) for row in planted})
    groups = [(f"{n:,}", [row for row in planted if row["copies"] == n]) for n in copies]
    for kind, name in (("control", NEVER), ("shuffled", OTHER_ORDER)):
        groups.append((name, [row for row in rows if row["kind"] == kind]))
    return [(name, group) for name, group in groups if group]


def _rate(group: Sequence[Row], by: str, confidence: float) -> Rate:
    found = rate([row[by] for row in group], confidence=confidence)
    if found is None:
        raise ValueError("a group must have rows")
    return found


def _cells(found: Rate) -> tuple[str, str]:
    low, high = found.interval
    return _percent(found.rate), f"{100 * low:.1f} to {100 * high:.1f} %"


def _needed(group: Sequence[Row]) -> str:
    """The median prefix; a text that only itself gives away counts as its own length."""
    sizes = [len(row["tokens"]) for row in group]
    asked = [row["prefix_needed"] for row in group]
    needed = [size if n is None else int(n) for n, size in zip(asked, sizes, strict=True)]
    return f"{median_low(needed)} of {median_low(sizes)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %".replace(".0 %", " %")


def completions(points: Sequence[Row], *, width: int) -> Chart:
    """Share of canaries completed, by how often they were planted.

    Args:
        points: copies (a label), rate with its ends low and high, and beam; in their order.

    Returns:
        A disc with its interval is greedy decoding, a ring the beam's best.
    """
    y = alt.Y("low:Q", title="share completed", scale=alt.Scale(domain=[0, 1]))
    chart = by_copies(points)
    return alt.layer(
        chart.mark_rule(stroke=ACCENT, strokeWidth=2).encode(y=y, y2="high:Q"),
        ring(chart, 150).encode(y="beam:Q"),
        disc(chart, 55).encode(y="rate:Q"),
    ).properties(width=width, height=220)
