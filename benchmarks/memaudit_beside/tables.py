"""Counts of what both tools answered, with Clopper-Pearson intervals at 95 %."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from vestige.metrics.estimates import clopper_pearson

ABOUT = ("stage", "tool", "question", "copies", "epsilon", "score", "reference", "mistake", "class")
YES = ("alarm", "strict", "leaky", "refused")
PARTS = (
    ("detected", "of"),
    ("detected_controls", "controls"),
    ("found", "said"),
    ("found", "secrets"),
    ("found_unsaid", "unsaid"),
    ("completed", "parts"),
    ("completed_unsaid", "unsaid"),
    ("said", "of"),
    ("word for word", "of"),
    ("named", "texts"),
    ("planted seen by half", "of"),
)
MIDDLES = (
    "seconds",
    "one_measurement",
    "training_seconds",
    "auc",
    "exposure",
    "exposure_controls",
    "share_of_said",
    "share_of_unsaid",
    "share of planted 4-grams",
    "share of control 4-grams",
    "at_least",
)


def tables(files: Sequence[Path]) -> str:
    """A line a question: yeses of trainings, parts of canaries or secrets, medians."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            groups[tuple(row.get(name) for name in ABOUT)].append(row)
    return "\n".join(_line(about, rows) for about, rows in groups.items())


def _line(about: tuple[Any, ...], rows: Sequence[dict[str, Any]]) -> str:
    told = [f"{len(rows)} answers"]
    for name in YES:
        answers = [row[name] for row in rows if row.get(name) is not None]
        if answers:
            told.append(f"{name} {counted(sum(answers), len(answers))}")
    for part, whole in PARTS:
        both = [(row[part], row[whole]) for row in rows if _number(row, part, whole)]
        if sum(b for _, b in both):
            told.append(f"{part} {counted(sum(a for a, _ in both), sum(b for _, b in both))}")
    for name in MIDDLES:
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            told.append(f"{name} {median(values):.3g} ({min(values):.3g} to {max(values):.3g})")
    return f"{', '.join(str(one) for one in about if one is not None)}: {'; '.join(told)}"


def counted(part: int, whole: int) -> str:
    """A share with its interval, as "2 of 16 (1.6 to 38.3 %)"."""
    found = clopper_pearson(part, whole)
    return f"{part} of {whole} ({100 * found.low:.1f} to {100 * found.high:.1f} %)"


def _number(row: dict[str, Any], *names: str) -> bool:
    return all(isinstance(row.get(name), int) for name in names)
