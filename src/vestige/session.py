"""One call of a verb: what it opens is recorded, and its result carries the record.

A verb is a function whose first parameter is a `Session`:

    @verb
    def exposure(run: Session, model: ModelLike, *, exact: Count | None = None,
                 **common: Unpack[Common]) -> Result:
        loaded = run.model("model", model)
        with run.progress("scoring") as step:
            ...
        return Result.of(found)

Callers see the other parameters, and `out`, `seed`, `device` and `monitor`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from os import PathLike, fspath
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from vestige.arguments import Resumable
from vestige.errors import DataError
from vestige.monitor import SILENT, Monitor, Step
from vestige.new_files import require_new, resumable, save_run
from vestige.results import Result
from vestige.store import Store

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel
    from vestige.models.snapshots import Snapshots
    from vestige.models.white_box import IntentSlotNetwork

P = ParamSpec("P")
R = TypeVar("R", bound=Result)

COMMAND: ContextVar[tuple[str, ...]] = ContextVar("COMMAND", default=())
"""The command line that calls a verb, for the record; empty in Python."""

_DEFAULTS: Mapping[str, Any] = {"out": None, "seed": 0, "device": "auto", "monitor": SILENT}
"""Of the common keywords, in their order."""


@dataclass
class Session:
    """Inputs, progress and provenance of one call.

    Attributes:
        verb: the verb's name as it is typed.
        arguments: of the call, by parameter; a verb may replace one by the value that it chose.
        out: the run folder; None if nothing is saved.
        store: finished work of this call and, if the verb resumes, of those before it.
        defaults: of the verb's parameters.
        configuration: settings that the record holds besides the arguments.
        models: provenance of models by role.
        data: provenance of corpora by role.
    """

    verb: str
    arguments: dict[str, Any]
    out: Path | None = None
    store: Store = field(default_factory=Store)
    seed: int = 0
    device: str = "auto"
    monitor: Monitor = SILENT
    defaults: Mapping[str, Any] = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)
    models: dict[str, object] = field(default_factory=dict)
    data: dict[str, object] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def model(self, role: str, given: "str | PathLike[str] | LanguageModel") -> "LanguageModel":
        """A language model in evaluation mode, read from a path unless it is one.

        Raises:
            ModelError: it cannot be read.
        """
        from vestige.models.checkpoints import load_model

        return cast("LanguageModel", self._opened(role, given, load_model))

    def intent_slot(
        self, role: str, given: "str | PathLike[str] | IntentSlotNetwork"
    ) -> "IntentSlotNetwork":
        """An intent-and-slot model in evaluation mode, read from a path unless it is one.

        Raises:
            ModelError: it cannot be read.
        """
        from vestige.models.checkpoints import load_intent_slot

        return cast("IntentSlotNetwork", self._opened(role, given, load_intent_slot))

    def _opened(self, role: str, given: Any, load: Callable[..., Any]) -> Any:
        path = isinstance(given, str | PathLike)
        loaded = load(fspath(given), device=self.device) if path else given.eval()
        self.record_model(role, given, loaded)
        return loaded

    def snapshots(self, **given: "str | PathLike[str] | LanguageModel") -> "Snapshots":
        """Models named "before" and "after", over one set of token ids and in one precision.

        Raises:
            ModelError: one cannot be read.
            IncompatibleModels: a token id means different texts in the two.
        """
        from vestige.models.snapshots import Snapshots

        loaded = Snapshots.open(given, device=self.device, monitor=self.monitor)
        self.models |= loaded.recorded
        return loaded

    def record_model(self, role: str, given: object, loaded: Any) -> None:
        """Record a model that the verb opened itself."""
        from vestige.models.folders import of_model

        self.models[role] = of_model(given, loaded)

    def corpus(self, role: str, given: "str | PathLike[str] | Corpus", **columns: Any) -> "Corpus":
        """A corpus, read from a path unless it is one.

        Args:
            role: its name in the record.
            given: a path that `read_source` reads, or a corpus.
            **columns: settings of `read_source`, such as format, text, user, limit.

        Raises:
            DataError: it cannot be read.
        """
        from vestige.data.formats.reading import read_source
        from vestige.models.folders import of_corpus

        if isinstance(given, str | PathLike):
            corpus = read_source(fspath(given), **columns)
        else:
            corpus = given
        self.data[role] = of_corpus(given, corpus)
        return corpus

    def lines(self, given: "str | PathLike[str] | Sequence[str]", *, one: str) -> list[str]:
        """The lines of a UTF-8 text file, or the texts that were given.

        Args:
            one: what each line holds, such as "phrase", for messages.

        Raises:
            DataError: the file cannot be read, is too large, or is not UTF-8.
        """
        from vestige.data.files import read_lines

        if isinstance(given, str | PathLike):
            return read_lines(Path(given), item=one)
        return list(given)

    def beside_out(self, name: str, given: "str | PathLike[str] | None") -> Path | None:
        """The given folder, or OUT.name beside `out`; None without both."""
        if given is not None:
            return Path(given)
        return None if self.out is None else self.out.with_name(f"{self.out.name}.{name}")

    def chosen(self, **argument: Any) -> Any:
        """Record the value that the verb chose for one argument; returns the value."""
        ((name, value),) = argument.items()
        self.arguments[name] = value
        return value

    def withhold(self, **given: Any) -> None:
        """Record texts that were given as a list by their type only; a path is no text."""
        for name, value in given.items():
            if not isinstance(value, str | PathLike):
                self.arguments[name] = f"<{type(value).__name__}>"

    def log(self, line: str) -> None:
        """Show one line to the user."""
        self.monitor.log(line)

    def progress(self, task: str) -> AbstractContextManager[Step]:
        """Progress of one task."""
        return self.monitor.progress(task)

    @property
    def seconds(self) -> float:
        """Time since the call began."""
        return round(time.monotonic() - self.started, 2)

    def record(self) -> dict[str, Any]:
        """The contents of `run.json`: everything that the result depends on."""
        given = {name: _plain(value) for name, value in flat(self.arguments)}
        common = {name: getattr(self, name) for name in ("seed", "device")}
        chosen = {name: value for name, value in common.items() if value != _DEFAULTS[name]}
        return {
            "command": list(COMMAND.get()),
            "verb": self.verb,
            "arguments": {n: value for n, value in given.items() if value is not None} | chosen,
            "configuration": {**given, **self.configuration, "seconds": self.seconds},
            "seed": self.seed,
            "models": self.models,
            "data": self.data,
        }


def flat(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Arguments by option: the fields of an options dataclass are options of their own."""
    for name, value in arguments.items():
        if is_options(value):
            yield from flat({one.name: getattr(value, one.name) for one in fields(value)})
        else:
            yield name.rstrip("_"), value


def is_options(value: object) -> bool:
    """Whether a value holds options that several verbs share."""
    return is_dataclass(value) and hasattr(type(value), "__cyclopts__")


def _plain(value: Any) -> Any:
    """A value as JSON has it; an object is the name of its class in angle brackets."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return f"<{type(value).__name__}>"


def verb(work: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    """The public function of a verb.

    It checks the bounds of its arguments, records the call, and saves the result to `out`.
    """
    public, common = _public(signature(work))
    name = work.__name__.replace("_", "-")
    defaults = {one.name: one.default for one in public.parameters.values()}

    @wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = public.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        check_bounds(public, arguments)
        shared = {key: arguments.pop(key) for key in _hints(common)}
        out = _folder(shared.pop("out", None))
        _folder(arguments.get("out"))
        with _work_of(out, shared["monitor"], resumes=common is Resumable) as store:
            run = Session(name, dict(arguments), out=out, store=store, defaults=defaults, **shared)
            result = work(run, **arguments)  # type: ignore[call-arg]
            result = replace(result, record=result.record or run.record())
            complete = result.summary.get("complete") is not False
            save_run(result.save, out, store, complete=complete)
        return result

    call.__signature__ = public  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in public.parameters.values()}
    return call


def _work_of(out: Path | None, monitor: Monitor, *, resumes: bool) -> AbstractContextManager[Store]:
    """Finished work of a call: kept beside `out` if the verb resumes, otherwise in memory."""
    if resumes:
        return resumable(out, monitor)
    if out is not None:
        require_new(out)
    return nullcontext(Store())


def _public(own: Signature) -> tuple[Signature, Any]:
    """The signature that callers see, without the session and with the common keywords by name.

    Returns:
        The signature and the class of the common keywords, or None.
    """
    _, *named = own.parameters.values()
    common = None
    if named and named[-1].kind is Parameter.VAR_KEYWORD:
        common = get_args(named.pop().annotation)[0]
    hints = _hints(common)
    named += [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in _DEFAULTS.items()
        if name in hints
    ]
    return own.replace(parameters=named, return_annotation=Signature.empty), common


def _hints(common: Any) -> dict[str, Any]:
    return {} if common is None else get_type_hints(common, include_extras=True)


def _folder(out: "str | PathLike[str] | None") -> Path | None:
    if out is not None and fspath(out).strip() in ("", "."):
        raise ValueError("`out` must name a new folder, got an empty name")
    return None if out is None else Path(out)


def check_bounds(public: Signature, arguments: Mapping[str, Any]) -> None:
    """Raise ValueError unless arguments keep the bounds in their annotations; quote no value."""
    hints = {name.rstrip("_"): one.annotation for name, one in public.parameters.items()}
    for value in arguments.values():
        if is_options(value):
            hints |= get_type_hints(type(value), include_extras=True)
    for name, value in flat(arguments):
        _check(name, value, hints[name])


def _check(name: str, value: Any, hint: Any) -> None:
    """Raise ValueError where a number or a choice does not fit its annotation."""
    if value is None or not is_bounded(hint):
        return
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    try:
        TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False)).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        wanted = _WANTED.get(first["type"].partition("_")[0])
        wanted = wanted or first["msg"].removeprefix("Input should be ")
        raise ValueError(f"`{name}` must be {wanted}") from None


_WANTED = {"int": "a whole number", "float": "a number"}


def is_bounded(hint: Any) -> bool:
    """Whether an annotation is a number, a choice, or several of them."""
    origin = get_origin(hint)
    if origin is Literal:
        return True
    if origin is not None:
        return any(is_bounded(one) for one in get_args(hint)[: 1 if origin is tuple else None])
    return hint in (int, float)


@contextmanager
def in_file(*given: object) -> Iterator[None]:
    """Name the file in an error about its contents."""
    try:
        yield
    except DataError as error:
        where = " with ".join(str(one) for one in given if isinstance(one, str | PathLike))
        problem = f"{where}: {error.problem}" if where else error.problem
        raise DataError(problem, remedy=error.remedy) from error
