"""Values of a verb's options, from the command line and from option files; usage errors.

A usage error is one line. It names the option but not its value, which may be secret.
"""

import json
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from cyclopts import App
from cyclopts.config import Dict
from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

from vestige.cli.options import FOLDERS, arguments_of, bounds, display_name, is_list, number_type
from vestige.data.files import read_bytes
from vestige.errors import DataError, reason

PROJECT = ("check", "report")
"""Commands with options in `vestige.toml` or `pyproject.toml`."""

CONFIG_BYTES = 2**20
"""Largest option file."""

_REMEDY = "Give options by name as YAML, TOML or JSON, or a run folder."
_TABLES: dict[str, tuple[str, ...]] = {"vestige.toml": (), "pyproject.toml": ("tool", "vestige")}
_OPTION_NAME = re.compile(r"-{1,3}[A-Za-z0-9_.-]{0,40}")
_NUMBERS = {int: "a whole number", float: "a number"}


class UsageError(Exception):
    """The command line does not fit the verb; the message is one line."""


def parse_words(app: App, words: Sequence[str]) -> dict[str, Any]:
    """The arguments of a command line and of option files, by parameter.

    Raises:
        UsageError: a word is not an option, or a value does not fit its option.
        DataError: an option file cannot be used.
    """
    file = _config_file(app, words)
    if file is not None:
        app.config = (_file_options(Path(file), app),)
    elif (project := _project_options(app)) is not None:
        app.config = (project,)
    try:
        _, bound, _ = app.parse_args(list(words), print_error=False, exit_on_error=False)
    except CycloptsError as error:
        raise UsageError(_usage_message(error, app)) from None
    folder = FOLDERS.get(_verb_of(app))
    return ({} if folder is None else {"out": folder}) | dict(bound.arguments)


def _config_file(app: App, words: Sequence[str]) -> str | None:
    """The value of --config; UsageError if an option is followed by another option."""
    arguments = {name: argument for argument in arguments_of(app) for name in argument.names}
    file, rest = None, iter(words)
    for word in rest:
        name, equals, after = word.partition("=")
        value: str | None = after
        if word == "--":
            break
        if name in arguments and not equals and number_type(arguments[name]) is not bool:
            value = next(rest, None)
            if value is not None and (option := value.partition("=")[0]) in arguments:
                raise UsageError(f"{name} needs a value, got the option {option}.")
        if name == "--config":
            file = value
    return file


def _verb_of(app: App) -> str:
    return app.name[0].removeprefix("vestige ")


def _usage_message(error: CycloptsError, app: App) -> str:
    """One line about a usage error, without the user's value."""
    argument = error.argument
    name = "The command line" if argument is None else display_name(argument)
    if isinstance(error, UnusedCliTokensError):
        return _unexpected(len(error.unused_tokens or ()))
    if isinstance(error, UnknownOptionError):
        return _unknown((error.token.keyword or error.token.value).partition("=")[0], app)
    if isinstance(error, MissingArgumentError):
        if error.tokens_so_far or error.keyword:
            return f"{name} needs a value."
        return f"Missing {', '.join(_missing(error.root_input_tokens or [], app)) or name}."
    if isinstance(error, CoercionError) and argument is not None:
        if number_type(argument) is bool:
            return f"{name} takes only true or false."
        return f"{name} must be {_value_kind(argument)}."
    if isinstance(error, ValidationError) and argument is not None:
        return f"{name} must be {bounds(argument)}."
    return f"{name} cannot be read."


def _value_kind(argument: Any) -> str:
    """The values of an option in words."""
    if choices := argument.get_choices():
        return f"one of {', '.join(choices)}"
    return _NUMBERS.get(number_type(argument), "another value")


def _missing(words: Sequence[str], app: App) -> list[str]:
    """All required arguments that the command line lacks."""
    required = [argument for argument in arguments_of(app) if argument.required]
    if words and not words[0].startswith("-"):  # the first positional argument is there
        first = [argument for argument in required if argument.field_info.is_positional][:1]
        required = [argument for argument in required if argument not in first]
    options = {word.partition("=")[0] for word in words}
    return [
        display_name(argument) for argument in required if not options.intersection(argument.names)
    ]


def _unexpected(number: int) -> str:
    return f"{number} unexpected argument{'s' * (number != 1)}. Quote texts of several words."


def _unknown(name: str, app: App) -> str:
    options = [option for argument in arguments_of(app) for option in argument.names]
    if name in options:  # after --
        return _unexpected(1)
    if not _OPTION_NAME.fullmatch(name):
        return "A word that begins with a dash is not an option of this command."
    similar = get_close_matches(name, options, n=1)
    return f"Unknown option {name}.{f' Did you mean {similar[0]}?' if similar else ''}"


def _file_options(path: Path, app: App) -> Dict:
    """The options in a --config file or run folder; the command line overrides them.

    Raises:
        DataError: it cannot be read, or see `_checked_options`.
    """
    if (path / "run" / "run.json").is_file():  # a training
        path = path / "run" / "run.json"
    elif path.is_dir():
        path = path / "run.json"
    return _checked_options(_read_entries(path, _verb_of(app)), path, app)


def _project_options(app: App) -> Dict | None:
    """The options of a command in `vestige.toml` or `pyproject.toml`; None without any.

    The nearest file counts, from the current folder up to the root of the repository.

    Raises:
        DataError: as `_file_options`, or a table is not that of a command.
    """
    verb = _verb_of(app)
    if verb not in PROJECT:
        return None
    here = Path.cwd()
    folders = (here, *here.parents)
    root = next((depth for depth, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    for folder in folders[: root + 1]:
        for name, keys in _TABLES.items():
            path = folder / name
            if not path.exists():
                continue
            tables: Any = _read_entries(path, verb)
            for key in keys:
                tables = tables.get(key, {}) if isinstance(tables, Mapping) else {}
            if not tables:
                continue
            _check_tables(tables, keys, path, verb)
            if verb in tables:
                print(f"Options from {path}", file=sys.stderr)
                return _checked_options(tables[verb], path, app)
    return None


def _check_tables(tables: Any, keys: tuple[str, ...], path: Path, verb: str) -> None:
    """Raise DataError unless each entry is a table of options of a command."""
    entries = tables if isinstance(tables, Mapping) else {"vestige": tables}
    for key, options in entries.items():
        if key not in PROJECT or not isinstance(options, Mapping):
            table = ".".join((*keys, verb))
            raise DataError(
                f"{path}: {key!r} is not a table of options",
                remedy=f"Write options of vestige {verb} below [{table}].",
            )


def _checked_options(entries: Mapping[Any, Any], path: Path, app: App) -> Dict:
    """Entries of a file as a configuration source of cyclopts.

    Raises:
        DataError: a key is not an option of the command, or a value does not fit its option.
    """
    verb = _verb_of(app)
    arguments: dict[str, Any] = {}
    for argument in arguments_of(app):  # by the names in Python and on the command line
        arguments[argument.field_info.name.replace("_", "-")] = argument
        arguments[argument.name.removeprefix("--")] = argument
    options: dict[str, Any] = {}
    for key, value in entries.items():
        key_name = str("null" if key is None else key).replace("_", "-")  # null is None in YAML
        argument = arguments.get(key_name)
        if argument is None or argument.name == "--config":
            raise DataError(
                f"{path}: {str(key)!r} is not an option of vestige {verb}",
                remedy=f"See vestige {verb} --help. A key is an option without dashes.",
            )
        name = argument.name.removeprefix("--")
        if name in options:
            raise DataError(f"{path} sets {name!r} twice", remedy="Keep one of the two.")
        if value is not None:
            _check_type(path, argument, value)
            options[name] = value
    return Dict(options, source=str(path), use_commands_as_keys=False)


def _read_entries(path: Path, verb: str) -> Mapping[Any, Any]:
    """The options in a file, or the arguments in a run."""
    content = read_bytes(path, limit=CONFIG_BYTES, error=DataError, remedy=_REMEDY)
    try:
        entries = _parse_file(path, content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {reason(error)}", remedy=_REMEDY) from error
    if not isinstance(entries, Mapping):
        raise DataError(f"{path} has no options by name", remedy=_REMEDY)
    if "arguments" not in entries:
        return entries
    if entries.get("verb") != verb or not isinstance(entries["arguments"], Mapping):
        raise DataError(
            f"{path} is a run of another command", remedy=f"Give a run of vestige {verb}."
        )
    return entries["arguments"]


def _parse_file(path: Path, text: str) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix == ".json":
        return json.loads(text, object_pairs_hook=partial(_unique_keys, path))
    import yaml  # type: ignore[import-untyped]

    class UniqueKeyLoader(yaml.SafeLoader):  # type: ignore[misc]
        """Rejects a repeated key; the base class keeps the last value."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
            _unique_keys(path, [(str(key), None) for key in keys])
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            return mapping

    try:
        return yaml.load(text, Loader=UniqueKeyLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise DataError(f"{path} is not YAML{where}", remedy=_REMEDY) from error


def _unique_keys(path: Path, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise DataError(f"{path} sets a key twice", remedy="Keep one of the two.")
    return entries


def _check_type(path: Path, argument: Any, value: Any) -> None:
    """Raise DataError unless a value has the type of its option; YAML reads `yes` as a bool."""
    values = value if isinstance(value, list) else [value]
    if values is value and not is_list(argument):
        raise DataError(f"{path}: {display_name(argument)} takes one value", remedy="Give one.")
    number = number_type(argument)
    types: Any = {bool: bool, int: int, float: int | float}.get(number, str)
    kind = {bool: "true or false", **_NUMBERS}.get(number, "text, in quotation marks")
    if argument.get_choices():
        types, kind = str | int, f"{_value_kind(argument)}, in quotation marks"
    for item in values:
        if not isinstance(item, types) or isinstance(item, bool) != (number is bool):
            raise DataError(
                f"{path}: {display_name(argument)} must be {kind}", remedy="Change that entry."
            )
