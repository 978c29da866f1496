"""Which canaries did the model complete? A run of `vestige complete` as a table and a sentence."""

from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any

from vestige.metrics.rates import Rate, rate

COLUMNS = ("copies", "canaries", "greedy", "interval", "beam", "interval", "kept", "prefix needed")
"""Of the table: rates are shares of the canaries, the prefix is a median in tokens."""

NEVER, OTHER_ORDER = "never planted", "in another order"


def completion_parts(
    rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> dict[str, Any]:
    """What the page's section says, apart from its chart."""
    return {
        "kind": "completion",
        "title": "Does the model complete the canaries?",
        "lede": describe_completion(summary),
        "table": (COLUMNS, *completion_table(rows, confidence=summary["confidence"])),
        "chart_title": "Share of canaries whose whole rest greedy decoding gives, by how often "
        f"they were planted (disc, with its {_percent(summary['confidence'])} interval), and the "
        "share that is the beam’s best continuation (ring)",
    }


def describe_completion(summary: Mapping[str, Any]) -> str:
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


def completion_table(
    rows: Sequence[Mapping[str, Any]], *, confidence: float
) -> list[tuple[str, ...]]:
    """One row for each number of copies, then the controls; cells in the order of `COLUMNS`.

    Args:
        rows: of a `Completion`.
        confidence: of the intervals.
    """
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


def completion_points(
    rows: Sequence[Mapping[str, Any]], *, confidence: float
) -> list[dict[str, Any]]:
    """One point of the chart for each number of copies and kind of control."""
    points = []
    for name, group in _groups(rows):
        greedy = _rate(group, "greedy", confidence)
        points.append(
            {
                "copies": name,
                "rate": greedy.rate,
                "low": greedy.interval.low,
                "high": greedy.interval.high,
                "beam": _rate(group, "beam_best", confidence).rate,
            }
        )
    return points


def _groups(
    rows: Sequence[Mapping[str, Any]],
) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """The rows of each number of copies, fewest first, then those of each kind of control."""
    planted = [row for row in rows if row["kind"] == "canary"]
    copies = sorted({int(row["copies"]) for row in planted})
    groups = [(f"{n:,}", [row for row in planted if row["copies"] == n]) for n in copies]
    for kind, name in (("control", NEVER), ("shuffled", OTHER_ORDER)):
        groups.append((name, [row for row in rows if row["kind"] == kind]))
    return [(name, group) for name, group in groups if group]


def _rate(group: Sequence[Mapping[str, Any]], by: str, confidence: float) -> Rate:
    found = rate([row[by] for row in group], confidence=confidence)
    if found is None:
        raise ValueError("a group must have rows")
    return found


def _cells(found: Rate) -> tuple[str, str]:
    low, high = found.interval
    return _percent(found.rate), f"{100 * low:.1f} to {100 * high:.1f} %"


def _needed(group: Sequence[Mapping[str, Any]]) -> str:
    """The median prefix; a text that only itself gives away counts as its own length."""
    needed = [
        len(row["tokens"]) if row["prefix_needed"] is None else int(row["prefix_needed"])
        for row in group
    ]
    return f"{median_low(needed)} of {median_low([len(row['tokens']) for row in group])}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %".replace(".0 %", " %")
