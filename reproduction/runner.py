"""Trials: computations of an experiment that are made once, kept whole or not at all, found again.

A trial is a frozen description with a directory of its own. `trial.json` in it is written last; it
has what decides the trial, the result, and a SHA-256 of itself and of every file that belongs to
the result. A killed trial is made again and finds there what it has left, such as the checkpoint of
a training; one that is damaged is made again as well; one of another description is never passed
off as this one.
"""

import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from vestige.data.files import read_object
from vestige.data.writing import LOCK, alone, discard, write_text
from vestige.errors import RunError
from vestige.monitor import SILENT, Monitor
from vestige.results import to_json

FORMAT, RECORD = 1, "trial.json"
_LONG = 2_000
"""Characters of a field's description above which its SHA-256 stands in its place."""

MapFn = Callable[..., Iterable[Any]]
"""`map`, or one over processes, or over the nodes of a cluster that share the directories."""


@dataclass(frozen=True, kw_only=True)
class Trial(ABC):
    """One computation. Its fields decide it, except those that are declared with compare=False.

    A field may be a number, a text, a dataclass, a corpus or vocabulary (anything with a
    `fingerprint`), another trial, which is then made first, and sequences and mappings of these.

    Attributes:
        directory: the trial's own.
        outputs: files and folders in it that belong to the result; the rest may be removed.
    """

    outputs: ClassVar[tuple[str, ...]] = ()
    directory: Path = field(compare=False)

    @abstractmethod
    def make(self) -> Mapping[str, object]:
        """Compute the result; files go to `directory`, where an interrupted call left its own.

        Returns:
            What `result` gives: anything that JSON can hold.
        """

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What decides the trial, field by field, as `trial.json` has it."""
        named = {name: _short(_described(value)) for name, value in _decisive(self).items()}
        return {"format": FORMAT, "trial": type(self).__name__, **named}

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits, equal for equal descriptions wherever they are kept."""
        return _digest(self.identity)[:16]

    @property
    def needed(self) -> Iterator["Trial"]:
        """The trials that this one is made from."""
        return _trials_in(_decisive(self))

    @property
    def kept(self) -> bool:
        """Whether the directory holds this trial, finished and whole.

        Raises:
            RunError: it holds a trial of another description.
        """
        return self._record() is not None

    def result(self) -> dict[str, Any]:
        """What `make` returned.

        Raises:
            RunError: the trial is not finished, is damaged, or is another one.
        """
        record = self._record()
        if record is None:
            raise RunError(
                f"{self.directory} holds no finished trial",
                remedy="Run the experiment again: it makes what is missing.",
            )
        return dict(record["result"])

    def _record(self, monitor: Monitor = SILENT) -> dict[str, Any] | None:
        """What is kept; None where nothing is, or nothing that is whole, which is logged."""
        if not (self.directory / RECORD).exists():
            return None
        try:
            record = read_object(self.directory / RECORD, error=RunError, remedy="Make it again.")
        except RunError:
            record = {}
        if record.pop("sha256", None) == _digest(record):
            if record["identity"] != self.identity:
                raise RunError(
                    f"{self.directory} holds a trial of another configuration: "
                    f"{_difference(record['identity'], self.identity)}",
                    remedy="Choose another --out for another scale, or remove that trial.",
                )
            if record["files"] == self._files():
                return record
        monitor.log(f"{self.directory} is damaged: its trial is made again")
        return None

    def _files(self) -> dict[str, str]:
        """SHA-256 of every file of the outputs, by path in the directory."""
        places = [self.directory / name for name in self.outputs]
        inner = [file for place in places for file in (place, *place.rglob("*")) if file.is_file()]
        return {
            file.relative_to(self.directory).as_posix(): _sha256(file) for file in sorted(inner)
        }


def run_trials(trials: Iterable[Trial], *, map_fn: MapFn = map, monitor: Monitor = SILENT) -> None:
    """Make those trials that are not kept, each after those that it needs.

    Args:
        trials: which; one that comes twice is made once.
        map_fn: what maps a function over trials that do not wait for one another.
        monitor: told how many are made, where each was, and what was damaged.

    Raises:
        RunError: a directory holds a trial of another description, or another process makes it.
        ValueError: two different trials share a directory.
    """
    waiting: dict[Path, Trial] = {}
    for trial in trials:
        _add_missing(trial, waiting, monitor)
    total = len(waiting)
    with monitor.progress("trials") as step:
        while waiting:
            held = set(waiting)
            ready = [t for t in waiting.values() if not any(n.directory in held for n in t.needed)]
            for directory in map_fn(make_trial, ready):
                del waiting[directory]
                monitor.log(f"finished {directory} ({total - len(waiting)} of {total})")
                step(total - len(waiting), total)


def make_trial(trial: Trial) -> Path:
    """Make one trial in its directory, or find it there.

    Returns:
        The directory.

    Raises:
        RunError: the directory holds another trial, or another process writes into it.
    """
    with alone(trial.directory):
        if trial.kept:
            return trial.directory
        if (trial.directory / RECORD).exists():  # damaged: nothing there is to be trusted
            for place in trial.directory.iterdir():
                if place.is_dir() and not place.is_symlink():
                    shutil.rmtree(place)
                elif place.name != LOCK:
                    place.unlink(missing_ok=True)
        result = json.loads(to_json(trial.make()))
        body = {"identity": trial.identity, "result": result, "files": trial._files()}
        write_text(trial.directory / RECORD, to_json({**body, "sha256": _digest(body)}) + "\n")
    return trial.directory


def _add_missing(trial: Trial, waiting: dict[Path, Trial], monitor: Monitor) -> None:
    if (known := waiting.get(trial.directory)) is not None:
        if known.key != trial.key:
            given = trial.directory
            raise ValueError(f"trials must have directories of their own, got two in {given}")
        return
    if trial._record(monitor) is not None:
        discard(trial.directory / LOCK)
        return
    for needed in trial.needed:
        _add_missing(needed, waiting, monitor)
    waiting[trial.directory] = trial


def _decisive(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that decide it, by name."""
    return {part.name: getattr(value, part.name) for part in fields(value) if part.compare}


def _described(value: object) -> object:
    """A field's value as JSON that is equal for equal values."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Trial):
        return {"trial": type(value).__name__, "key": value.key}
    if hasattr(value, "fingerprint"):
        return value.fingerprint()
    if is_dataclass(value):
        named = {name: _described(one) for name, one in _decisive(value).items()}
        return {"class": type(value).__name__, **named}
    if isinstance(value, Mapping):
        return {str(name): _described(one) for name, one in value.items()}
    if isinstance(value, Sequence):
        return [_described(one) for one in value]
    raise TypeError(f"a trial must be described by plain values, got {type(value).__name__}")


def _short(described: object) -> Any:
    text = to_json(described)
    return json.loads(text) if len(text) <= _LONG else f"sha256 {_digest(described)}"


def _trials_in(value: object) -> Iterator[Trial]:
    if isinstance(value, Trial):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _trials_in(one)
    elif is_dataclass(value) and not hasattr(value, "fingerprint"):
        yield from _trials_in(_decisive(value))


def _difference(found: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """The first field that differs; its values only where they are numbers and no text."""
    for name in {**found, **asked}:
        one, other = found.get(name), asked.get(name)
        if one == other:
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            return f"{name}.{_difference(one, other)}"
        if all(isinstance(each, bool | int | float | None) for each in (one, other)):
            return f"{name} = {one}, not {other}"
        return name
    return "format"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
