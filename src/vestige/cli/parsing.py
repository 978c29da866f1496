"""Words of a command line to values: options of ours, parsed by cyclopts.

What a usage error says is written here: one line that names the option and never repeats its
value, which may be a secret.
"""

import inspect
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args

from cyclopts import App
from cyclopts import Parameter as Spelling
from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from vestige.cli.error_lines import UsageError, in_one_line
from vestige.cli.help import BOUNDS
from vestige.workflows.parameters import REQUIRED, Option

MANY = 10**9
"""The most of what is counted and not held: steps, documents, questions, epochs."""
WIDEST = 2**20
"""The most units, tokens or rows side by side."""
LARGEST = {
    "--seed": 2**63 - 1,
    **dict.fromkeys(("--vocab-size", "--vocabulary-size"), 2**24),
    **dict.fromkeys(("--references", "--samples"), 2**24),
    **dict.fromkeys(("--hidden-size", "--embedding-size", "--batch-size"), WIDEST),
    **dict.fromkeys(("--physical-batch-size", "--local-batch-size"), WIDEST),
    **dict.fromkeys(("--sequence-length", "--prefix", "--beam", "--top-k"), WIDEST),
    **dict.fromkeys(("--width", "--groups", "--top"), WIDEST),
    # Each phrase is looked for in the whole corpus.
    **dict.fromkeys(("--number", "--copies", "--controls", "--coin-flip"), 10**6),
    **dict.fromkeys(("--artificial", "--sample"), 10**6),
    **dict.fromkeys(("--bins", "--orders", "--count", "--shadows", "--seeds"), 10_000),
    "--lora-rank": 2**14,
    **dict.fromkeys(("--length", "--min-length", "--layers", "--attempts"), 1_000),
    "--processes": 1_024,
}
"""The most that an option takes, where it is not `MANY`: a number that no machine could follow is
refused where it is read. What several sizes take together is asked when they are known
(`vestige.memory.require_room`)."""


def parse(options: Sequence[Option], words: Sequence[str]) -> dict[str, Any]:
    """The values of the options that were given, by name.

    Args:
        options: of the verb.
        words: after the verb's name.

    Raises:
        UsageError: a word is no option, or a value is none that its option takes.
    """
    _require_values(options, words)
    app = _app(options)
    try:
        _, bound, _ = app.parse_args(list(words), print_error=False, exit_on_error=False)
    except CycloptsError as error:
        raise UsageError(in_one_line(_usage(error, options))) from None
    values = {name[:-1]: value for name, value in bound.arguments.items()}
    for option in options:
        if option.name in values:
            check(option, values[option.name])
    return values


def _require_values(options: Sequence[Option], words: Sequence[str]) -> None:
    """Raise UsageError where an option stands in the place of another one's value."""
    named = {flag: option for option in options for flag in option.flags}
    rest = iter(words)
    for word in rest:
        if word == "--":
            return
        if word in named and named[word].type is not bool:
            value = next(rest, "")
            if value.partition("=")[0] in named:
                raise UsageError(
                    f"{word} must come with a value, got the option {value.partition('=')[0]}."
                )


def require(options: Sequence[Option], given: Mapping[str, Any]) -> None:
    """Raise UsageError unless everything that must be given is."""
    missing = [each for each in options if each.default is REQUIRED and each.name not in given]
    if missing:
        raise UsageError(f"Missing {', '.join(option.shown for option in missing)}.")


def check(option: Option, value: Any) -> None:
    """Raise UsageError where a number is beyond the bounds of its option."""
    for number in value if option.many else (value,):
        if isinstance(number, float) and not math.isfinite(number):
            raise UsageError(f"{option.shown} must be a finite number.")
        if not isinstance(number, int | float) or isinstance(number, bool):
            continue
        for bound in option.bounds:
            for sign, word in BOUNDS:
                limit = getattr(bound, sign, None)
                if limit is not None and not getattr(operator, sign)(number, limit):
                    raise UsageError(f"{option.shown} must be {word} {limit:,}.")
        most = min((LARGEST[flag] for flag in option.flags if flag in LARGEST), default=MANY)
        if isinstance(number, int) and number > most:
            raise UsageError(f"{option.shown} must be at most {most:,}.")


def _app(options: Sequence[Option]) -> App:
    """A cyclopts application that has the options and does nothing."""

    def nothing(*_: Any, **__: Any) -> None:
        pass

    parameters = [_parameter(each) for each in options]
    nothing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    nothing.__annotations__ = {each.name: each.annotation for each in parameters}
    app = App(name="vestige", help_flags=(), version_flags=())
    app.default(nothing)
    return app


def _parameter(option: Option) -> inspect.Parameter:
    spelling: dict[str, Any] = {
        "name": option.flags or (str(option.metavar),),
        "negative": (),
        "required": False,
        "allow_leading_hyphen": bool(option.flags) and option.type is not bool,
        "allow_repeating": True,
        "json_list": False,
        "json_dict": False,
    }
    if option.type is not bool:
        spelling |= {"converter": _reader(option), "n_tokens": 1}
    type_: Any = list[option.type] if option.many else option.type  # type: ignore[name-defined]
    if option.many:
        spelling["consume_multiple"] = False
    kind = inspect.Parameter.KEYWORD_ONLY if option.flags else inspect.Parameter.POSITIONAL_ONLY
    # With an underscore: `from` is no name of a parameter.
    hint: Any = Annotated[type_ | None, Spelling(**spelling)]
    return inspect.Parameter(f"{option.name}_", kind, default=None, annotation=hint)


def _reader(option: Option) -> Callable[..., Any]:
    """A reader of values that rounds no number and takes no word for None."""

    def value(word: str) -> Any:
        if not option.choices:
            return option.type(word)
        return next(choice for choice in get_args(option.type) if str(choice) == word)

    def read(_: Any, tokens: Sequence[Any]) -> Any:
        try:
            values = [value(token.value) for token in tokens]
        except StopIteration:
            raise ValueError from None
        return values if option.many else values[-1]

    return read


_NAME = re.compile(r"-{1,3}[A-Za-z0-9_.-]{0,40}")
"""What may be the name of an option, and no text that someone forgot to put behind one."""
_NAMED = {int: "a whole number", float: "a number"}


def _usage(error: CycloptsError, options: Sequence[Option]) -> str:
    """What to say of an error, without the value that was given."""
    by_name = {name: each for each in options for name in (each.flags or (each.shown,))}
    own = by_name.get(error.argument.name) if error.argument is not None else None
    if isinstance(error, UnusedCliTokensError):
        named = [each.shown for each in options if each.flags and each.default is REQUIRED]
        return (
            f"Got {len(error.unused_tokens or ())} unexpected extra argument(s). "
            "Text of several words needs quotation marks."
            + f" Options that must be given: {', '.join(named)}."
            * bool(named)
        )
    if isinstance(error, UnknownOptionError):
        name = (error.token.keyword or error.token.value).partition("=")[0]
        if name in by_name:  # behind `--`
            return "Got 1 unexpected extra argument(s)."
        if not _NAME.fullmatch(name):
            return "A word that begins with a dash is no option of this verb."
        return f"There is no option {name}.{_near(name, by_name)}"
    if own is None:
        return "The command line cannot be read."
    if isinstance(error, CoercionError):
        if own.choices:
            return f"{own.shown} must be one of {', '.join(own.choices)}."
        if own.type is bool:
            return f"{own.shown} takes no value but true or false."
        return f"{own.shown} must be {_NAMED.get(own.type, 'another value')}."
    if isinstance(error, MissingArgumentError):
        return f"{own.shown} must come with a value."
    return f"{own.shown} cannot be read."


def _near(name: str, known: Mapping[str, object]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1)
    return f" Did you mean {found[0]}?" if found else ""
