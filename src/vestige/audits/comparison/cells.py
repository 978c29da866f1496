"""Measures of each training as cells of tables: a value, notes, and the bar of its interval."""

from collections.abc import Callable, Sequence
from typing import Any

from vestige.reports.blocks import Cell
from vestige.reports.blocks import bar as interval_bar
from vestige.reports.disclosure import printable
from vestige.reports.words import Row

UNKNOWN = "–"
COLUMNS = ("leakage", "test perplexity", "fairness between users", "guarantee", "cost")


def measures(row: Row, rows: Sequence[Row], tolerance: float) -> tuple[Cell, ...]:
    """Cells of a training, in the order of `COLUMNS`; all `rows` set the axes of the bars."""
    utility = _utility(row, rows, tolerance)
    return _leakage(row, rows), utility, _fairness(row, rows), _privacy(row), _cost(row)


def _leakage(row: Row, rows: Sequence[Row]) -> Cell:
    if row["exposure"] is None:
        return Cell(text=UNKNOWN)
    known = _known(rows, "exposure")
    reference = next((one["exposure"] for one in rows if one["undefended"]), None)
    completed = _rate(row, "completion")
    return Cell(
        text=f"{row['exposure']:.1f} bits",
        notes=(f"{completed} completed",) if completed else (),
        bar=interval_bar(
            row, "exposure", (min(0.0, *known), max(1.0, *known)), reference=reference
        ),
    )


def _utility(row: Row, rows: Sequence[Row], tolerance: float) -> Cell:
    if row["test_perplexity"] is None:
        return Cell(text=UNKNOWN)
    known, band = _known(rows, "perplexity_ratio"), (1 / (1 + tolerance), 1 + tolerance)
    low, high = min([band[0] - 0.02, *known]), max([band[1] + 0.02, *known])
    ratio = row["perplexity_ratio"]
    note = f"{100 * row['test_accuracy']:.1f}% right"
    bar = interval_bar(row, "perplexity_ratio", (low, high), reference=1.0, band=band)
    return Cell(
        text=f"{row['test_perplexity']:.1f}",
        notes=(note if row["undefended"] else f"{100 * (ratio - 1):+.1f}% · {note}",),
        bar=None if row["undefended"] else bar,
    )


def _fairness(row: Row, rows: Sequence[Row]) -> Cell:
    if row["gap"] is None:
        return Cell(text=UNKNOWN)
    reach = max([1.0, *map(abs, _known(rows, "gap"))])
    return Cell(
        text=f"{row['gap']:+.1f} points",
        notes=(f"small {row['low_drop']:+.1f} · large {row['top_drop']:+.1f}",),
        bar=interval_bar(row, "gap", (-reach, reach), reference=0.0),
    )


def _privacy(row: Row) -> Cell:
    if row["epsilon"] is None:
        private = row["defence"] in ("dp-sgd", "dp-fedavg")
        text, notes = "none", ["see the report of its training"] if private else []
    else:
        text, notes = f"ε = {row['epsilon']:.3g}", [f"δ = {_tiny(row['delta'])} per {row['unit']}"]
    if row["empirical_epsilon"] is not None:
        refuted = " refutes it" if row["audit_verdict"] == "violated" else ""
        notes.append(f"measured {_at_least(row['empirical_epsilon'])}{refuted}")
    return Cell(text=text, notes=tuple(map(printable, notes)))


def _cost(row: Row) -> Cell:
    """Steps and tokens, and seconds; trainings are not compared by seconds."""
    if row["steps"] is None:
        return Cell(text=UNKNOWN)
    notes = [] if row["tokens"] is None else [f"{row['tokens']:,d} tokens read"]
    notes += [] if row["seconds"] is None else [f"{row['seconds']:,.3g} s"]
    if not row["undefended"] and row["memory_ratio"] is not None:
        notes.append(f"memory × {row['memory_ratio']:.2f}")
    return Cell(text=f"{row['steps']:,d} steps", notes=tuple(notes))


def all_numbers(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Every number with its interval, one column per training; a row of one cell begins a group."""
    table: list[tuple[str, ...]] = [("", *(printable(row["name"]) for row in rows))]
    for title, lines in _NUMBERS.items():
        found = [
            (name, [_shown(row, key, form) for row in rows])
            for name, key, form in lines
            if key not in ADDED or any(key in row for row in rows)
        ]
        if title.startswith("Leakage"):
            found += _by_copies(rows)
        kept = [(name, *(cell or UNKNOWN for cell in cells)) for name, cells in found if any(cells)]
        table += [(title,), *kept] if kept else []
    return table


ADDED = {"empirical_assumes"}
"""Columns that older runs do not have."""

_NUMBERS = {
    "Leakage, in bits or as a share": (
        ("exposure of canaries", "exposure", "ends .2f"),
        ("… in another order", "shuffled", "ends .2f"),
        ("… never planted", "never_planted", "ends .2f"),
        ("change against undefended", "exposure_change", "ends +.2f"),
        ("completed", "completion", "rate"),
        ("… never planted", "completion_control", "rate"),
    ),
    "Utility": (
        ("test perplexity", "test_perplexity", ".2f"),
        ("over undefended", "perplexity_ratio", "ends .3f"),
        ("next word right", "test_accuracy", ".1%"),
    ),
    "Fairness, in points of perplexity": (
        ("loss of users with most documents", "top_drop", "ends +.2f"),
        ("loss of users with fewest", "low_drop", "ends +.2f"),
        ("gap", "gap", "ends +.2f"),
        ("loss against documents (Spearman)", "correlation", "ends +.2f"),
        ("p-value", "p_value", "p"),
    ),
    "Privacy": (
        ("claimed ε", "epsilon", ".4g"),
        ("δ", "delta", "tiny"),
        ("protects", "unit", "text"),
        ("measured ε, at least", "empirical_epsilon", ".2f"),
        ("… largest measurable", "empirical_ceiling", ".2f"),
        ("… assuming", "empirical_assumes", "text"),
        ("… by a score threshold", "threshold_epsilon", ".2f"),
        ("… for", "audit_unit", "text"),
        ("ε claimed for the same unit", "audit_claim", ".4g"),
        ("the claim is", "audit_verdict", "text"),
    ),
    "Cost": (
        ("trainings", "trainings", "d"),
        ("steps", "steps", ",d"),
        ("tokens read", "tokens", ",d"),
        ("epochs over each copy", "presentations_per_copy", ".1f"),
        ("peak memory, MiB", "peak_memory_mib", ",.0f"),
        ("seconds", "seconds", ",.1f"),
    ),
}
"""Groups of lines: name, key, and format."""


def _shown(row: Row, key: str, form: str) -> str:
    if form == "rate":
        return _rate(row, key)
    if row[key] is None:
        return ""
    if form.startswith("ends "):
        return _with_ends(row, key, form.removeprefix("ends "))
    words: dict[str, Callable[[Any], str]] = {"text": printable, "tiny": _tiny, "p": _p_value}
    return words[form](row[key]) if form in words else _number(row[key], form)


def _by_copies(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """Exposure and completion at each number of copies."""
    found = []
    lines = (("exposure", "exposure", "ends .2f"), ("completed", "completion", "rate"))
    for name, key, form in lines:
        for n in sorted({point["copies"] for row in rows for point in row["by_copies"]}):
            points = [[p for p in row["by_copies"] if p["copies"] == n] for row in rows]
            cells = [_shown(point[0], key, form) if point else "" for point in points]
            found.append((f"{name}, planted {n} ×", cells))
    return found


def _with_ends(row: Row, key: str, form: str) -> str:
    value, low, high = row[key], row[f"{key}_low"], row[f"{key}_high"]
    if value is None:
        return ""
    plain = form.lstrip("+")
    return f"{value:{form}}" + ("" if low is None else f" ({low:{plain}} to {high:{plain}})")


def _rate(row: Row, key: str) -> str:
    if not row[f"{key}_trials"]:
        return ""
    low, high = (_percent(row[f"{key}_{end}"]) for end in ("low", "high"))
    return f"{row[f'{key}_completed']} of {row[f'{key}_trials']} ({low} to {high}%)"


def _percent(share: float) -> str:
    """Percent without its sign; two digits below ten."""
    return f"{100 * share:.0f}" if share >= 0.1 else f"{100 * share:.2g}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


def _p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _tiny(value: float) -> str:
    return f"{value:.2g}".replace("e-0", "e-")


def _at_least(value: float | None) -> str:
    return "" if value is None else f"≥ {value:.2f}"


def _known(rows: Sequence[Row], key: str) -> list[float]:
    """All values of a measure and their ends."""
    values = (row[f"{key}{end}"] for row in rows for end in ("", "_low", "_high"))
    return [value for value in values if value is not None]
