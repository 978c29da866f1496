"""Options from a file: `--config FILE`, where FILE is YAML, TOML, JSON or a run's `run.json`."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vestige.cli.error_lines import UsageError
from vestige.cli.parsing import parse
from vestige.data.regular_file import read_bytes
from vestige.errors import DataError, reason
from vestige.workflows.parameters import Option

LARGEST = 2**20
"""Bytes of a configuration file."""

_REMEDY = "Give options by name as YAML, TOML or JSON, a run.json, or a run directory."


def configured(
    path: Path, verb: str, options: Sequence[Option], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The values that a file sets and the command line does not.

    Args:
        path: the file, or a run directory.
        verb: whose options they are.
        options: of the verb.
        given: what the command line sets, which wins.

    Raises:
        DataError: the file cannot be read, has a key that is no option, or a value that its
            option does not take.
    """
    path = _file_of(path)
    entries = _of_run(_read(path), path, verb)
    by_name = {option.name: option for option in options}
    values: dict[str, Any] = {}
    for named, value in entries.items():
        key = "null" if named is None else named  # as YAML reads the name of that option
        option = by_name.get(str(key).replace("-", "_"))
        if option is None:
            raise DataError(
                f"{path} sets {str(key)!r}, which is no option of vestige {verb}",
                remedy=f"`vestige {verb} --help` lists them; a key is an option without dashes.",
            )
        if option.name in values:
            raise DataError(f"{path} sets {option.name!r} twice", remedy="Keep one of the two.")
        if option.name not in given and value is not None:
            values |= _value(option, value, path)
    return values


def _file_of(path: Path) -> Path:
    """The file itself, or that of a run directory; a training and an audit hold theirs in `run`."""
    inner = path / "run" / "run.json"
    if not path.is_dir() or inner.is_file():
        return inner if inner.is_file() else path
    return path / "run.json"


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
        """Refuses a key that stands twice, of which the plain loader keeps the last."""

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
    """The entries of an object; an error where a key stands twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DataError(f"{path} sets a key twice", remedy="Keep one of the two.")
    return found


def _of_run(read: Any, path: Path, verb: str) -> Mapping[str, Any]:
    if not isinstance(read, Mapping):
        raise DataError(f"{path} holds no options by name", remedy=_REMEDY)
    if "arguments" not in read:
        if "command" in read and "result" in read:
            raise DataError(
                f"{path} does not say with which options it was made",
                remedy="An earlier version of Vestige wrote it. Its `command` does say.",
            )
        return read
    if read.get("verb") != verb or not isinstance(read["arguments"], Mapping):
        raise DataError(
            f"{path} is of another verb than vestige {verb}", remedy=f"Give a run of {verb}."
        )
    return read["arguments"]


def _value(option: Option, value: Any, path: Path) -> dict[str, Any]:
    """A value of a file, read as the command line reads it."""
    flag = f"--{option.name.replace('_', '-')}"
    if isinstance(value, list) and not option.many:
        raise DataError(f"{path}: {flag} takes one value, not a list", remedy="Give one.")
    many = value if isinstance(value, list) else [value]
    for each in many:
        if not _fits(option, each):
            raise DataError(
                f"{path}: {flag} must be {_wanted(option)}", remedy="Change that entry."
            )
    if option.type is bool:
        return {option.name: value}
    words = [f"{flag}={each}" for each in many]
    try:
        return parse([replace(option, flags=(flag,), metavar=None)], words)
    except UsageError as error:
        raise DataError(f"{path}: {error}", remedy="Change that entry.") from None


def _fits(option: Option, value: Any) -> bool:
    """Whether a value has the type of its option; YAML reads `yes` and `0123` as no text."""
    if option.type is bool or isinstance(value, bool):
        return option.type is bool and isinstance(value, bool)
    if option.choices:
        return isinstance(value, str | int)
    numbers: dict[Any, Any] = {int: int, float: int | float}
    return isinstance(value, numbers.get(option.type, str))


def _wanted(option: Option) -> str:
    if option.choices:
        return f"one of {', '.join(option.choices)}, in quotation marks"
    wanted = {bool: "true or false", int: "a whole number", float: "a number"}
    return wanted.get(option.type, "text, in quotation marks where it looks like something else")
