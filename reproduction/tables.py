"""A table of a paper with our numbers in it: saved as a run, printed as Markdown."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vestige import results
from vestige.errors import RunError
from vestige.results import Measurement, Run


@dataclass(frozen=True, kw_only=True)
class Table(Measurement):
    """Rows with the paper's numbers beside ours.

    Attributes:
        name: such as "table1".
        title: what it shows.
        note: how it was made and how it differs from the paper's.
        columns: those that are printed; the run folder holds all.
        entries: the rows.
    """

    name: str
    title: str
    note: str
    columns: tuple[str, ...]
    entries: tuple[Mapping[str, Any], ...]

    def summary(self) -> dict[str, object]:
        """What it is, and its size."""
        return {
            "name": self.name,
            "title": self.title,
            "note": self.note,
            "columns": list(self.columns),
            "rows": len(self.entries),
        }

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """The rows, all with the same columns."""
        columns = dict.fromkeys(key for entry in self.entries for key in entry)
        for entry in self.entries:
            yield {name: entry.get(name) for name in columns}


def load_table(directory: Path, *, configuration: Mapping[str, object]) -> Table | None:
    """The table that a run folder holds, or None where there is none yet.

    Raises:
        RunError: it was made with another configuration, or is damaged.
    """
    if not directory.exists():
        return None
    run = results.load(directory)
    if run.run.get("configuration") != json.loads(results.to_json(configuration)):
        raise RunError(
            f"{directory} was made with another configuration",
            remedy="Choose another --out, or remove that table to have it made again.",
        )
    return read_table(run)


def read_table(run: Run) -> Table:
    """The table that a run holds."""
    texts = {name: run.summary[name] for name in ("name", "title", "note")}
    return Table(**texts, columns=tuple(run.summary["columns"]), entries=tuple(run.rows))


def markdown(tables: Sequence[Table]) -> str:
    """The tables with their titles and notes, as GitHub reads it."""
    return "\n\n".join(_markdown(table) for table in tables) + "\n"


def cell(value: object) -> str:
    """A value as a table shows it.

    Example:
        >>> [cell(value) for value in (True, 2.0, 0.001, None, 120345, "a|b")]
        ['yes', '2.00', '0.001', '', '120,345', 'a\\\\|b']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}" if value == 0 or abs(value) >= 0.1 else f"{value:.2g}"
    if isinstance(value, int):
        return f"{value:,}" if value < 10**7 else f"{value:.1e}"
    return str(value).replace("|", "\\|")


def _markdown(table: Table) -> str:
    heads = " | ".join(name.replace("_", " ") for name in table.columns)
    lines = [f"| {heads} |", "| " + " | ".join("---" for _ in table.columns) + " |"]
    for entry in table.entries:
        lines.append("| " + " | ".join(cell(entry.get(name)) for name in table.columns) + " |")
    return f"### {table.title}\n\n{table.note}\n\n" + "\n".join(lines)
