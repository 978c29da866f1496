"""A workflow's parameters as flat options.

A parameter is an option. A parameter whose type is a configuration dataclass stands for its
fields; one of several such classes (`Kinds`) stands for a name and for the fields of all of them.
"""

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from vestige._markers import Choices
from vestige.monitor import Monitor
from vestige.workflows.docstrings import docstring
from vestige.workflows.options import Flag, Group, Help, Kinds, Metavar, Only, PythonOnly

REQUIRED = inspect.Parameter.empty
"""The default of what must be given."""

KIND = "*kind"
"""Ends the path of an option that names a class."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One flat option of a workflow.

    Attributes:
        name: the key in a configuration file and in `run.json`.
        path: where its value goes: a parameter, or a parameter and a field of its class.
        type: without None and list: int, float, str, bool, Path or a Literal.
        many: it may be given several times.
        help: one or more sentences.
        flags: spellings, the first one shown; none for an argument that is found by its place.
        metavar: what stands for the value.
        group: the panel of the help, "" for the common one.
        bounds: of `annotated_types`.
        kinds: the names among which the option exists, none where it always does.
        tasks: likewise, the values of the parameter `task`.
    """

    name: str
    path: tuple[str, ...]
    type: Any
    many: bool = False
    default: Any = REQUIRED
    help: str = ""
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    group: str = ""
    bounds: tuple[Any, ...] = ()
    kinds: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    @property
    def parameter(self) -> str:
        """What Python calls it."""
        return self.path[-2] if self.path[-1] == KIND else self.path[-1]

    @property
    def shown(self) -> str:
        """What a message calls it."""
        return self.flags[0] if self.flags else str(self.metavar)

    @property
    def default_shown(self) -> str | None:
        """The default in words, where there is one to tell of."""
        none = self.default in (REQUIRED, None, "") or self.default is False
        return None if none or (self.many and not self.default) else str(self.default)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it accepts, where there are only so many."""
        return tuple(map(str, get_args(self.type))) if get_origin(self.type) is Literal else ()


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a workflow, or a field of a configuration class.

    Attributes:
        type: without None, list and markers.
        many: a sequence of that type.
        default: `REQUIRED` where there is none.
        markers: of `vestige.workflows.options` and `annotated_types`.
        by_place: it may be given without its name.
    """

    name: str
    type: Any
    many: bool
    default: Any
    markers: tuple[Any, ...]
    help: str
    by_place: bool = False

    def marker(self, kind: type) -> Any:
        """The first marker of a kind, or None."""
        return next((marker for marker in self.markers if isinstance(marker, kind)), None)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that have it, none where all do."""
        found = self.marker(Only)
        return found.tasks if found else ()

    @property
    def kinds(self) -> Mapping[str, type]:
        """The classes by name, where the value is one of several."""
        found = self.marker(Kinds)
        return found.registered() if found else {}


def parameters_of(owner: Callable[..., object] | type) -> dict[str, Parameter]:
    """The parameters that a command line can give, or the fields of a configuration class."""
    hints = _hints(owner)
    told = docstring(owner).entries
    found = {}
    for name, default, by_place in _declared(owner):
        type_, many, markers = _unwrapped(hints[name])
        if type_ is Monitor or any(isinstance(m, PythonOnly) or m is PythonOnly for m in markers):
            continue
        shared = next((marker.text for marker in markers if isinstance(marker, Help)), "")
        found[name] = Parameter(
            name=name,
            type=type_,
            many=many,
            default=default,
            markers=markers,
            help=told.get(name) or shared,
            by_place=by_place,
        )
    return found


def _hints(owner: Any) -> dict[str, Any]:
    """The types of the parameters; what a function returns may be known to a type checker only."""
    if isinstance(owner, type):
        return get_type_hints(owner, include_extras=True)
    own = {name: hint for name, hint in owner.__annotations__.items() if name != "return"}
    only = types.SimpleNamespace(__annotations__=own)
    return get_type_hints(only, globalns=owner.__globals__, include_extras=True)


def _declared(owner: Any) -> Iterator[tuple[str, Any, bool]]:
    if not isinstance(owner, type):
        for name, each in inspect.signature(owner).parameters.items():
            yield name, each.default, each.kind is not inspect.Parameter.KEYWORD_ONLY
        return
    for own in fields(owner):
        if own.init:
            made = own.default_factory() if own.default_factory is not MISSING else own.default
            yield own.name, REQUIRED if made is MISSING else made, False


def _unwrapped(hint: Any) -> tuple[Any, bool, tuple[Any, ...]]:
    """A hint's type, whether there may be many, and its markers, from the outside in."""
    if get_origin(hint) is Annotated:
        inner, *outer = get_args(hint)
        type_, many, markers = _unwrapped(inner)
        return type_, many, (*outer, *markers)
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        return _unwrapped(rest[0]) if len(rest) == 1 else (hint, False, ())
    origin = get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        type_, _, markers = _unwrapped(get_args(hint)[0])
        return type_, True, markers
    return hint, False, ()


@cache
def options_of(workflow: Callable[..., object]) -> tuple[Option, ...]:
    """The options of a workflow, in the order of its parameters.

    Raises:
        TypeError: two have one name.
    """
    found = [
        replace(option, tasks=option.tasks or each.tasks)
        for each in parameters_of(workflow).values()
        for option in _options(each, (), "")
    ]
    names = [option.name for option in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TypeError(f"{workflow.__name__} has several options {', '.join(twice)}")
    return tuple(found)


def _options(each: Parameter, parents: tuple[str, ...], group: str) -> Iterator[Option]:
    """One option, or those of a configuration class."""
    own = each.marker(Group)
    group = own.title if own else group
    if each.kinds:
        yield from _of_kinds(each, (*parents, each.name), group)
    elif isinstance(each.type, type) and is_dataclass(each.type):
        title = group or _title(each.type)
        for field in _with_defaults(each).values():
            yield from _options(field, (*parents, each.name), title)
    else:
        yield _option(each, (*parents, each.name), group)


def _with_defaults(each: Parameter) -> dict[str, Parameter]:
    """The fields of a parameter's class, with the defaults of the parameter's own default."""
    found = parameters_of(each.type)
    if not isinstance(each.default, each.type):
        return found
    return {n: replace(field, default=getattr(each.default, n)) for n, field in found.items()}


def _of_kinds(each: Parameter, path: tuple[str, ...], group: str) -> Iterator[Option]:
    """The name of a class, and the fields of all classes, each once."""
    nothing = each.marker(Kinds).nothing
    named = {cls: name for name, cls in each.kinds.items()}
    default = nothing if each.default is None else named.get(type(each.default), each.default)
    names: Any = Literal[(nothing, *each.kinds)]
    yield replace(
        _option(replace(each, default=default, type=names), path, group), path=(*path, KIND)
    )
    merged: dict[str, list[Option]] = {}
    for kind, cls in each.kinds.items():
        for field in parameters_of(cls).values():
            for option in _options(field, path, group):
                merged.setdefault(option.name, []).append(replace(option, kinds=(kind,)))
    yield from map(_together, merged.values())


def _together(options: list[Option]) -> Option:
    """One option for the fields of a name that several classes have."""
    told: dict[str, list[str]] = {}
    for option in options:
        told.setdefault(option.help, []).extend(option.kinds)
    defaults = [option.default for option in options]
    same = all(default == defaults[0] for default in defaults) and defaults[0] is not REQUIRED
    return replace(
        options[0],
        help=" ".join(f"{', '.join(kinds)}: {text}" for text, kinds in told.items()),
        default=defaults[0] if same else None,
        kinds=tuple(kind for option in options for kind in option.kinds),
    )


def _option(each: Parameter, path: tuple[str, ...], group: str) -> Option:
    spelt, metavar, among = each.marker(Flag), each.marker(Metavar), each.marker(Choices)
    plain = each.name.rstrip("_")
    flags = spelt.names if spelt else () if each.by_place else (f"--{plain.replace('_', '-')}",)
    return Option(
        name=flags[0].strip("-").replace("-", "_") if flags else plain,
        path=path,
        type=Literal[tuple(among.names())] if among else each.type,
        many=each.many,
        default=each.default,
        help=each.help,
        flags=flags,
        metavar=metavar.text if metavar else None if flags else plain.upper(),
        group=group,
        tasks=each.tasks,
        bounds=tuple(marker for marker in each.markers if _is_bound(marker)),
    )


def _is_bound(marker: object) -> bool:
    return type(marker).__module__.startswith("annotated_types")


def _title(cls: type) -> str:
    """The heading of a configuration class: its docstring's first line, without the full stop."""
    return docstring(cls).summary.rstrip(".")
