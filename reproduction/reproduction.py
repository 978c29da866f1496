"""From the tables of a paper to run folders: make the trials, fill the tables, save."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from reproduction.runner import MapFn, Trial, run_trials
from reproduction.tables import Table, load_table, markdown, read_table
from vestige import _validate, results
from vestige.data.writing import write_text
from vestige.monitor import SILENT, Monitor

Rows = Sequence[Mapping[str, Any]]
Scale = TypeVar("Scale")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a table comes to be.

    Attributes:
        trials: made first.
        rows: then fills the table.
    """

    trials: Sequence[Trial] = ()
    rows: Callable[[], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One table of a paper.

    Attributes:
        title: what it shows.
        note: how it was made.
        columns: that are printed; empty: all that hold no list.
        folder: of its trials; parts that have trials in common share one.
        settings: the configuration that it depends on.
        plan: (directory for trials, folder of corpora) -> trials and rows.
        remark: what the rows say, added to the note.
        draw: an SVG of the rows, saved beside the table.
    """

    title: str
    note: str
    folder: str
    settings: Any
    plan: Callable[[Path, Path | None], Plan]
    columns: tuple[str, ...] = ()
    remark: Callable[[Rows], str] = lambda rows: ""
    draw: Callable[[Rows], str] | None = None


class Caption(TypedDict):
    """What a table of a paper is called and says, and the columns that are printed."""

    title: str
    note: str
    columns: tuple[str, ...]


def caption(paper: str, table: str, **values: object) -> Caption:
    """The caption of a table, from `tables.toml` in the paper's folder.

    Args:
        paper: the folder in `experiments`.
        table: a section of the file.
        values: what stands in place of names in braces. Texts above the sections, in which such
            names stand too, are values as well.

    Example:
        >>> caption("updates", "figure1")["title"]
        'Figure 1: gain of each token of a canary, given those before it'
    """
    file = files("reproduction").joinpath(paper, "tables.toml")
    read = tomllib.loads(file.read_text("utf-8"))
    texts = {name: text.format(**values) for name, text in read.items() if isinstance(text, str)}
    own = read[table]
    title, note = (own[name].format(**values, **texts) for name in ("title", "note"))
    return Caption(title=title, note=note, columns=tuple(own.get("columns", ())))


def run_paper(
    parts_of: Callable[[Scale], Mapping[str, Part]],
    scale: Scale,
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
        parts_of: the paper's tables at a scale, by name.
        scale: the paper's SMOKE, SMALL or FULL.
        directory: where trials, run folders and `tables.md` are kept.
        data: the folder of corpora; SMOKE needs none.
        tables: names of `parts_of`; none: all.
        record: what the run folders say besides the configuration, such as the command.
        map_fn: `map`, or one over processes, for trials that do not wait for one another.
        monitor: told what is being done.

    Raises:
        ValueError: there is no table of a name.
        RunError: the directory holds a table or trial of another configuration.
    """
    parts = choose(parts_of(scale), tables)
    return reproduce(parts, directory, data=data, run=record or {}, map_fn=map_fn, monitor=monitor)


def reproduce(
    parts: Mapping[str, Part],
    directory: Path,
    *,
    data: Path | None,
    run: Mapping[str, object],
    map_fn: MapFn = map,
    monitor: Monitor = SILENT,
) -> list[Table]:
    """Fill tables; see `run_paper` for the arguments."""
    saved = directory / "results"
    asked = {name: {"settings": _settings(part.settings)} for name, part in parts.items()}
    done = {name: load_table(saved / name, configuration=asked[name]) for name in parts}
    plans = {
        name: part.plan(directory / part.folder, data)
        for name, part in parts.items()
        if done[name] is None
    }
    trials = [trial for plan in plans.values() for trial in plan.trials]
    run_trials(trials, map_fn=map_fn, monitor=monitor)
    for name, plan in plans.items():
        monitor.log(f"filling {name}")
        part, rows = parts[name], list(plan.rows())
        if part.draw is not None:
            write_text(directory / f"{name}.svg", part.draw(rows))
        table = Table(
            name=name,
            title=part.title,
            note=f"{part.note} {part.remark(rows)}".strip(),
            columns=part.columns or _scalar_columns(rows),
            entries=tuple(rows),
        )
        results.save(table, saved / name, run={**run, "configuration": asked[name]})
        done[name] = table
    tables = [table for table in done.values() if table is not None]
    write_text(directory / "tables.md", markdown(_all_tables(saved, tables)))
    return tables


def choose(parts: Mapping[str, Part], names: Sequence[str]) -> dict[str, Part]:
    """The parts of some names, or all where none is named.

    Raises:
        ValueError: there is no part of a name.
    """
    for name in names:
        _validate.one_of(tuple(parts), table=name)
    return {name: part for name, part in parts.items() if not names or name in names}


def _settings(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [_settings(item) for item in value] if isinstance(value, tuple) else value


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
