"""The options of defences: `--defence NAME`, and the settings of all registered defences.

Python gives an object, such as `DPSGD(epsilon=8)`. On the command line `--defence` names a class,
and each field of a registered class is an option. Its help is its entry in the docstring.
"""

from collections.abc import Mapping
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
_KINDS: dict[Any, Any] = {int: Whole, float: Number}


def settings_by_option() -> dict[str, dict[str, tuple[Any, str]]]:
    """Annotation and help of every setting: by option, then by the defence's name."""
    table: dict[str, dict[str, tuple[Any, str]]] = {}
    kinds: Mapping[str, Any] = defences()
    for name, kind in kinds.items():
        hints = get_type_hints(kind, include_extras=True)
        helps = {
            entry.arg_name: " ".join((entry.description or "").split())
            for cls in reversed(kind.__mro__)
            for entry in parse(cls.__doc__ or "").params
        }
        for one in fields(kind):
            hint = hints[one.name]
            markers = getattr(hint, "__metadata__", ())
            if any(getattr(marker, "parse", None) is False for marker in markers):
                continue
            default = "" if one.default in (None, False, MISSING) else f" [{one.default}]"
            own = (hint, f"{helps.get(one.name, '')}{default}")
            table.setdefault(one.name, {})[name] = own
    return table


def options_class() -> Any:
    """A dataclass with the name of a defence, and the settings of all, None unless given."""
    names: Any = Literal[(NONE, *defences())]
    options: list[Any] = [("defence", _marked(names, _HELP), field(default=NONE))]
    for option, owners in settings_by_option().items():
        by_help: dict[str, list[str]] = {}
        for name, (_, text) in owners.items():
            by_help.setdefault(text, []).append(name)
        text = " ".join(f"{', '.join(who)}: {what}" for what, who in by_help.items())
        hint = next(iter(owners.values()))[0]
        options.append((option, _marked(_optional(hint), text), field(default=None)))
    own = {"__module__": __name__}
    made = make_dataclass("DefenceOptions", options, frozen=True, kw_only=True, namespace=own)
    return Parameter(name="*")(made)


def _marked(hint: Any, text: str) -> Any:
    return Annotated[hint, Parameter(help=text)]


def _optional(hint: Any) -> Any:
    """An annotation that allows None, and whose numbers are read as they are written."""
    if get_origin(hint) is Annotated:
        inner, *markers = get_args(hint)
        return Annotated[(_optional(inner), *markers)]
    if get_origin(hint) in (Union, UnionType):
        others = [one for one in get_args(hint) if one is not type(None)]
        return _optional(others[0]) if len(others) == 1 else hint
    return _KINDS.get(hint, hint) | None


DefenceOptions = options_class()

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
        return given  # type: ignore[no-any-return]
    name, table = given.defence, settings_by_option()
    values = {option: getattr(given, option) for option in table}
    values = {option: value for option, value in values.items() if value is not None}
    for option in values:
        if name not in table[option]:
            raise ValueError(f"`{option}` needs `defence` {' or '.join(table[option])}")
    if name == NONE:
        return NoDefence()
    kind: Any = defences()[name]
    for one in fields(kind):
        required = one.default is MISSING and one.default_factory is MISSING
        if required and one.name not in values:
            raise ValueError(f"`defence` {name} needs `{one.name}`")
    return kind(**values)  # type: ignore[no-any-return]


def as_options(defence: Defence) -> Any:
    """A defence as options, for the record; a defence that is not registered as it is."""
    name = defence.name
    if defences().get(name) is not type(defence):
        return defence
    own = {option for option, owners in settings_by_option().items() if name in owners}
    changed = {
        one.name: getattr(defence, one.name)
        for one in fields(defence)  # type: ignore[arg-type]
        if one.name in own and getattr(defence, one.name) != one.default
    }
    return DefenceOptions(defence=name, **changed)
