"""The options of defences: `--defence NAME`, and the settings of all registered defences.

Python gives an object, such as `DPSGD(epsilon=8)`. On the command line `--defence` names a class,
and each field of a registered class is an option. Its help is its entry in the docstring.
"""

from collections.abc import Iterator
from dataclasses import MISSING, field, fields, make_dataclass
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from cyclopts import Parameter
from docstring_parser import parse

from vestige.arguments import Number, Whole
from vestige.defences.registry import Defence, NoDefence, defences
from vestige.session import is_options

NONE = NoDefence.name
_HELP = """dp-sgd and dp-fedavg bound what the model reveals of each text or user. adversarial and
triplet hide who wrote a text. goldfish never learns one token in four."""


def _settings(kind: Any) -> Iterator[tuple[str, Any, str]]:
    """Name, annotation and help of each setting of a defence."""
    hints, told = get_type_hints(kind, include_extras=True), _entries(kind)
    for one in fields(kind):
        markers = getattr(hints[one.name], "__metadata__", ())
        if any(getattr(marker, "parse", None) is False for marker in markers):
            continue
        default = one.default not in (None, False, MISSING)
        shown = f" [{one.default}]" if default else ""
        yield one.name, hints[one.name], f"{told.get(one.name, '')}{shown}"


def _entries(kind: type) -> dict[str, str]:
    """Help by attribute, from the docstrings of a class and its bases."""
    return {
        entry.arg_name: " ".join((entry.description or "").split())
        for cls in reversed(kind.__mro__)
        for entry in parse(cls.__doc__ or "").params
    }


def _made() -> Any:
    """A dataclass with the name of a defence, and the settings of all, None unless given."""
    hints: dict[str, Any] = {}
    helps: dict[str, dict[str, list[str]]] = {}
    for name, kind in defences().items():
        for setting, hint, text in _settings(kind):
            hints.setdefault(setting, hint)
            helps.setdefault(setting, {}).setdefault(text, []).append(name)
    names: Any = Literal[(NONE, *defences())]
    made: list[Any] = [("defence", Annotated[names, Parameter(help=_HELP)], field(default=NONE))]
    for setting, hint in hints.items():
        text = " ".join(f"{', '.join(who)}: {what}" for what, who in helps[setting].items())
        made.append((setting, _with(_optional(hint), Parameter(help=text)), field(default=None)))
    named = {"__module__": __name__}
    cls = make_dataclass("DefenceOptions", made, frozen=True, kw_only=True, namespace=named)
    return Parameter(name="*")(cls)


def _with(hint: Any, marker: Parameter) -> Any:
    return Annotated[hint, marker]


def _optional(hint: Any) -> Any:
    """An annotation that allows None, and whose numbers are read as they are written."""
    if get_origin(hint) is Annotated:
        inner, *markers = get_args(hint)
        return Annotated[(_optional(inner), *markers)]
    if get_origin(hint) in (Union, UnionType):
        kept = [one for one in get_args(hint) if one is not type(None)]
        return _optional(kept[0]) if len(kept) == 1 else hint
    kinds: dict[Any, Any] = {int: Whole, float: Number}
    return kinds.get(hint, hint) | None


DefenceOptions = _made()

if TYPE_CHECKING:
    DefenceLike: TypeAlias = Defence | None
else:
    DefenceLike = DefenceOptions | None
    """What a command line gives."""


def as_defence(given: Any) -> Defence:
    """The defence that was given: an object, or a name with its settings.

    Raises:
        ValueError: a setting belongs to another defence, is missing or is out of range.
    """
    if given is None:
        return NoDefence()
    if not is_options(given):
        defence: Defence = given
        return defence
    chosen = {one.name: getattr(given, one.name) for one in fields(given)}
    name = chosen.pop("defence")
    values = {setting: value for setting, value in chosen.items() if value is not None}
    known = {kind: {one.name: one for one in fields(cls)} for kind, cls in defences().items()}  # type: ignore[arg-type]
    for setting in values:
        able = [kind for kind, own in known.items() if setting in own]
        if name not in able:
            raise ValueError(f"`{setting}` needs `defence` {' or '.join(able)}")
    if name == NONE:
        return NoDefence()
    for setting, one in known[name].items():
        required = one.default is MISSING and one.default_factory is MISSING
        if required and setting not in values:
            raise ValueError(f"`defence` {name} needs `{setting}`")
    return defences()[name](**values)


def as_options(defence: Defence) -> Any:
    """A defence as options, for the record; a defence that is not registered as it is."""
    if defences().get(defence.name) is not type(defence):
        return defence
    own = {name for name, _, _ in _settings(type(defence))}
    changed = {
        one.name: getattr(defence, one.name)
        for one in fields(defence)  # type: ignore[arg-type]
        if one.name in own and getattr(defence, one.name) != one.default
    }
    return DefenceOptions(defence=defence.name, **changed)
