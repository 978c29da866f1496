"""The tables of papers: functions declared with `@table`, computed once, and found again.

A paper is a folder with the module `tables`, and with data: `scales.toml` (the arguments of the
tables at each scale), `captions.toml` (titles, notes and columns) and `paper_NAME.csv` (the paper's
own numbers).
"""

import csv
import inspect
import string
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter

from reproduction.stages import MapFn, Work
from reproduction.tables import Table, load_table, markdown, read_table
from vestige import _validate, results
from vestige.data.writing import write_text
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
    """A table as it was declared with `@table`."""

    paper: str
    name: str
    caption: str
    make: Make
    remark: Callable[[Rows], str]
    chart: Callable[[Rows], str] | None

    @property
    def parameters(self) -> dict[str, TypeAdapter[Any]]:
        """The parameters of `make` behind the first one, with what reads their values."""
        hints = get_type_hints(self.make)
        names = list(inspect.signature(self.make).parameters)[1:]
        return {name: TypeAdapter(hints[name]) for name in names}

    def settings(self, scale: str) -> dict[str, Any]:
        """The arguments of `make` behind the first one at a scale, defaults included.

        They are those of the scale's section with the table's name, or of the whole scale.
        """
        of_scale = scales_of(self.paper)[scale]
        given = of_scale.get(self.name, of_scale)
        of = self.parameters
        if self.name in of_scale and (unknown := sorted(set(given) - set(of))):
            raise ValueError(f"{self.paper}/scales.toml: {self.name} takes no {unknown}")
        values = {name: of[name].validate_python(given[name]) for name in of if name in given}
        bound = inspect.signature(self.make).bind(None, **values)
        bound.apply_defaults()
        return {name: bound.arguments[name] for name in of}

    def configuration(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings as the run folder records them."""
        of = self.parameters
        plain = {name: of[name].dump_python(value, mode="json") for name, value in settings.items()}
        return {"settings": plain}


_TABLES: dict[str, dict[str, PaperTable]] = {paper: {} for paper in PAPERS}


def table(
    paper: str,
    *names: str,
    remark: Callable[[Rows], str] = lambda rows: "",
    chart: Callable[[Rows], str] | None = None,
) -> Callable[[_Make], _Make]:
    """Declare that a function computes the rows of a table, or of several that are alike.

    It takes a `Work` and, by name, what `scales.toml` holds for it; types are its annotations. The
    first name is that of the caption. `remark` is added to the note, `chart` is saved as SVG.
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


def reproduce(
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
    """Compute tables and figures of a paper; what is there already is found again.

    Args:
        paper, scale: of `PAPERS` and `SCALES`.
        directory: where stages, run folders and `tables.md` are kept.
        data, map_fn, monitor: see `Work`.
        tables: names, or ValueError; none: all.
        record: what the run folders say besides the configuration, such as the command.

    Raises:
        RunError: the directory holds a table of another configuration.
    """
    every = tables_of(paper)
    for name in tables:
        _validate.one_of(tuple(every), table=name)
    wanted = {name: one for name, one in every.items() if not tables or name in tables}
    settings = {name: one.settings(scale) for name, one in wanted.items()}
    configurations = {name: one.configuration(settings[name]) for name, one in wanted.items()}
    saved = directory / "results"
    done = {name: load_table(saved / name, configuration=configurations[name]) for name in wanted}
    with closing(Work(directory, data=data, map_fn=map_fn, monitor=monitor)) as work:
        for name, one in wanted.items():
            if done[name] is None:
                monitor.log(f"filling {name}")
                done[name] = made = _filled(one, work, settings[name])
                run = {**(record or {}), "configuration": configurations[name]}
                results.save(made, saved / name, run=run)
    found = [one for one in done.values() if one is not None]
    write_text(directory / "tables.md", markdown(_all_tables(saved, found)))
    return found


def _filled(of: PaperTable, work: Work, settings: Mapping[str, Any]) -> Table:
    """The table with its rows; its chart is written to the directory."""
    rows = list(of.make(work, **settings))
    if of.chart is not None:
        write_text(work.out / f"{of.name}.svg", of.chart(rows))
    title, note, columns = caption(of.paper, of.caption, settings)
    return Table(
        name=of.name,
        title=title,
        note=f"{note} {of.remark(rows)}".strip(),
        columns=columns or _scalar_columns(rows),
        entries=tuple(rows),
    )


def caption(
    paper: str, name: str, values: Mapping[str, object]
) -> tuple[str, str, tuple[str, ...]]:
    """A table's title, note and printed columns (none: all that hold no list).

    Names in braces are replaced by `values` or by texts above the sections of `captions.toml`; the
    columns `shown` above them follow a table's own.
    """
    read = _toml(paper, "captions.toml")
    own = read[name]
    parts = [own.get(key, "") for key in ("title", "note")]
    for key, text in read.items():
        if isinstance(text, str):
            parts = [part.replace(f"{{{key}}}", text) for part in parts]
    title, note = (_Caption().format(part, **values) for part in parts)
    columns = tuple(own.get("columns", ()))
    return title, note, (*columns, *read.get("shown", ())) if columns else ()


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
    found: dict[tuple[Value, ...], Row] = {}
    for row in rows:
        values = [value_of(cell) for cell in row]
        if len(row) != len(names) or tuple(values[:key]) in found:
            raise ValueError(f"paper_{table}.csv must have {names} and each key once, got {row}")
        found[tuple(values[:key])] = dict(zip(names[key:], values[key:], strict=True))
    return found


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
    """The scales of a paper by name, with `like` and "none" replaced by what they mean."""
    read = _toml(paper, "scales.toml")
    return {name: _resolved(read[name], read) for name in SCALES}


def _resolved(node: Any, every: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_resolved(one, every) for one in node]
    if not isinstance(node, dict):
        return node
    base = _resolved(every[node["like"]], every) if "like" in node else {}
    own = {name: _resolved(one, every) for name, one in node.items() if name != "like"}
    return {**base, **{name: None if one == "none" else one for name, one in own.items()}}


@cache
def _toml(paper: str, name: str) -> dict[str, Any]:
    return tomllib.loads(files("reproduction").joinpath(paper, name).read_text("utf-8"))


class _Caption(string.Formatter):
    """Formats several values one after the other."""

    def format_field(self, value: Any, format_spec: str) -> str:
        joined = ", ".join(map(str, value)) if isinstance(value, tuple) else value
        return str(super().format_field(joined, format_spec))


def _scalar_columns(rows: Rows) -> tuple[str, ...]:
    names = dict.fromkeys(key for row in rows for key in row)
    return tuple(
        name for name in names if not any(isinstance(row.get(name), list | tuple) for row in rows)
    )


def _all_tables(saved: Path, tables: Sequence[Table]) -> list[Table]:
    """These tables, and those that an earlier call saved beside them, by name."""
    by_name = {table.name: table for table in tables}
    for folder in saved.iterdir():
        if folder.name not in by_name and (folder / "run.json").is_file():
            by_name[folder.name] = read_table(results.load(folder))
    return [by_name[name] for name in sorted(by_name)]
