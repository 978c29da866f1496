"""Words of a command line to the arguments of a verb, and what usage errors say.

A usage error is one line. It names the option and never repeats its value, which may be a secret.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin

from cyclopts import App
from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

from vestige.cli.error_lines import UsageError, in_one_line

CONFIG = "--config"
_NAME = re.compile(r"-{1,3}[A-Za-z0-9_.-]{0,40}")
_WANTED = {int: "a whole number", float: "a number", bool: "given without a value"}


def parsed(app: App, words: Sequence[str]) -> dict[str, Any]:
    """The arguments that a command line or its `--config` file gives, by parameter.

    Raises:
        UsageError: a word is no option, or a value does not fit its option.
        DataError: the file of `--config` cannot be used.
    """
    from vestige.cli.config import loaded

    if (file := _config(words)) is not None:
        app.config = (loaded(file, app),)
    try:
        _, bound, _ = app.parse_args(list(words), print_error=False, exit_on_error=False)
    except CycloptsError as error:
        raise UsageError(in_one_line(usage(error, app))) from None
    return dict(bound.arguments)


def _config(words: Sequence[str]) -> Path | None:
    for place, word in enumerate(words):
        if word == CONFIG and place + 1 < len(words):
            return Path(words[place + 1])
        if word.startswith(f"{CONFIG}="):
            return Path(word.partition("=")[2])
    return None


def usage(error: CycloptsError, app: App) -> str:
    """One line about a usage error, without the value that was given."""
    own = error.argument
    name = "" if own is None else shown(own)
    if isinstance(error, UnusedCliTokensError):
        return (
            f"{len(error.unused_tokens or ())} unexpected arguments. Quote texts of several words."
        )
    if isinstance(error, UnknownOptionError):
        return _unknown((error.token.keyword or error.token.value).partition("=")[0], app)
    if isinstance(error, MissingArgumentError):
        if error.tokens_so_far or error.keyword:
            return f"{name} needs a value."
        return f"Missing {', '.join(missing(app, error)) or name}."
    if isinstance(error, CoercionError):
        choices = own.get_choices() if own is not None else None
        if choices:
            return f"{name} must be one of {', '.join(choices)}."
        return f"{name} must be {_WANTED.get(number_type(own), 'another value')}."
    if isinstance(error, ValidationError) and own is not None:
        return f"{name} must be {bounds(own)}."
    return f"{name} cannot be read." if name else "The command line cannot be read."


def missing(app: App, error: MissingArgumentError) -> list[str]:
    """All required arguments that were not given."""
    given = error.root_input_tokens or []
    arguments = app.assemble_argument_collection(parse_docstring=False)
    required = [one for one in arguments if one.required]
    places = sum(not word.startswith("-") for word in given[:1])
    found = []
    for one in required:
        if one.field_info.is_positional:
            if places:
                places -= 1
                continue
        elif any(word.partition("=")[0] in one.names for word in given):
            continue
        found.append(shown(one))
    return found


def shown(argument: Any) -> str:
    """What a message calls an argument."""
    if argument.field_info.is_positional:
        return str(argument.field_info.name).upper()
    return str(argument.name)


def number_type(argument: Any) -> Any:
    """int, float or bool, if the argument is one."""
    hint = argument.hint if argument is not None else None
    for one in (hint, *get_args(hint)):
        if one in _WANTED:
            return one
    return None


_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def bounds(argument: Any) -> str:
    """The bounds of a number in words."""
    found = {}
    for hint in (argument.field_info.annotation, *get_args(argument.field_info.annotation)):
        for marker in getattr(hint, "__metadata__", ()):
            for sign, word in _BOUNDS.items():
                if (limit := getattr(marker, sign, None)) is not None:
                    found[sign] = f"{word} {limit:,}"
    return " and ".join(found.values()) or "another value"


def is_list(argument: Any) -> bool:
    """Whether an option can be given several times."""
    origins = {get_origin(one) for one in (argument.hint, *get_args(argument.hint))}
    return bool(origins & {list, tuple, Sequence})


def _unknown(name: str, app: App) -> str:
    known = [
        n for one in app.assemble_argument_collection(parse_docstring=False) for n in one.names
    ]
    if not _NAME.fullmatch(name):
        return "A word that begins with a dash is no option of this command."
    near = get_close_matches(name, known, n=1)
    return f"Unknown option {name}.{f' Did you mean {near[0]}?' if near else ''}"
