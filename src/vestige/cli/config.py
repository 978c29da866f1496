"""Options from a file: `--config FILE`, in YAML, TOML or JSON, or a run folder to repeat."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cyclopts import App
from cyclopts.config import Dict

from vestige.cli.usage import is_list, number_type, shown
from vestige.data.regular_file import read_bytes
from vestige.errors import DataError, reason

LARGEST = 2**20
"""Bytes of a configuration file."""

_REMEDY = "Give options by name as YAML, TOML or JSON, or a run folder."


def loaded(path: Path, app: App) -> Dict:
    """The options of a file as a source of cyclopts; those of the command line win.

    Raises:
        DataError: it cannot be read, has a key that is no option of the command, or a value that
            its option does not take.
    """
    path = _file_of(path)
    verb = app.name[0].removeprefix("vestige ")
    entries = _of_run(_read(path), path, verb)
    found = app.assemble_argument_collection(parse_docstring=False)
    every = [one for one in found if one.name != "*"]  # a dataclass stands for its fields
    known = {f"--{one.field_info.name.replace('_', '-')}": one for one in every}  # of Python
    known |= {one.name: one for one in every}
    options: dict[str, Any] = {}
    for key, value in entries.items():
        name = str("null" if key is None else key).replace("_", "-")  # YAML reads null as None
        argument = known.get(f"--{name}")
        if argument is None or name == "config":
            raise DataError(
                f"{path}: {str(key)!r} is no option of vestige {verb}",
                remedy=f"See vestige {verb} --help. A key is an option without dashes.",
            )
        name = argument.name.removeprefix("--")
        if name in options:
            raise DataError(f"{path} sets {name!r} twice", remedy="Keep one of the two.")
        if value is not None:
            _check(path, argument, value)
            options[name] = value
    return Dict(options, source=str(path), use_commands_as_keys=False)


def _file_of(path: Path) -> Path:
    """The file itself, or `run.json` of a run folder; a training keeps its own in `run`."""
    inner = path / "run" / "run.json"
    if inner.is_file():
        return inner
    return path / "run.json" if path.is_dir() else path


def _read(path: Path) -> Any:
    content = read_bytes(path, limit=LARGEST, error=DataError, remedy=_REMEDY)
    try:
        return _parsed(path, content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {reason(error)}", remedy=_REMEDY) from error


def _parsed(path: Path, text: str) -> Any:
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


def _of_run(read: Any, path: Path, verb: str) -> Mapping[str, Any]:
    """The options in a file, or the arguments of a run."""
    if not isinstance(read, Mapping):
        raise DataError(f"{path} holds no options by name", remedy=_REMEDY)
    if "arguments" not in read:
        if "command" in read and "result" in read:
            raise DataError(
                f"{path} does not record its options",
                remedy="An older version of Vestige wrote it. Its `command` shows them.",
            )
        return read
    if read.get("verb") != verb or not isinstance(read["arguments"], Mapping):
        raise DataError(
            f"{path} is a run of another command", remedy=f"Give a run of vestige {verb}."
        )
    return read["arguments"]


def _check(path: Path, argument: Any, value: Any) -> None:
    """Raise DataError unless a value has the type of its option; YAML reads `yes` as no text."""
    many = isinstance(value, list)
    if many and not is_list(argument):
        raise DataError(f"{path}: {shown(argument)} takes one value", remedy="Give one.")
    kind = number_type(argument)
    wanted = {bool: "true or false", int: "a whole number", float: "a number"}
    types: dict[Any, Any] = {int: int, float: int | float}
    for one in value if many else [value]:
        if kind is bool or isinstance(one, bool):
            fits = kind is bool and isinstance(one, bool)
        elif argument.get_choices():
            fits = isinstance(one, str | int)
        else:
            fits = isinstance(one, types.get(kind, str))
        if not fits:
            choices = argument.get_choices()
            told = wanted.get(kind, "text, in quotation marks")
            if choices:
                told = f"one of {', '.join(choices)}, in quotation marks"
            raise DataError(
                f"{path}: {shown(argument)} must be {told}", remedy="Change that entry."
            )
