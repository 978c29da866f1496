"""Options of defences: `--defence NAME`, and the settings of all registered defences.

Python callers pass an object, such as `DPSGD(epsilon=8)`. On the command line `--defence` names a
class, and each field of a registered class is an option with the help of its docstring.
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

NO_DEFENCE = NoDefence.name
_HELP = """dp-sgd and dp-fedavg bound what the model reveals of each text or user. adversarial and
triplet hide who wrote a text. goldfish never learns one token in four."""
_PARSED_TYPES: dict[Any, Any] = {int: Whole, float: Number}


def settings_by_option() -> dict[str, dict[str, tuple[Any, str]]]:
    """Annotation and help of all settings by option, then by name of the defence."""
    table: dict[str, dict[str, tuple[Any, str]]] = {}
    classes: Mapping[str, Any] = defences()
    for name, defence_class in classes.items():
        hints = get_type_hints(defence_class, include_extras=True)
        helps = {
            entry.arg_name: " ".join((entry.description or "").split())
            for base in reversed(defence_class.__mro__)
            for entry in parse(base.__doc__ or "").params
        }
        for setting in fields(defence_class):
            hint = hints[setting.name]
            markers = getattr(hint, "__metadata__", ())
            if any(getattr(marker, "parse", None) is False for marker in markers):
                continue
            default = "" if setting.default in (None, False, MISSING) else f" [{setting.default}]"
            entry = (hint, f"{helps.get(setting.name, '')}{default}")
            table.setdefault(setting.name, {})[name] = entry
    return table


def options_class() -> Any:
    """A dataclass with the name of a defence and the settings of all defences, None by default."""
    names: Any = Literal[(NO_DEFENCE, *defences())]
    options: list[Any] = [("defence", _with_help(names, _HELP), field(default=NO_DEFENCE))]
    for option, owners in settings_by_option().items():
        by_help: dict[str, list[str]] = {}
        for name, (_, text) in owners.items():
            by_help.setdefault(text, []).append(name)
        help_text = " ".join(f"{', '.join(users)}: {text}" for text, users in by_help.items())
        hint = next(iter(owners.values()))[0]
        options.append((option, _with_help(_optional(hint), help_text), field(default=None)))
    module = {"__module__": __name__}
    options_type = make_dataclass(
        "DefenceOptions", options, frozen=True, kw_only=True, namespace=module
    )
    return Parameter(name="*")(options_type)


def _with_help(hint: Any, text: str) -> Any:
    return Annotated[hint, Parameter(help=text)]


def _optional(hint: Any) -> Any:
    """The annotation with None allowed and strict parsing of numbers."""
    if get_origin(hint) is Annotated:
        inner, *markers = get_args(hint)
        return Annotated[(_optional(inner), *markers)]
    if get_origin(hint) in (Union, UnionType):
        types = [inner_type for inner_type in get_args(hint) if inner_type is not type(None)]
        return _optional(types[0]) if len(types) == 1 else hint
    return _PARSED_TYPES.get(hint, hint) | None


DefenceOptions = options_class()

if TYPE_CHECKING:
    DefenceLike: TypeAlias = Defence | None
else:
    DefenceLike = DefenceOptions | None
    """The type on the command line."""


def as_defence(options: Any) -> Defence:
    """The defence of an object, or of options of the command line.

    Raises:
        ValueError: a setting belongs to another defence, is missing or is out of range.
    """
    if options is None:
        return NoDefence()
    if not is_options(options):
        return options  # type: ignore[no-any-return]
    name, table = options.defence, settings_by_option()
    values = {option: getattr(options, option) for option in table}
    values = {option: value for option, value in values.items() if value is not None}
    for option in values:
        if name not in table[option]:
            raise ValueError(f"`{option}` needs `defence` {' or '.join(table[option])}")
    if name == NO_DEFENCE:
        return NoDefence()
    defence_class: Any = defences()[name]
    for setting in fields(defence_class):
        required = setting.default is MISSING and setting.default_factory is MISSING
        if required and setting.name not in values:
            raise ValueError(f"`defence` {name} needs `{setting.name}`")
    return defence_class(**values)  # type: ignore[no-any-return]


def as_options(defence: Defence) -> Any:
    """A registered defence as options, for the record; others are returned unchanged."""
    name = defence.name
    if defences().get(name) is not type(defence):
        return defence
    own_settings = {option for option, owners in settings_by_option().items() if name in owners}
    changed = {
        setting.name: getattr(defence, setting.name)
        for setting in fields(defence)  # type: ignore[arg-type]
        if setting.name in own_settings and getattr(defence, setting.name) != setting.default
    }
    return DefenceOptions(defence=name, **changed)
