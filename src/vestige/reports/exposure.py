"""How exposed are the canaries? A run of `vestige exposure` as a table, a chart and a sentence."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vestige.reports.components.disclosure import printable

COLUMNS = ("copies", "canaries", "exposure", "interval", "other order", "interval")
"""Of the table: medians in bits; with ≥, bounds, where the references resolve no more."""

NEVER = "never planted"

_OF_A_GROUP = re.compile(r".*_(\d+_copies|planted|controls)(_low|_high|_is_bound)?")

_CHART = (
    "Median exposure in bits by how often canaries were planted (disc, with its 95 % interval; "
    "triangle: so much or more), of the same words in another order (ring), and of canaries never "
    "planted (dashed line, with its interval as a band); chance alone gives 1"
)


def exposure_parts(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> dict[str, Any]:
    """What the page's section says, apart from its chart; no phrase is in it."""
    return {
        "kind": "exposure",
        "title": "How exposed are the canaries?",
        "lede": describe_exposure(summary),
        "table": (COLUMNS, *exposure_table(rows, summary)),
        "chart_title": _CHART,
    }


def describe_exposure(summary: Mapping[str, Any]) -> str:
    """The verdict."""
    return printable(str(summary["verdict"]))


def exposure_table(
    rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> list[tuple[str, ...]]:
    """One row for each number of copies, then the controls; cells in the order of `COLUMNS`."""
    return [
        (
            name,
            f"{summary[f'canaries_{key}']:,}",
            _number(summary, "exposure", key),
            _interval(summary, "exposure", key),
            _number(summary, "shuffled_exposure", key),
            _interval(summary, "shuffled_exposure", key),
        )
        for name, key in _groups(rows)
    ]


def exposure_points(
    rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The points of the chart, one for each number of copies, and that of the controls."""

    def point(name: str, key: str) -> dict[str, Any]:
        median = float(summary[f"exposure_{key}"])
        ends = {end: summary[f"exposure_{key}_{end}"] for end in ("low", "high")}
        known = {end: median if value is None else float(value) for end, value in ends.items()}
        return {
            "copies": name,
            "exposure": median,
            "bound": bool(summary[f"exposure_{key}_is_bound"]),
            **known,
            "other": summary[f"shuffled_exposure_{key}"],
        }

    points = [point(name, key) for name, key in _groups(rows)]
    return points[:-1], points[-1]


def overall(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary without what the table and the sentence say already."""
    return {
        key: value
        for key, value in summary.items()
        if key != "verdict" and not _OF_A_GROUP.fullmatch(key)
    }


def _groups(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The name and key of each number of copies, rising, then of the controls."""
    copies = sorted({int(row["copies"]) for row in rows} - {0})
    return [*((f"{n:,}", f"{n}_copies") for n in copies), (NEVER, "controls")]


def _number(summary: Mapping[str, Any], measure: str, key: str) -> str:
    value, bound = (summary[f"{measure}_{key}{end}"] for end in ("", "_is_bound"))
    return "–" if value is None else f"{'≥ ' if bound else ''}{value:.2f}"


def _interval(summary: Mapping[str, Any], measure: str, key: str) -> str:
    low, high = (summary[f"{measure}_{key}_{end}"] for end in ("low", "high"))
    if low is None:
        return "–"
    return f"{low:.2f} or more" if high is None else f"{low:.2f} to {high:.2f}"
