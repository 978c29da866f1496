"""Stages: functions whose results are saved under a hash of their arguments.

    @stage(outputs=("model",))
    def train(corpus: Corpus, seed: int, *, folder: Path) -> dict[str, float]: ...

    work = Work(out)
    finished = work(train(corpus, seed=1))  # computed, or read
    finished.value, finished.folder

Calling a stage returns a `Call`, which describes the computation. The SHA-256 of the description
(function, version, arguments) is the key of the result and the name of the stage's folder. An
argument may be a number, a text, a dataclass, anything with a `fingerprint`, sequences and mappings
of these, and another call, which is finished first and passed as `Finished`.

A result is written when its function returns. A killed stage is called again and finds the files
in its folder, such as the checkpoint of a training. A damaged one starts with an empty folder.
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
CONTEXT = ("folder", "work")
"""Parameters of a stage that `Work` passes; they are not part of the description."""

MapFn = Callable[..., Iterable[Any]]
"""`map`, or one over processes."""


class Stage:
    """A function declared with `@stage`; calling it returns a `Call`."""

    def __init__(
        self, function: Callable[..., Any], *, version: int = 1, outputs: Sequence[str] = ()
    ) -> None:
        update_wrapper(self, function)
        self.name, self.function = function.__name__, function
        self.version, self.outputs = version, tuple(outputs)
        parameters = inspect.signature(function).parameters.values()
        self.context = [p.name for p in parameters if p.name in CONTEXT]
        self.signature = inspect.Signature([p for p in parameters if p.name not in CONTEXT])

    def __call__(self, *arguments: Any, **named: Any) -> "Call":
        bound = self.signature.bind(*arguments, **named)
        bound.apply_defaults()
        return Call(self, bound.arguments)

    def __reduce__(self) -> str:
        return self.name  # pickled by name, as functions are


def stage(
    *, version: int = 1, outputs: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Stage]:
    """Declare a stage: a function at the top of a module, with a unique name.

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
        description = _description([self.stage.version, self.arguments])
        digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
        return f"{self.stage.name}-{digest[:16]}"

    @property
    def needs(self) -> Iterator["Call"]:
        """Calls among the arguments."""
        return _calls_in(self.arguments)


@dataclass(frozen=True)
class Finished:
    """A finished call: the value of its function, and its folder."""

    value: Any
    folder: Path
    key: str

    def fingerprint(self) -> str:
        """The key, which decides the rest."""
        return self.key


@dataclass(frozen=True)
class Work:
    """Computes stages and saves their results.

    Attributes:
        out: holds the results and the stages' folders.
        data: the folder of corpora.
        map_fn: maps a function over independent calls.
        monitor: shows progress.
    """

    out: Path
    data: Path | None = None
    map_fn: MapFn = map
    monitor: Monitor = SILENT

    def __call__(self, call: Call) -> Finished:
        """Finish a call and those that it needs, or read its result."""
        return self.all([call])[0]

    def all(self, calls: Iterable[Call]) -> list[Finished]:
        """Finish several calls, each once and after those that it needs."""
        calls = list(calls)
        pending: dict[str, Call] = {}
        for call in calls:
            self._add_missing(call, pending)
        total = len(pending)
        in_process = self.map_fn is map
        compute = self._compute if in_process else partial(_compute_elsewhere, self.out, self.data)
        with self.monitor.progress("stages") as step:
            while pending:
                ready = [c for c in pending.values() if not any(n.key in pending for n in c.needs)]
                for key in self.map_fn(compute, ready):
                    del pending[key]
                    finished = total - len(pending)
                    self.monitor.log(f"finished {key} ({finished} of {total})")
                    step(finished, total)
        return [self._finished(call) for call in calls]

    def is_intact(self, call: Call) -> bool:
        """Whether a call is finished and its output files are unchanged."""
        if not (self.out / STORE).exists() or call.key not in self._store:
            return False
        return not call.stage.outputs or self._saved_hashes(call) == self._file_hashes(call)

    def close(self) -> None:
        """Close the file of results."""
        if "_store" in self.__dict__:
            self.__dict__.pop("_store").close()

    @cached_property
    def _store(self) -> Store:
        return Store(self.out / STORE, monitor=self.monitor, shared=True)

    def _finished(self, call: Call) -> Finished:
        return Finished(self._store[call.key], self.out / FOLDERS / call.key, call.key)

    def _add_missing(self, call: Call, pending: dict[str, Call]) -> None:
        if call.key in pending or self.is_intact(call):
            return
        if (self.out / STORE).exists() and self._saved_hashes(call) is not None:
            self.monitor.log(f"{call.key} is damaged and computed again")
        for needed in call.needs:
            self._add_missing(needed, pending)
        pending[call.key] = call

    def _compute(self, call: Call) -> str:
        """Compute a call whose needs are finished; its key."""
        folder = self.out / FOLDERS / call.key
        saved = self._saved_hashes(call) if (self.out / STORE).exists() else None
        if saved not in (None, self._file_hashes(call)):
            shutil.rmtree(folder, ignore_errors=True)
            del self._store[_hashes_key(call)]
        if call.stage.outputs:
            make_directory(folder)
        context = {"folder": folder, "work": self}
        arguments = {name: self._with_results(value) for name, value in call.arguments.items()}
        arguments |= {name: context[name] for name in call.stage.context}
        value = call.stage.function(**arguments)
        has_arrays = isinstance(value, dict) and any(
            isinstance(part, np.ndarray) for part in value.values()
        )
        with self._store.transaction():
            self._store[call.key] = value if has_arrays else json.loads(to_json(value))
            if call.stage.outputs:
                self._store[_hashes_key(call)] = self._file_hashes(call)
        return call.key

    def _with_results(self, value: Any) -> Any:
        """An argument, with calls replaced by finished ones."""
        if isinstance(value, Call):
            return self._finished(value)
        if isinstance(value, Mapping):
            return {name: self._with_results(part) for name, part in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._with_results(part) for part in value)
        return value

    def _saved_hashes(self, call: Call) -> dict[str, str] | None:
        """SHA-256 of the output files when the call finished, by path in its folder."""
        hashes: dict[str, str] | None = self._store.get(_hashes_key(call))
        return hashes

    def _file_hashes(self, call: Call) -> dict[str, str]:
        """SHA-256 of the output files as they are now."""
        folder = self.out / FOLDERS / call.key
        outputs = [folder / name for name in call.stage.outputs]
        files = [f for output in outputs for f in (output, *output.rglob("*")) if f.is_file()]
        return {file.relative_to(folder).as_posix(): _sha256(file) for file in sorted(files)}


def _compute_elsewhere(out: Path, data: Path | None, call: Call) -> str:
    """`Work._compute` in another process, which opens the file of results once."""
    return _work(out, data)._compute(call)


_work = cache(Work)


def _hashes_key(call: Call) -> str:
    return f"files of {call.key}"


def _calls_in(value: Any) -> Iterator[Call]:
    if isinstance(value, Call):
        yield value
    elif isinstance(value, Mapping) or type(value) in (list, tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _calls_in(part)


def _description(value: Any) -> Any:
    """A value as JSON that is equal for equal values."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Call):
        return {"call": value.key}
    if hasattr(value, "fingerprint"):
        return {"fingerprint": value.fingerprint()}
    if is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in fields(value) if field.compare}
        return {"class": type(value).__name__, **_description(parts)}
    if isinstance(value, Mapping):
        return {str(name): _description(part) for name, part in value.items()}
    if isinstance(value, Sequence):
        return [_description(part) for part in value]
    raise TypeError(f"a stage must be described by plain values, got {type(value).__name__}")


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
