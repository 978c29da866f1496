"""The options of a verb: from its signature, from words or a `--config` file, and usage errors.

A usage error is one line. It names the option and never repeats its value, which may be a secret.
"""

import inspect
import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from cyclopts import App, Parameter
from cyclopts.config import Dict
from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

from vestige.arguments import RUN
from vestige.data.files import read_bytes
from vestige.errors import DataError, reason

PROJECT = ("check", "report")
"""Commands with options in `vestige.toml` or `pyproject.toml`."""

FOLDERS = {"check": Path("check")}
"""Run folders of commands that need no --out."""

CONFIG_BYTES = 2**20
"""Largest configuration file."""

_REMEDY = "Give options by name as YAML, TOML or JSON, or a run folder."
_TABLES: dict[str, tuple[str, ...]] = {"vestige.toml": (), "pyproject.toml": ("tool", "vestige")}
_NAME = re.compile(r"-{1,3}[A-Za-z0-9_.-]{0,40}")
_NUMBERS = {int: "a whole number", float: "a number"}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_ADDED = {
    "show_secrets": Annotated[bool, RUN, Parameter(help="Show texts unredacted.")],
    "json": Annotated[bool, RUN, Parameter(help="Print the summary as JSON.")],
    "config": Annotated[
        Path | None,
        RUN,
        Parameter(help="Options from YAML, TOML, JSON, or a run folder, which it repeats."),
    ],
}
"""Options that the command line adds to every verb."""


class UsageError(Exception):
    """The words of a command line are not those of the verb; the message is one line."""


def verb_app(command: str, function: Callable[..., Any]) -> App:
    """A cyclopts application that reads the options of a verb, called by a command."""

    def nothing(**_: Any) -> None:
        pass

    signature = _command_line(function)
    nothing.__signature__ = signature  # type: ignore[attr-defined]
    nothing.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    nothing.__doc__ = inspect.getdoc(function)
    app = App(
        name=command,
        help_flags=(),
        version_flags=(),
        default_parameter=Parameter(
            negative=(),
            allow_repeating=True,
            allow_leading_hyphen=True,
            json_list=False,
            json_dict=False,
        ),
    )
    app.default(nothing)
    return app


def _command_line(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a verb on the command line, where the run folder is required."""
    public = inspect.signature(function).parameters
    own = inspect.signature(inspect.unwrap(function)).parameters
    parameters = []
    for name, one in public.items():
        if one.kind is not one.KEYWORD_ONLY:  # with a dash, it is a misspelt option
            hint = Annotated[one.annotation, Parameter(allow_leading_hyphen=False)]  # type: ignore[name-defined]
            parameters.append(one.replace(annotation=hint))
        elif name == "out" and "out" not in own:
            if (folder := FOLDERS.get(function.__name__)) is not None:
                text = Parameter(help="Run folder. Rerun to resume.")
                one = one.replace(annotation=Annotated[one.annotation, text])
            parameters.append(one.replace(default=folder or one.empty))
        elif name != "monitor":
            parameters.append(one)
    for name, hint in _ADDED.items():
        if name not in public:
            default = False if name != "config" else None
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=hint))
    return inspect.Signature(parameters)


def arguments_of(app: App, *, described: bool = False) -> list[Any]:
    """The arguments and options of a verb, those of options dataclasses one by one."""
    every = app.assemble_argument_collection(parse_docstring=described)
    return [one for one in every if one.names[:1] != ("*",)]


def flags_of(function: Callable[..., Any]) -> dict[str, str]:
    """What each parameter is called on the command line, by its name in Python."""
    return {one.field_info.name: shown(one) for one in arguments_of(verb_app("", function))}


def shown(argument: Any) -> str:
    """What a message calls an argument."""
    own = argument.field_info
    return str(own.name).upper() if own.is_positional else str(argument.name)


def number_type(argument: Any) -> Any:
    """int, float or bool, if the argument is one."""
    kinds = [one for one in (argument.hint, *get_args(argument.hint)) if one in (bool, int, float)]
    return kinds[0] if kinds else None


def is_list(argument: Any) -> bool:
    """Whether an option can be given several times."""
    origins = {get_origin(one) for one in (argument.hint, *get_args(argument.hint))}
    return bool(origins & {list, tuple, Sequence})


def bounds(argument: Any) -> str:
    """The bounds of a number in words."""
    found = _bounds_of(argument.field_info.annotation)
    return " and ".join(
        f"{word} {found[sign]:,}" for sign, word in _BOUNDS.items() if sign in found
    )


def _bounds_of(hint: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    for inner in get_args(hint):
        found |= _bounds_of(inner)
        for sign in _BOUNDS:
            if isinstance(limit := getattr(inner, sign, None), int | float):
                found[sign] = limit
    return found


def parsed(app: App, words: Sequence[str]) -> dict[str, Any]:
    """The arguments that a command line or its `--config` file gives, by parameter.

    Raises:
        UsageError: a word is no option, or a value does not fit its option.
        DataError: the file of `--config` cannot be used.
    """
    named = {name: one for one in arguments_of(app) for name in one.names}
    file, rest = None, iter(words)
    for word in rest:
        name, equals, end = word.partition("=")
        value: str | None = end
        if word == "--":
            break
        if name in named and not equals and number_type(named[name]) is not bool:
            value = next(rest, None)
            if value is not None and (other := value.partition("=")[0]) in named:
                raise UsageError(f"{name} needs a value, got the option {other}.")
        if name == "--config":
            file = value
    if file is not None:
        app.config = (_configuration(Path(file), app),)
    elif (project := _of_project(app)) is not None:
        app.config = (project,)
    try:
        _, bound, _ = app.parse_args(list(words), print_error=False, exit_on_error=False)
    except CycloptsError as error:
        raise UsageError(_usage(error, app)) from None
    folder = FOLDERS.get(app.name[0].removeprefix("vestige "))
    return ({} if folder is None else {"out": folder}) | dict(bound.arguments)


def _usage(error: CycloptsError, app: App) -> str:
    """One line about a usage error, without the value that was given."""
    own = error.argument
    name = "The command line" if own is None else shown(own)
    if isinstance(error, UnusedCliTokensError):
        return _unexpected(len(error.unused_tokens or ()))
    if isinstance(error, UnknownOptionError):
        return _unknown((error.token.keyword or error.token.value).partition("=")[0], app)
    if isinstance(error, MissingArgumentError):
        if error.tokens_so_far or error.keyword:
            return f"{name} needs a value."
        return f"Missing {', '.join(_missing(error.root_input_tokens or [], app)) or name}."
    if isinstance(error, CoercionError) and own is not None:
        if number_type(own) is bool:
            return f"{name} takes no value but true or false."
        return f"{name} must be {_wanted(own)}."
    if isinstance(error, ValidationError) and own is not None:
        return f"{name} must be {bounds(own)}."
    return f"{name} cannot be read."


def _wanted(argument: Any) -> str:
    """The values of an option in words."""
    if choices := argument.get_choices():
        return f"one of {', '.join(choices)}"
    return _NUMBERS.get(number_type(argument), "another value")


def _missing(words: Sequence[str], app: App) -> list[str]:
    """All required arguments that were not given."""
    required = [one for one in arguments_of(app) if one.required]
    if words and not words[0].startswith("-"):  # the first place is taken
        first = [one for one in required if one.field_info.is_positional][:1]
        required = [one for one in required if one not in first]
    given = {word.partition("=")[0] for word in words}
    return [shown(one) for one in required if not given.intersection(one.names)]


def _unexpected(number: int) -> str:
    return f"{number} unexpected argument{'s' * (number != 1)}. Quote texts of several words."


def _unknown(name: str, app: App) -> str:
    known = [name for one in arguments_of(app) for name in one.names]
    if name in known:  # after --
        return _unexpected(1)
    if not _NAME.fullmatch(name):
        return "A word that begins with a dash is no option of this command."
    near = get_close_matches(name, known, n=1)
    return f"Unknown option {name}.{f' Did you mean {near[0]}?' if near else ''}"


def _configuration(path: Path, app: App) -> Dict:
    """The options in a file as a source of cyclopts; those of the command line win.

    Raises:
        DataError: it cannot be read, has a key that is no option of the command, or a value that
            its option does not take.
    """
    if (path / "run" / "run.json").is_file():  # of a training
        path = path / "run" / "run.json"
    elif path.is_dir():
        path = path / "run.json"
    verb = app.name[0].removeprefix("vestige ")
    return _checked_options(_entries(path, verb), path, app)


def _of_project(app: App) -> Dict | None:
    """The options of a command in `vestige.toml` or `pyproject.toml`; None if no file has any.

    The file is in the current folder, or in the nearest folder above that has one, up to the root
    of the repository.

    Raises:
        DataError: as `_configuration`, or a table belongs to no such command.
    """
    verb = app.name[0].removeprefix("vestige ")
    if verb not in PROJECT:
        return None
    here = Path.cwd()
    above = (here, *here.parents)
    root = next((place for place, one in enumerate(above) if (one / ".git").exists()), 0)
    for folder in above[: root + 1]:
        for name, keys in _TABLES.items():
            path = folder / name
            if not path.exists():
                continue
            found: Any = _entries(path, verb)
            for key in keys:
                found = found.get(key, {}) if isinstance(found, Mapping) else {}
            if not found:
                continue
            for key, own in (found if isinstance(found, Mapping) else {"vestige": found}).items():
                if key not in PROJECT or not isinstance(own, Mapping):
                    table = ".".join((*keys, verb))
                    raise DataError(
                        f"{path}: {key!r} is no table of options",
                        remedy=f"Write options of vestige {verb} below [{table}].",
                    )
            if verb in found:
                print(f"Options from {path}", file=sys.stderr)
                return _checked_options(found[verb], path, app)
    return None


def _checked_options(entries: Mapping[Any, Any], path: Path, app: App) -> Dict:
    """Entries of a file as a source of cyclopts.

    Raises:
        DataError: a key is no option of the command, or a value does not fit its option.
    """
    verb = app.name[0].removeprefix("vestige ")
    known: dict[str, Any] = {}
    for one in arguments_of(app):  # by its name in Python or on the command line
        known |= {one.field_info.name.replace("_", "-"): one, one.name.removeprefix("--"): one}
    options: dict[str, Any] = {}
    for key, value in entries.items():
        argument = known.get(str("null" if key is None else key).replace("_", "-"))  # YAML's null
        if argument is None or argument.name == "--config":
            raise DataError(
                f"{path}: {str(key)!r} is no option of vestige {verb}",
                remedy=f"See vestige {verb} --help. A key is an option without dashes.",
            )
        name = argument.name.removeprefix("--")
        if name in options:
            raise DataError(f"{path} sets {name!r} twice", remedy="Keep one of the two.")
        if value is not None:
            _check_type(path, argument, value)
            options[name] = value
    return Dict(options, source=str(path), use_commands_as_keys=False)


def _entries(path: Path, verb: str) -> Mapping[Any, Any]:
    """The options in a file, or the arguments of a run."""
    content = read_bytes(path, limit=CONFIG_BYTES, error=DataError, remedy=_REMEDY)
    try:
        found = _parsed_file(path, content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {reason(error)}", remedy=_REMEDY) from error
    if not isinstance(found, Mapping):
        raise DataError(f"{path} holds no options by name", remedy=_REMEDY)
    if "arguments" not in found:
        return found
    if found.get("verb") != verb or not isinstance(found["arguments"], Mapping):
        raise DataError(
            f"{path} is a run of another command", remedy=f"Give a run of vestige {verb}."
        )
    return found["arguments"]


def _parsed_file(path: Path, text: str) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix == ".json":
        return json.loads(text, object_pairs_hook=partial(_once, path))
    import yaml  # type: ignore[import-untyped]

    class Once(yaml.SafeLoader):  # type: ignore[misc]
        """Rejects a key that occurs twice; the plain loader keeps the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
            _once(path, [(str(key), None) for key in keys])
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return found

    try:
        return yaml.load(text, Loader=Once)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark else ""
        raise DataError(f"{path} is not YAML{place}", remedy=_REMEDY) from error


def _once(path: Path, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DataError(f"{path} sets a key twice", remedy="Keep one of the two.")
    return found


def _check_type(path: Path, argument: Any, value: Any) -> None:
    """Raise DataError unless a value has the type of its option; YAML reads `yes` as no text."""
    values = value if isinstance(value, list) else [value]
    if values is value and not is_list(argument):
        raise DataError(f"{path}: {shown(argument)} takes one value", remedy="Give one.")
    kind, choices = number_type(argument), argument.get_choices()
    types: Any = {bool: bool, int: int, float: int | float}.get(kind, str)
    wanted = {bool: "true or false", **_NUMBERS}.get(kind, "text, in quotation marks")
    if choices:
        types, wanted = str | int, f"{_wanted(argument)}, in quotation marks"
    if not all(
        isinstance(one, types) and isinstance(one, bool) == (kind is bool) for one in values
    ):
        raise DataError(f"{path}: {shown(argument)} must be {wanted}", remedy="Change that entry.")
