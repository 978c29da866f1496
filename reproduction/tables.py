"""A table of a paper with our numbers: saved as a run folder, printed as Markdown."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vestige.results import Measurement, Run


@dataclass(frozen=True, kw_only=True)
class Table(Measurement):
    """Rows with the paper's numbers next to ours.

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

    @classmethod
    def of(cls, run: Run) -> "Table":
        """The table in a run folder."""
        texts = {name: run.summary[name] for name in ("name", "title", "note")}
        return cls(**texts, columns=tuple(run.summary["columns"]), entries=tuple(run.rows))

    def markdown(self) -> str:
        """The table with its title and note, as GitHub reads it."""
        lines = [[name.replace("_", " ") for name in self.columns], ["---"] * len(self.columns)]
        lines += [[cell(entry.get(name)) for name in self.columns] for entry in self.entries]
        grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"### {self.title}\n\n{self.note}\n\n{grid}"


def markdown(tables: Iterable[Table]) -> str:
    """A page of tables."""
    return "\n\n".join(table.markdown() for table in tables) + "\n"


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
