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
_WANTED = {int: "a whole number", float: "a number"}


def parsed(app: App, words: Sequence[str]) -> dict[str, Any]:
    """The arguments that a command line or its `--config` file gives, by parameter.

    Raises:
        UsageError: a word is no option, or a value does not fit its option.
        DataError: the file of `--config` cannot be used.
    """
    from vestige.cli.config import loaded

    require_values(app, words)
    if (file := _config(words)) is not None:
        app.config = (loaded(file, app),)
    try:
        _, bound, _ = app.parse_args(list(words), print_error=False, exit_on_error=False)
    except CycloptsError as error:
        raise UsageError(in_one_line(usage(error, app))) from None
    return dict(bound.arguments)


def require_values(app: App, words: Sequence[str]) -> None:
    """Raise UsageError where an option is in the place of another one's value."""
    arguments = app.assemble_argument_collection(parse_docstring=False)
    named = {name: one for one in arguments for name in one.names}
    rest = iter(words)
    for word in rest:
        if word == "--":
            return
        if word in named and number_type(named[word]) is not bool:
            value = next(rest, "").partition("=")[0]
            if value in named:
                raise UsageError(f"{word} needs a value, got the option {value}.")


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
        return unexpected(len(error.unused_tokens or ()))
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
        if number_type(own) is bool:
            return f"{name} takes no value but true or false."
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
        if one in (bool, int, float):
            return one
    return None


def unexpected(number: int) -> str:
    """One line about words that belong to no option."""
    return f"{number} unexpected argument{'s' * (number != 1)}. Quote texts of several words."


_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


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


def is_list(argument: Any) -> bool:
    """Whether an option can be given several times."""
    origins = {get_origin(one) for one in (argument.hint, *get_args(argument.hint))}
    return bool(origins & {list, tuple, Sequence})


def _unknown(name: str, app: App) -> str:
    known = [
        n for one in app.assemble_argument_collection(parse_docstring=False) for n in one.names
    ]
    if name in known:  # after --
        return unexpected(1)
    if not _NAME.fullmatch(name):
        return "A word that begins with a dash is no option of this command."
    near = get_close_matches(name, known, n=1)
    return f"Unknown option {name}.{f' Did you mean {near[0]}?' if near else ''}"
