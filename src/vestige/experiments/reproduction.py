"""From the tables of a paper to run directories: train what is missing, fill, save."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from vestige import _validate, results
from vestige.data.atomic_write import write_text
from vestige.experiments.settings import Plan
from vestige.experiments.snapshots import train_all
from vestige.experiments.tables import Table, load_table, markdown, read_table

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One table of a paper.

    Attributes:
        title: what it shows.
        note: how it was made.
        columns: that are printed; empty: all that hold no list.
        folder: of its snapshots; two parts of the same settings may share one.
        settings: the configuration that it depends on.
        plan: (directory for snapshots, folder of corpora) -> trainings and rows.
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


def reproduce(
    parts: Mapping[str, Part],
    directory: Path,
    *,
    data: Path | None,
    run: Mapping[str, object],
    map_fn: Callable[..., Iterable[Path]] = map,
    say: Callable[[str], None] = lambda line: None,
) -> list[Table]:
    """Fill tables; what is there already is found again.

    Args:
        parts: tables by name.
        directory: holds a folder of snapshots for each table, `results` with a run directory
            for each, and `tables.md`.
        data: the folder of corpora.
        run: what the run directories record besides the configuration.
        map_fn: `map`, or one over processes, for trainings that do not wait for one another.
        say: told in a line what is being done.

    Raises:
        RunError: the directory holds a table or training of another configuration.
    """
    saved = directory / "results"
    asked = {name: {"settings": _settings(part.settings)} for name, part in parts.items()}
    done = {name: load_table(saved / name, configuration=asked[name]) for name in parts}
    plans = {
        name: part.plan(directory / part.folder, data)
        for name, part in parts.items()
        if done[name] is None
    }
    trainings = [training for plan in plans.values() for training in plan.trainings]
    train_all(trainings, map_fn=map_fn, say=say)
    for name, plan in plans.items():
        say(f"filling {name}")
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
