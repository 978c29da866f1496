"""Counts of the verdicts, with Clopper-Pearson intervals at 95%."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from check_calibration.world import CORPORA, DEVELOPMENT
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.metrics.estimates import clopper_pearson

KINDS = ("clean", "wrong file", "recites text", "leaky")
RECITED = {"discoverable": 0.04, "openings": 1.0}
"""From which on a model is not clean, measured without Vestige: share of training passages that it
generates (2 of 50), and training texts that begin one of 10,000 samples."""

Rows = Sequence[dict[str, Any]]


def table(file: Path) -> str:
    """All tables of a file of rows."""
    rows = _rows(file)
    parts = {
        "Development corpora": [row for row in rows if row["corpus"] in DEVELOPMENT],
        "Held-out corpora": [row for row in rows if row["corpus"] not in DEVELOPMENT],
        "All corpora": rows,
    }
    told = [line for title, own in parts.items() if own for line in ("", title, *_section(own))]
    return "\n".join([f"{len(rows)} fine-tunes", *told])


def calibration(file: Path) -> dict[str, Any]:
    """What the report of a check says of its errors: clean fine-tunes with the right file, and
    leaky ones by copies."""
    rows = _rows(file)
    clean = [row for row in rows if kind_of(row) == "clean"]
    leaky = [row for row in rows if row["kind"] == "leaky"]
    return {
        "clean": {**_errors(clean), "open": sum(row["verdict"] == UNDECIDED for row in clean)},
        "leaky": {
            str(copies): _errors([row for row in leaky if row["copies"] == copies])
            for copies in sorted({row["copies"] for row in leaky})
        },
    }


def _errors(rows: Rows) -> dict[str, int]:
    return {"n": len(rows), "leak": sum(row["verdict"] == LEAK for row in rows)}


def _rows(file: Path) -> Rows:
    """The rows of a file, of which each number counts once."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return list({row["number"]: row for row in map(json.loads, lines)}.values())


def _section(rows: Rows) -> Iterator[str]:
    yield f"  {'':42}{'LEAK':>28}{'NO LEAK SHOWN':>28}{'UNDECIDED':>28}"
    for title, own in _groups(rows):
        if own:
            yield f"  {title:42}" + "".join(
                f"{_counted(own, verdict):>28}" for verdict in (LEAK, NO_LEAK, UNDECIDED)
            )
    yield from _blames(rows)
    yield from _costs(rows)


def _groups(rows: Rows) -> Iterator[tuple[str, Rows]]:
    """Clean and leaky, then each by what may matter."""
    for kind in KINDS:
        own = [row for row in rows if kind_of(row) == kind]
        yield kind, own
        for name in ("variant", "copies", "corpus", "base", "method", "epochs"):
            values = list(dict.fromkeys(sorted((row[name] for row in own), key=_rank)))
            for value in values if len(values) > 1 else ():
                yield f"  {kind}, {name} {value}", [row for row in own if row[name] == value]
        if kind == "leaky":
            for title, said in (("some memorized", True), ("none memorized", False)):
                yield (
                    f"  leaky, {title}",
                    [row for row in own if any(row["memorized"]["secrets"]) == said],
                )


def kind_of(row: Mapping[str, Any]) -> str:
    """Leaky, clean, given the wrong file, or without secrets but with text it can recite."""
    if row["kind"] == "leaky":
        return "leaky"
    after, before = row["memorized"], row["memorized_by_base"]
    if any(after[name] - before[name] >= least for name, least in RECITED.items()):
        return "recites text"
    return "wrong file" if row["variant"] == "wrong" else "clean"


def _rank(value: Any) -> tuple[int, Any]:
    return (CORPORA.index(value), "") if value in CORPORA else (0, value)


def _counted(rows: Rows, verdict: str) -> str:
    """As "2 of 16 (1.6 to 38.3%)"."""
    found = sum(row["verdict"] == verdict for row in rows)
    ends = clopper_pearson(found, len(rows))
    return f"{found} of {len(rows)} ({100 * ends.low:.1f} to {100 * ends.high:.1f}%)"


def _blames(rows: Rows) -> Iterator[str]:
    """Which stage says leak, by kind, and which checks leave a verdict undecided."""
    for kind in KINDS:
        own = [row for row in rows if kind_of(row) == kind]
        stages = Counter(
            name
            for row in own
            if row["verdict"] == LEAK
            for name, stage in row["stages"].items()
            if stage["state"] == "leak"
        )
        open_ = Counter(
            f"{name} {state}"
            for row in own
            if row["verdict"] == UNDECIDED
            for name, state in row["checks"].items()
            if state != "passed"
        )
        for title, counts in (("leaks by stage", stages), ("undecided, with checks", open_)):
            if counts:
                shown = ", ".join(f"{name}: {count}" for name, count in counts.most_common())
                yield f"  {kind}, {title}: {shown}"


def _costs(rows: Rows) -> Iterator[str]:
    for name, unit in (("seconds_fine_tune", "s"), ("seconds_check", "s"), ("peak_mib", "MiB")):
        values = [row[name] for row in rows]
        yield f"  {name}: median {median(values):.0f} {unit}, most {max(values):.0f} {unit}"
