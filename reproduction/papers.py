"""The tables of papers: declared with `@table`, computed once, and found again.

A paper is a folder with the module `tables`, which declares its tables, and with data:
`scales.toml` (what is computed at each scale), `captions.toml` (titles, notes and columns) and
`paper_NAME.csv` (the paper's own numbers).
"""

import csv
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter

from reproduction.runner import MapFn, Trial, run_trials
from reproduction.tables import Table, load_table, markdown, read_table
from vestige import _validate, results
from vestige.data.writing import write_text
from vestige.monitor import SILENT, Monitor
from vestige.training.shadow_jobs import ShadowJob
from vestige.training.shadows import train_shadows

PAPERS = ("updates", "regularization", "nlu", "provenance")
SCALES = ("smoke", "small", "full")
Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
Value = str | int | float | None
Numbers = Mapping[tuple[Value, ...], Mapping[str, Any]]
"""Columns by the values of the key columns."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a table is made.

    Attributes:
        trials: made first, each once for all tables.
        shadows: target and shadow models of audits, trained next.
        rows: then computes the table.
        values: of the names in braces in the caption.
        remark: what the rows say, added to the note.
        chart: an SVG of the rows, saved beside the table.
    """

    trials: Sequence[Trial] = ()
    shadows: Sequence[ShadowJob] = ()
    rows: Callable[[], Iterable[Mapping[str, Any]]]
    values: Mapping[str, object] = field(default_factory=dict)
    remark: Callable[[Rows], str] = lambda rows: ""
    chart: Callable[[Rows], str] | None = None


Make = Callable[[Any, Path, Path | None], Plan]
_Make = TypeVar("_Make", bound=Make)


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table as it was declared with `@table`."""

    paper: str
    name: str
    caption: str
    section: str
    folder: str
    make: Make

    def settings(self, scale: str) -> Any:
        """The first argument of `make`, read from the scale's section of `scales.toml`."""
        given = scales_of(self.paper)[scale]
        wanted = next(iter(get_type_hints(self.make).values()))
        return TypeAdapter(wanted).validate_python(given[self.section] if self.section else given)


_TABLES: dict[str, dict[str, PaperTable]] = {paper: {} for paper in PAPERS}


def table(
    paper: str, *names: str, section: str | None = None, folder: str | None = None
) -> Callable[[_Make], _Make]:
    """Declare that a function plans a table, or several that are alike.

    The function takes its settings, the directory for trials and the folder of corpora. The type
    of the settings is that of its annotation.

    Args:
        paper: one of `PAPERS`.
        names: of the tables; the first one names the caption.
        section: of the scale, which holds the settings; "": the whole scale. Default: the name.
        folder: of the trials, below the output folder. Default: the first name.
    """

    def declare(make: _Make) -> _Make:
        for name in names:
            _TABLES[paper][name] = PaperTable(
                paper=paper,
                name=name,
                caption=names[0],
                section=name if section is None else section,
                folder=names[0] if folder is None else folder,
                make=make,
            )
        return make

    return declare


def tables_of(paper: str) -> Mapping[str, PaperTable]:
    """The tables of a paper, by name."""
    _validate.one_of(PAPERS, paper=paper)
    import_module(f"reproduction.{paper}.tables")
    return _TABLES[paper]


def settings_of(paper: str, table: str, scale: str) -> Any:
    """What a table is computed from, at a scale."""
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
        paper: one of `PAPERS`.
        scale: one of `SCALES`.
        directory: where trials, run folders and `tables.md` are kept.
        data: the folder of corpora; smoke needs none.
        tables: names; none: all.
        record: what the run folders say besides the configuration, such as the command.
        map_fn: `map`, or one over processes, for trials that do not wait for one another.
        monitor: gets what is being done.

    Raises:
        ValueError: there is no table of a name.
        RunError: the directory holds a table or trial of another configuration.
    """
    every = tables_of(paper)
    for name in tables:
        _validate.one_of(tuple(every), table=name)
    wanted = {name: one for name, one in every.items() if not tables or name in tables}
    settings = {name: one.settings(scale) for name, one in wanted.items()}
    configurations = {name: {"settings": _plain(one)} for name, one in settings.items()}
    saved = directory / "results"
    done = {name: load_table(saved / name, configuration=configurations[name]) for name in wanted}
    plans = {
        name: one.make(settings[name], directory / one.folder, data)
        for name, one in wanted.items()
        if done[name] is None
    }
    trials = [trial for plan in plans.values() for trial in plan.trials]
    run_trials(trials, map_fn=map_fn, monitor=monitor)
    for name, plan in plans.items():
        monitor.log(f"filling {name}")
        train_shadows(plan.shadows, map_fn=map_fn, say=monitor.log)
        done[name] = made = _filled(wanted[name], plan, directory)
        run = {**(record or {}), "configuration": configurations[name]}
        results.save(made, saved / name, run=run)
    found = [one for one in done.values() if one is not None]
    write_text(directory / "tables.md", markdown(_all_tables(saved, found)))
    return found


def _filled(of: PaperTable, plan: Plan, directory: Path) -> Table:
    """The table with its rows; its chart is written to the directory."""
    rows = list(plan.rows())
    if plan.chart is not None:
        write_text(directory / f"{of.name}.svg", plan.chart(rows))
    title, note, columns = caption(of.paper, of.caption, plan.values)
    return Table(
        name=of.name,
        title=title,
        note=f"{note} {plan.remark(rows)}".strip(),
        columns=columns or _scalar_columns(rows),
        entries=tuple(rows),
    )


def caption(
    paper: str, name: str, values: Mapping[str, object]
) -> tuple[str, str, tuple[str, ...]]:
    """A table's title, note and printed columns (none: all that hold no list).

    Args:
        paper: its folder holds `captions.toml`.
        name: a section of the file.
        values: of the names in braces. Texts above the sections are values as well; the columns
            `shown` above them follow a table's own.
    """
    read = _toml(paper, "captions.toml")
    texts = {key: text.format(**values) for key, text in read.items() if isinstance(text, str)}
    own = read[name]
    title, note = (own.get(key, "").format(**values, **texts) for key in ("title", "note"))
    columns = tuple(own.get("columns", ()))
    return title, note, (*columns, *read.get("shown", ())) if columns else ()


def paper_numbers(paper: str, table: str, *, key: int) -> dict[tuple[Value, ...], Row]:
    """The rows of a paper's table, from `paper_<table>.csv` in its folder.

    Args:
        paper: the folder.
        table: names the file.
        key: so many of the first columns name a row.

    Returns:
        By the key columns' values, the other columns by name. What reads as a number is one, and
        an empty cell, which the paper leaves out, is None.

    Raises:
        ValueError: two rows have the same key, or a row has more or fewer cells than the first.

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


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


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
