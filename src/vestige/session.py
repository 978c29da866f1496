"""One call of a verb: it loads the inputs, records them, and saves the result.

A verb is a function whose first parameter is a `Session`:

    @verb
    def exposure(run: Session, model: ModelLike, *, exact: Count | None = None,
                 **common: Unpack[Common]) -> Result:
        loaded = run.model("model", model)
        with run.progress("scoring") as step:
            ...
        return Result.of(measurement)

Callers pass the other parameters, and `out`, `seed`, `device` and `monitor`.
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
"""The command line that called the verb, for the record; empty in Python."""

_DEFAULTS: Mapping[str, Any] = {"out": None, "seed": 0, "device": "auto", "monitor": SILENT}
"""Defaults of the keywords that verbs share, in the order of the signature."""


@dataclass
class Session:
    """Inputs, progress and provenance of one call.

    Attributes:
        verb: the verb's name on the command line.
        arguments: arguments of the call by parameter; `chosen` replaces one.
        out: the run folder; None if nothing is saved.
        store: finished work of this call and, if the verb resumes, of earlier calls.
        defaults: defaults of the verb's parameters.
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

    def model(self, role: str, source: "str | PathLike[str] | LanguageModel") -> "LanguageModel":
        """Load a language model from a path, or take a loaded one; in evaluation mode.

        Raises:
            ModelError: it cannot be read.
        """
        from vestige.models.checkpoints import load_model

        return cast("LanguageModel", self._load(role, source, load_model))

    def intent_slot(
        self, role: str, source: "str | PathLike[str] | IntentSlotNetwork"
    ) -> "IntentSlotNetwork":
        """Load an intent-and-slot model, or take a loaded one; in evaluation mode.

        Raises:
            ModelError: it cannot be read.
        """
        from vestige.models.checkpoints import load_intent_slot

        return cast("IntentSlotNetwork", self._load(role, source, load_intent_slot))

    def _load(self, role: str, source: Any, load: Callable[..., Any]) -> Any:
        is_path = isinstance(source, str | PathLike)
        model = load(fspath(source), device=self.device) if is_path else source.eval()
        self.record_model(role, source, model)
        return model

    def snapshots(self, **models: "str | PathLike[str] | LanguageModel") -> "Snapshots":
        """Load the models "before" and "after", which share token ids and precision.

        Raises:
            ModelError: a model cannot be read.
            IncompatibleModels: a token id means different texts in the two.
        """
        from vestige.models.snapshots import Snapshots

        snapshots = Snapshots.open(models, device=self.device, monitor=self.monitor)
        self.models |= snapshots.recorded
        return snapshots

    def record_model(self, role: str, source: object, loaded: Any) -> None:
        """Record a model that the verb loaded itself."""
        from vestige.models.folders import model_record

        self.models[role] = model_record(source, loaded)

    def corpus(self, role: str, source: "str | PathLike[str] | Corpus", **columns: Any) -> "Corpus":
        """Read a corpus from a path with `read_source`, or take one in memory.

        Raises:
            DataError: it cannot be read.
        """
        from vestige.data.formats.reading import read_source
        from vestige.models.folders import corpus_record

        if isinstance(source, str | PathLike):
            corpus = read_source(fspath(source), **columns)
        else:
            corpus = source
        self.data[role] = corpus_record(source, corpus)
        return corpus

    def lines(self, source: "str | PathLike[str] | Sequence[str]", *, item: str) -> list[str]:
        """Read the lines of a UTF-8 text file, or list the texts of a sequence.

        Args:
            item: what each line is, such as "phrase", for messages.

        Raises:
            DataError: the file cannot be read, is too large, or is not UTF-8.
        """
        from vestige.data.files import read_lines

        if isinstance(source, str | PathLike):
            return read_lines(Path(source), item=item)
        return list(source)

    def output_folder(self, name: str, folder: "str | PathLike[str] | None") -> Path | None:
        """`folder`, or OUT.name in the parent of `out`; None without both."""
        if folder is not None:
            return Path(folder)
        return None if self.out is None else self.out.with_name(f"{self.out.name}.{name}")

    def record_choice(self, **argument: Any) -> Any:
        """Record the value that the verb chose for an argument; returns the value."""
        ((name, value),) = argument.items()
        self.arguments[name] = value
        return value

    def withhold(self, **texts: Any) -> None:
        """Record only the type of an argument that lists texts; a path is recorded as it is."""
        for name, value in texts.items():
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
        """The contents of `run.json`: all inputs and settings of the result."""
        arguments = {name: _json_value(value) for name, value in flat_options(self.arguments)}
        common = {name: getattr(self, name) for name in ("seed", "device")}
        changed = {name: value for name, value in common.items() if value != _DEFAULTS[name]}
        return {
            "command": list(COMMAND.get()),
            "verb": self.verb,
            "arguments": {n: value for n, value in arguments.items() if value is not None}
            | changed,
            "configuration": {**arguments, **self.configuration, "seconds": self.seconds},
            "seed": self.seed,
            "models": self.models,
            "data": self.data,
        }


def flat_options(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Options with their values: of the arguments, and of the fields of options dataclasses."""
    for name, value in arguments.items():
        if is_options(value):
            options = {option.name: getattr(value, option.name) for option in fields(value)}
            yield from flat_options(options)
        else:
            yield name.rstrip("_"), value


def is_options(value: object) -> bool:
    """Whether a value is a dataclass of options that verbs share."""
    return is_dataclass(value) and hasattr(type(value), "__cyclopts__")


def _json_value(value: Any) -> Any:
    """A value for JSON; an object becomes the name of its class in angle brackets."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    return f"<{type(value).__name__}>"


def verb(work: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    """The public function of a verb.

    It checks the bounds of the arguments, records the call, and saves the result to `out`.
    """
    public, common = _public_signature(signature(work))
    name = work.__name__.replace("_", "-")
    defaults = {parameter.name: parameter.default for parameter in public.parameters.values()}

    @wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = public.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        check_bounds(public, arguments)
        shared = {key: arguments.pop(key) for key in _hints(common)}
        out = _checked_folder(shared.pop("out", None))
        _checked_folder(arguments.get("out"))
        with _open_store(out, shared["monitor"], resumes=common is Resumable) as store:
            run = Session(name, dict(arguments), out=out, store=store, defaults=defaults, **shared)
            result = work(run, **arguments)  # type: ignore[call-arg]
            result = replace(result, record=result.record or run.record())
            complete = result.summary.get("complete") is not False
            save_run(result.save, out, store, complete=complete)
        return result

    call.__signature__ = public  # type: ignore[attr-defined]
    call.__annotations__ = {
        parameter.name: parameter.annotation for parameter in public.parameters.values()
    }
    return call


def _open_store(
    out: Path | None, monitor: Monitor, *, resumes: bool
) -> AbstractContextManager[Store]:
    """The store of a call: in a file next to `out` if the verb resumes, otherwise in memory."""
    if resumes:
        return resumable(out, monitor)
    if out is not None:
        require_new(out)
    return nullcontext(Store())


def _public_signature(full: Signature) -> tuple[Signature, Any]:
    """The signature for callers: without the session, with the shared keywords by name.

    Returns:
        The signature, and the class of the shared keywords or None.
    """
    _, *parameters = full.parameters.values()
    common = None
    if parameters and parameters[-1].kind is Parameter.VAR_KEYWORD:
        common = get_args(parameters.pop().annotation)[0]
    hints = _hints(common)
    parameters += [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in _DEFAULTS.items()
        if name in hints
    ]
    return full.replace(parameters=parameters, return_annotation=Signature.empty), common


def _hints(common: Any) -> dict[str, Any]:
    return {} if common is None else get_type_hints(common, include_extras=True)


def _checked_folder(out: "str | PathLike[str] | None") -> Path | None:
    if out is not None and fspath(out).strip() in ("", "."):
        raise ValueError("`out` must name a new folder, got an empty name")
    return None if out is None else Path(out)


def check_bounds(public: Signature, arguments: Mapping[str, Any]) -> None:
    """Raise ValueError if an argument is outside the bounds of its annotation; quotes no value."""
    hints = {
        name.rstrip("_"): parameter.annotation for name, parameter in public.parameters.items()
    }
    for value in arguments.values():
        if is_options(value):
            hints |= get_type_hints(type(value), include_extras=True)
    for name, value in flat_options(arguments):
        _check(name, value, hints[name])


def _check(option: str, value: Any, hint: Any) -> None:
    """Raise ValueError if a number or a choice does not fit its annotation."""
    if value is None or not is_bounded(hint):
        return
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    try:
        TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False)).validate_python(value)
    except ValidationError as error:
        detail = error.errors(include_input=False, include_url=False, include_context=False)[0]
        requirement = _TYPE_NAMES.get(detail["type"].partition("_")[0])
        requirement = requirement or detail["msg"].removeprefix("Input should be ")
        raise ValueError(f"`{option}` must be {requirement}") from None


_TYPE_NAMES = {"int": "a whole number", "float": "a number"}


def is_bounded(hint: Any) -> bool:
    """Whether an annotation is a number or a choice, or contains one."""
    origin = get_origin(hint)
    if origin is Literal:
        return True
    if origin is not None:
        return any(is_bounded(part) for part in get_args(hint)[: 1 if origin is tuple else None])
    return hint in (int, float)


@contextmanager
def in_file(*sources: object) -> Iterator[None]:
    """Put the names of files before the message of a DataError."""
    try:
        yield
    except DataError as error:
        names = " with ".join(
            str(source) for source in sources if isinstance(source, str | PathLike)
        )
        problem = f"{names}: {error.problem}" if names else error.problem
        raise DataError(problem, remedy=error.remedy) from error
