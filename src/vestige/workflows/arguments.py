"""The arguments of a workflow's call: from flat options, and as `run.json` has them."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, is_dataclass, replace
from os import PathLike, fspath
from typing import Any, TypeVar

from vestige.result import Result
from vestige.workflows.options import Kinds
from vestige.workflows.parameters import (
    KIND,
    REQUIRED,
    Option,
    Parameter,
    options_of,
    parameters_of,
)
from vestige.workflows.task_options import check_task

COMMAND: ContextVar[tuple[str, ...]] = ContextVar("COMMAND", default=())
"""The command line that calls a workflow, for the record; empty in Python."""

AnyResult = TypeVar("AnyResult", bound=Result)


def keywords(workflow: Callable[..., object], values: Mapping[str, Any]) -> dict[str, Any]:
    """Flat values as keyword arguments of the workflow.

    Args:
        values: by `Option.name`; an option that is left out has its default.
    """
    options = {option.name: option for option in options_of(workflow)}
    if "task" in options:
        for name in values:
            check_task(options[name], values.get("task", options["task"].default))
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = options[name].path
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = tuple(value) if options[name].many else value
    return {
        name: _built(each, tree[name])
        for name, each in parameters_of(workflow).items()
        if name in tree
    }


def _built(each: Parameter, given: Any) -> Any:
    """The value of a parameter: as it was given, or an object of its configuration class."""
    if each.kinds:
        return _chosen(each, dict(given))
    if not (isinstance(each.type, type) and is_dataclass(each.type)):
        return given
    cls: Any = each.type
    named = _fields(cls, given)
    if type(each.default) is cls:
        return replace(each.default, **named)
    return cls(**named)


def _chosen(each: Parameter, given: dict[str, Any]) -> Any:
    nothing = each.marker(Kinds).nothing
    kind = given.pop(KIND, None)
    if kind is None:
        kind = next((n for n, cls in each.kinds.items() if type(each.default) is cls), nothing)
    cls = each.kinds.get(kind)
    for name in given:
        able = [other for other, own in each.kinds.items() if name in parameters_of(own)]
        if kind not in able:
            raise ValueError(
                f"`{name}` must come with `{each.name}` {' or '.join(able)}, got {kind}"
            )
    if cls is None:
        return None
    for name, one in parameters_of(cls).items():
        if one.default is REQUIRED and name not in given:
            raise ValueError(f"`{each.name}` {kind} must come with `{name}`, got none")
    return cls(**_fields(cls, given))


def _fields(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    own = parameters_of(cls)
    return {name: _built(own[name], value) for name, value in given.items()}


@dataclass(frozen=True)
class Call:
    """One call of a workflow: what it was asked, and since when.

    The first line of a workflow is `call = Call.of(rank, locals())`, its last
    `return call.record(ranked, configuration=…, models=…)`.
    """

    workflow: Callable[..., object]
    arguments: Mapping[str, Any]
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, workflow: Callable[..., object], local: Mapping[str, object]) -> "Call":
        """The call that has just begun.

        Args:
            local: its `locals()`, before a parameter is bound anew.

        Raises:
            ValueError: `out` is empty.
        """
        out = local.get("out")
        if isinstance(out, str | PathLike) and fspath(out).strip() in ("", "."):
            raise ValueError("`out` must name a new directory, got an empty name")
        return cls(workflow, {name: local[name] for name in parameters_of(workflow)})

    def chosen(self, *names: str) -> dict[str, Any]:
        """Some of its arguments, by name."""
        return {name: self.arguments[name] for name in names}

    def decided(self, **arguments: object) -> "Call":
        """The same call with what it has chosen itself, so that its record repeats that."""
        return replace(self, arguments={**self.arguments, **arguments})

    @property
    def seconds(self) -> float:
        """Time since it began."""
        return round(time.monotonic() - self.started, 2)

    def record(
        self,
        result: AnyResult,
        *,
        configuration: Mapping[str, object],
        seed: int | None = None,
        models: Mapping[str, object] | None = None,
        data: Mapping[str, object] | None = None,
    ) -> AnyResult:
        """The result with its provenance.

        Args:
            configuration: every setting that it depends on.
            models: `of_model` by role.
            data: `of_corpus` by role.
        """
        record: dict[str, object] = {
            "command": list(COMMAND.get()),
            "verb": verb_of(self.workflow),
            "arguments": flat(self.workflow, self.arguments),
            "configuration": configuration,
            "seed": seed,
            "models": models or {},
            "data": data or {},
        }
        return replace(result, record=record)


def verb_of(workflow: Callable[..., object]) -> str:
    """The name of a workflow's verb.

    Example:
        >>> def audit_texts(): ...
        >>> verb_of(audit_texts)
        'audit-texts'
    """
    return workflow.__name__.replace("_", "-")


def flat(workflow: Callable[..., object], arguments: Mapping[str, object]) -> dict[str, Any]:
    """Arguments by option, as JSON has them; what has its default is left out.

    A model or corpus that was given as an object stands there as the name of its class in angle
    brackets.
    """
    own = parameters_of(workflow)
    found = {}
    for option in options_of(workflow):
        value = _value(own[option.path[0]], arguments[option.path[0]], option)
        if value is not REQUIRED and _json(value) != _json(option.default):
            found[option.name] = _json(value)
    return found


def _value(each: Parameter, value: Any, option: Option) -> Any:
    """What an option would have to be for the value of its parameter."""
    for name in option.path[1:]:
        if name != KIND:
            value = getattr(value, name, REQUIRED)
        elif value is None:
            value = each.marker(Kinds).nothing
        else:
            value = next((n for n, cls in each.kinds.items() if type(value) is cls), value)
    return value


def _json(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Sequence):
        return [_json(item) for item in value]
    return f"<{type(value).__name__}>"
