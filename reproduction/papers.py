"""Tables of papers: functions declared with `@table`, computed once and saved.

A paper is a folder with the module `tables`, and with data: `scales.toml` (the arguments of the
tables at each scale), `captions.toml` (titles, notes and columns) and `paper_NAME.csv` (the paper's
own numbers).
"""

import csv
import inspect
import json
import string
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, create_model

from reproduction.stages import MapFn, Work
from reproduction.tables import Table, markdown
from vestige import _validate, results
from vestige.data.writing import write_text
from vestige.errors import RunError
from vestige.monitor import SILENT, Monitor

PAPERS = ("updates", "regularization", "nlu", "provenance")
SCALES = ("smoke", "small", "full")
Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
Value = str | int | float | None
Numbers = Mapping[tuple[Value, ...], Mapping[str, Any]]
"""Columns by the values of the key columns."""

Make = Callable[..., Iterable[Mapping[str, Any]]]
_Make = TypeVar("_Make", bound=Make)


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table declared with `@table`."""

    paper: str
    name: str
    caption: str
    make: Make
    remark: Callable[[Rows], str]
    chart: Callable[[Rows], str] | None

    @cached_property
    def schema(self) -> type[BaseModel]:
        """The parameters of `make` after the first."""
        hints = get_type_hints(self.make)
        fields: dict[str, Any] = {
            name: (hints[name], ... if parameter.default is parameter.empty else parameter.default)
            for name, parameter in list(inspect.signature(self.make).parameters.items())[1:]
        }
        return create_model(self.name, **fields)

    def settings(self, scale: str) -> dict[str, Any]:
        """The arguments of `make` after the first at a scale, defaults included.

        They are in the scale's section with the table's name, or in the section of the scale.
        """
        scale_section = scales_of(self.paper)[scale]
        section = scale_section.get(self.name, scale_section)
        names = self.schema.model_fields
        if self.name in scale_section and (unknown := sorted(set(section) - set(names))):
            raise ValueError(f"{self.paper}/scales.toml: {self.name} takes no {unknown}")
        return dict(self.schema.model_validate(section))

    def configuration(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings as the run folder records them."""
        return {"settings": self.schema.model_construct(**settings).model_dump(mode="json")}

    def compute(self, work: Work, settings: Mapping[str, Any]) -> Table:
        """The table with its rows; its chart is written to the folder."""
        rows = list(self.make(work, **settings))
        if self.chart is not None:
            write_text(work.out / f"{self.name}.svg", self.chart(rows))
        title, note, columns = caption(self.paper, self.caption, settings)
        return Table(
            name=self.name,
            title=title,
            note=f"{note} {self.remark(rows)}".strip(),
            columns=columns or _scalar_columns(rows),
            entries=tuple(rows),
        )


_TABLES: dict[str, dict[str, PaperTable]] = {paper: {} for paper in PAPERS}


def table(
    paper: str,
    *names: str,
    remark: Callable[[Rows], str] = lambda rows: "",
    chart: Callable[[Rows], str] | None = None,
) -> Callable[[_Make], _Make]:
    """Declare that a function computes the rows of a table, or of several similar ones.

    Its first argument is a `Work`; the others come from `scales.toml` by name, parsed by their
    annotations. The caption has the first name. `remark` is added to the note, `chart` is saved as
    SVG.
    """

    def declare(make: _Make) -> _Make:
        for name in names:
            _TABLES[paper][name] = PaperTable(
                paper=paper, name=name, caption=names[0], make=make, remark=remark, chart=chart
            )
        return make

    return declare


def tables_of(paper: str) -> Mapping[str, PaperTable]:
    """The tables of a paper, by name."""
    _validate.one_of(PAPERS, paper=paper)
    import_module(f"reproduction.{paper}.tables")
    return _TABLES[paper]


def settings_of(paper: str, table: str, scale: str) -> dict[str, Any]:
    """The arguments of a table at a scale."""
    return tables_of(paper)[table].settings(scale)


def compute_tables(
    paper: str,
    scale: str,
    directory: Path,
    *,
    data: Path | None = None,
    tables: Sequence[str] = (),
    record: Mapping[str, object] | None = None,
    map_fn: MapFn = map,
    monitor: Monitor = SILENT,
) -> list[Table]:
    """Compute tables and figures of a paper, except those that the directory already holds.

    Args:
        paper, scale: of `PAPERS` and `SCALES`.
        directory: for stages, run folders and `tables.md`.
        data, map_fn, monitor: see `Work`.
        tables: names, or ValueError; none: all.
        record: fields of the run folders besides the configuration, such as the command.

    Raises:
        RunError: the directory holds a table of another configuration.
    """
    declared = tables_of(paper)
    for name in tables:
        _validate.one_of(tuple(declared), table=name)
    selected = [table for name, table in declared.items() if not tables or name in tables]
    settings = {table.name: table.settings(scale) for table in selected}
    configurations = {table.name: table.configuration(settings[table.name]) for table in selected}
    saved = directory / "results"
    missing = [t for t in selected if not _is_saved(saved / t.name, configurations[t.name])]
    with closing(Work(directory, data=data, map_fn=map_fn, monitor=monitor)) as work:
        for table in missing:
            monitor.log(f"computing {table.name}")
            run = {**(record or {}), "configuration": configurations[table.name]}
            computed = table.compute(work, settings[table.name])
            results.save(computed, saved / table.name, run=run)
    folders = sorted(file.parent for file in saved.glob("*/run.json"))
    by_name = {folder.name: Table.of(results.load(folder)) for folder in folders}
    write_text(directory / "tables.md", markdown(by_name.values()))
    return [by_name[table.name] for table in selected]


def _is_saved(folder: Path, configuration: Mapping[str, object]) -> bool:
    """Whether a run folder exists; RunError if it has another configuration or is damaged."""
    if not folder.exists():
        return False
    recorded = results.load(folder).run.get("configuration")
    if recorded != json.loads(results.to_json(configuration)):
        raise RunError(
            f"{folder} was made with another configuration",
            remedy="Choose another --out, or remove that table to compute it again.",
        )
    return True


def caption(
    paper: str, name: str, values: Mapping[str, object]
) -> tuple[str, str, tuple[str, ...]]:
    """A table's title, note and printed columns (none: all that hold no list).

    Names in braces are replaced by `values` or by texts above the sections of `captions.toml`; the
    columns `shown` above them follow a table's own.
    """
    captions = _toml(paper, "captions.toml")
    section = captions[name]
    parts = [section.get(key, "") for key in ("title", "note")]
    for key, text in captions.items():
        if isinstance(text, str):
            parts = [part.replace(f"{{{key}}}", text) for part in parts]
    title, note = (_Caption().format(part, **values) for part in parts)
    columns = tuple(section.get("columns", ()))
    return title, note, (*columns, *captions.get("shown", ())) if columns else ()


class _Caption(string.Formatter):
    """Joins several values by commas."""

    def format_field(self, value: Any, format_spec: str) -> str:
        joined = ", ".join(map(str, value)) if isinstance(value, tuple) else value
        return str(super().format_field(joined, format_spec))


def _scalar_columns(rows: Rows) -> tuple[str, ...]:
    names = dict.fromkeys(key for row in rows for key in row)
    return tuple(
        name for name in names if not any(isinstance(row.get(name), list | tuple) for row in rows)
    )


def paper_numbers(paper: str, table: str, *, key: int) -> dict[tuple[Value, ...], Row]:
    """The rows of a paper's table by the values of its first `key` columns.

    In `paper_<table>.csv` an empty cell, which the paper leaves out, is None. ValueError if two
    rows have the same key, or a row has more or fewer cells than the first.

    Example:
        >>> paper_numbers("updates", "table1", key=4)["ptb", "rnn", "all-low", 50]
        {'score': 3.94}
    """
    text = files("reproduction").joinpath(paper, f"paper_{table}.csv").read_text("utf-8")
    names, *rows = csv.reader(text.splitlines())
    numbers: dict[tuple[Value, ...], Row] = {}
    for row in rows:
        values = [value_of(cell) for cell in row]
        if len(row) != len(names) or tuple(values[:key]) in numbers:
            raise ValueError(f"paper_{table}.csv must have {names} and each key once, got {row}")
        numbers[tuple(values[:key])] = dict(zip(names[key:], values[key:], strict=True))
    return numbers


def value_of(cell: str) -> Value:
    """A cell as a number where it reads as one; None where it is empty.

    Example:
        >>> [value_of(cell) for cell in ("12", "0.50", "", "all-low")]
        [12, 0.5, None, 'all-low']
    """
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell or None


@cache
def scales_of(paper: str) -> dict[str, Any]:
    """The scales of a paper by name, with `like` and "none" resolved."""
    sections = _toml(paper, "scales.toml")
    return {name: _resolved(sections[name], sections) for name in SCALES}


def _resolved(node: Any, sections: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_resolved(part, sections) for part in node]
    if not isinstance(node, dict):
        return node
    base = _resolved(sections[node["like"]], sections) if "like" in node else {}
    changed = {name: _resolved(part, sections) for name, part in node.items() if name != "like"}
    return base | {name: None if part == "none" else part for name, part in changed.items()}


@cache
def _toml(paper: str, name: str) -> dict[str, Any]:
    return tomllib.loads(files("reproduction").joinpath(paper, name).read_text("utf-8"))
