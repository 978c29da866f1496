"""Stages: functions whose results are kept, and found again by what they were called with.

    @stage(outputs=("model",))
    def train(corpus: Corpus, seed: int, *, folder: Path) -> dict[str, float]: ...

    work = Work(out)
    done = work(train(corpus, seed=1))  # computed, or found
    done.value, done.folder

Calling a stage computes nothing: it describes the computation. The SHA-256 of the description
(function, version, arguments) is the key of the result and the name of the stage's folder. An
argument may be a number, a text, a dataclass, anything with a `fingerprint`, sequences and mappings
of these, and another call, which is finished first and passed as `Finished`.

A result is written when its function returns. A killed stage is called again and finds in its
folder what it left, such as the checkpoint of a training; a damaged one starts with an empty
folder.
"""

import hashlib
import inspect
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property, partial, update_wrapper
from pathlib import Path
from typing import Any

import numpy as np

from vestige.data.writing import make_directory
from vestige.monitor import SILENT, Monitor
from vestige.results import to_json
from vestige.store import Store

STORE, FOLDERS = "stages.sqlite", "stages"
GIVEN = ("folder", "work")
"""Parameters that a stage may have besides its arguments; they do not decide its result."""

MapFn = Callable[..., Iterable[Any]]
"""`map`, or one over processes."""


class Stage:
    """A function that was declared with `@stage`; calling it gives a `Call`."""

    def __init__(
        self, function: Callable[..., Any], *, version: int = 1, outputs: Sequence[str] = ()
    ) -> None:
        update_wrapper(self, function)
        self.name, self.function = function.__name__, function
        self.version, self.outputs = version, tuple(outputs)
        parameters = inspect.signature(function).parameters.values()
        self.given = [one.name for one in parameters if one.name in GIVEN]
        self.signature = inspect.Signature([p for p in parameters if p.name not in GIVEN])

    def __call__(self, *arguments: Any, **named: Any) -> "Call":
        bound = self.signature.bind(*arguments, **named)
        bound.apply_defaults()
        return Call(self, bound.arguments)

    def __reduce__(self) -> str:
        return self.name  # pickled by name, as functions are


def stage(
    *, version: int = 1, outputs: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Stage]:
    """Declare a stage, a function at the top of a module, with a name that no other stage has.

    Args:
        version: raised whenever the function computes something else from the same arguments.
        outputs: files and folders in its `folder` that belong to the result and are checksummed;
            all others may be removed.
    """
    return partial(Stage, version=version, outputs=outputs)


@dataclass(frozen=True, eq=False)
class Call:
    """A stage with its arguments, by name."""

    stage: Stage
    arguments: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        """Equal for equal descriptions."""
        described = _described([self.stage.version, self.arguments])
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
        return f"{self.stage.name}-{digest[:16]}"

    @property
    def needs(self) -> Iterator["Call"]:
        """Calls among the arguments."""
        return _calls_in(self.arguments)


@dataclass(frozen=True)
class Finished:
    """A finished call: what its function returned, and its folder."""

    value: Any
    folder: Path
    key: str

    def fingerprint(self) -> str:
        """The key, which decides the rest."""
        return self.key


@dataclass(frozen=True)
class Work:
    """Where stages are computed and kept.

    Attributes:
        out: holds the results and the stages' folders.
        data: the folder of corpora.
        map_fn: maps a function over calls that do not wait for one another.
        monitor: gets what is done.
    """

    out: Path
    data: Path | None = None
    map_fn: MapFn = map
    monitor: Monitor = SILENT

    def __call__(self, call: Call) -> Finished:
        """Finish a call and those that it needs, or find it."""
        return self.all([call])[0]

    def all(self, calls: Iterable[Call]) -> list[Finished]:
        """Finish several calls, each once and after those that it needs."""
        calls = list(calls)
        waiting: dict[str, Call] = {}
        for call in calls:
            self._add_missing(call, waiting)
        total = len(waiting)
        here = self.map_fn is map
        compute = self._compute if here else partial(_compute_away, self.out, self.data)
        with self.monitor.progress("stages") as step:
            while waiting:
                ready = [c for c in waiting.values() if not any(n.key in waiting for n in c.needs)]
                for key in self.map_fn(compute, ready):
                    del waiting[key]
                    done = total - len(waiting)
                    self.monitor.log(f"finished {key} ({done} of {total})")
                    step(done, total)
        return [self.finished(call) for call in calls]

    def finished(self, call: Call) -> Finished:
        """A call that is finished; KeyError if it is not."""
        return Finished(self._store[call.key], self.out / FOLDERS / call.key, call.key)

    def is_whole(self, call: Call) -> bool:
        """Whether a call is finished and its files are those that it wrote."""
        if not (self.out / STORE).exists() or call.key not in self._store:
            return False
        return not call.stage.outputs or self._recorded(call) == self._files(call)

    def close(self) -> None:
        """Close the file of results."""
        if "_store" in self.__dict__:
            self.__dict__.pop("_store").close()

    @cached_property
    def _store(self) -> Store:
        return Store(self.out / STORE, monitor=self.monitor, shared=True)

    def _add_missing(self, call: Call, waiting: dict[str, Call]) -> None:
        if call.key in waiting or self.is_whole(call):
            return
        if (self.out / STORE).exists() and self._recorded(call) is not None:
            self.monitor.log(f"{call.key} is damaged and computed again")
        for needed in call.needs:
            self._add_missing(needed, waiting)
        waiting[call.key] = call

    def _compute(self, call: Call) -> str:
        """Compute a call whose needs are finished; its key."""
        folder = self.out / FOLDERS / call.key
        if (self.out / STORE).exists() and self._recorded(call) not in (None, self._files(call)):
            shutil.rmtree(folder, ignore_errors=True)
            del self._store[_record(call)]
        if call.stage.outputs:
            make_directory(folder)
        arguments = {name: _passed(value, self) for name, value in call.arguments.items()}
        given = {"folder": folder, "work": self}
        given = {name: given[name] for name in call.stage.given}
        value = call.stage.function(**arguments, **given)
        with self._store.transaction():
            self._store[call.key] = value if _is_arrays(value) else json.loads(to_json(value))
            if call.stage.outputs:
                self._store[_record(call)] = self._files(call)
        return call.key

    def _recorded(self, call: Call) -> dict[str, str] | None:
        """SHA-256 of the files that a finished call wrote, by path in its folder."""
        found: dict[str, str] | None = self._store.get(_record(call))
        return found

    def _files(self, call: Call) -> dict[str, str]:
        """The same of the files that are there."""
        folder = self.out / FOLDERS / call.key
        places = [folder / name for name in call.stage.outputs]
        inner = [file for place in places for file in (place, *place.rglob("*")) if file.is_file()]
        return {file.relative_to(folder).as_posix(): _sha256(file) for file in sorted(inner)}


def _compute_away(out: Path, data: Path | None, call: Call) -> str:
    """`Work._compute` in another process, which opens the file of results once."""
    return _here(out, data)._compute(call)


_here = cache(Work)


def _record(call: Call) -> str:
    return f"files of {call.key}"


def _passed(value: Any, work: Work) -> Any:
    """An argument as the function gets it: finished calls in place of calls."""
    if isinstance(value, Call):
        return work.finished(value)
    if isinstance(value, Mapping):
        return {name: _passed(one, work) for name, one in value.items()}
    return type(value)(_passed(one, work) for one in value) if _is_sequence(value) else value


def _calls_in(value: Any) -> Iterator[Call]:
    if isinstance(value, Call):
        yield value
    elif isinstance(value, Mapping) or _is_sequence(value):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _calls_in(one)


def _described(value: Any) -> Any:
    """A value as JSON that is equal for equal values."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Call):
        return {"call": value.key}
    if hasattr(value, "fingerprint"):
        return {"fingerprint": value.fingerprint()}
    if is_dataclass(value):
        parts = {one.name: getattr(value, one.name) for one in fields(value) if one.compare}
        return {"class": type(value).__name__, **_described(parts)}
    if isinstance(value, Mapping):
        return {str(name): _described(one) for name, one in value.items()}
    if isinstance(value, Sequence):
        return [_described(one) for one in value]
    raise TypeError(f"a stage must be described by plain values, got {type(value).__name__}")


def _is_sequence(value: object) -> bool:
    return type(value) in (list, tuple)


def _is_arrays(value: object) -> bool:
    return isinstance(value, dict) and any(isinstance(one, np.ndarray) for one in value.values())


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
