"""`vestige`: the table of verbs, and one call of a verb from the command line.

A verb is a function decorated with `vestige.session.verb`. Its signature gives the options and its
docstring the help; cyclopts reads both. The module of a verb is imported when the verb is called.
"""

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from vestige import __version__
from vestige.arguments import RUN
from vestige.cli import interrupts
from vestige.cli.error_lines import UsageError, error_line, in_one_line
from vestige.cli.formatter import Formatter
from vestige.cli.usage import parsed
from vestige.errors import VestigeError
from vestige.memory import keep_freed_pages, ran_out

VERBS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "demo": (
            "vestige.demo:demo",
            "See it work: plant a secret, train two models, find the secret.",
        ),
    },
    "Train": {
        "plant": (
            "vestige.preparation.plant:plant",
            "Plant canaries in a copy of a corpus.",
        ),
        "train": (
            "vestige.preparation.train:train",
            "Train a model on DATA, or continue one with --from.",
        ),
    },
    "Audit": {
        "diff": (
            "vestige.audits.update.diff:diff",
            "List the phrases that an update made more probable.",
        ),
        "exposure": (
            "vestige.audits.exposure.exposure:exposure",
            "Measure how well a model knows canaries or your secrets, in bits.",
        ),
        "extract": (
            "vestige.audits.extraction.extract:extract",
            "Measure which canaries, secrets or passages a model generates verbatim.",
        ),
        "membership": (
            "vestige.audits.membership.membership:membership",
            "Test whether texts or users were in the training data.",
        ),
        "unlearning": (
            "vestige.audits.unlearning.unlearning:unlearning",
            "Test whether a model still knows texts that were deleted from its training data.",
        ),
    },
    "Report": {
        "compare": (
            "vestige.audits.comparison.compare:compare",
            "Compare trainings under several defences, and say which one to use.",
        ),
        "report": (
            "vestige.audits.release.release:report",
            "Show runs on one page or in the terminal, and pass or fail them.",
        ),
    },
}
"""Verbs by group: the function, and the first sentence of its help, which a test compares."""

HIDDEN = {"reproduce": "vestige.experiments.reproduce:reproduce"}
"""Commands that the help does not list."""

ABOUT = """Measure how much a language model reveals about its training text.

Start with `vestige demo`. Each command has its own help: vestige COMMAND --help."""

HELP = ("--help", "-h")
BUG = 70
"""Exit code of a crash (EX_SOFTWARE of sysexits.h), which must not look like a verdict."""

TRACEBACK = "VESTIGE_TRACEBACK"
"""An environment variable. If it is set, an error shows where it was raised."""


def places() -> dict[str, str]:
    """The function of each verb in the help, as "module:function"."""
    return {name: place for group in VERBS.values() for name, (place, _) in group.items()}


def function_of(name: str) -> Callable[..., Any]:
    """The function of a verb."""
    module, _, function = {**places(), **HIDDEN}[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def run(words: Sequence[str]) -> int:
    """Run a command line.

    Args:
        words: after the program's name.

    Returns:
        The exit code: 0 no leak shown or no verdict, 1 a leak or above a limit, 2 bad input,
        3 undecided.
    """
    name, *rest = words or [""]
    known = name in (*places(), *HIDDEN)
    try:
        code = call(name, function_of(name), rest) if known else without_verb(name)
        sys.stdout.flush()  # a full disk fails here, not at the end of the process
    except UsageError as error:
        more = f"vestige {name} --help" if known else "vestige --help"
        return refuse(f"{error} See {more}.")
    except Exception as error:
        if os.environ.get(TRACEBACK) or not is_of_input(error):
            raise
        line = error_line(error)
        return refuse(in_flags(line, flags_of(function_of(name))) if known else line)
    except KeyboardInterrupt as error:
        refuse(interrupts.last_words(error))
        return int(getattr(error, "code", 130))
    return code


def call(name: str, function: Callable[..., Any], words: Sequence[str]) -> int:
    """Call a verb and show its result; the exit code."""
    app = verb_app(name, function)
    if any(word in HELP for word in words):
        app.help_print(console=plain_console())
        return 0
    given = parsed(app, words)
    as_json, show_secrets = given.pop("json", False), given.get("show_secrets", False)
    given.pop("config", None)
    if "show_secrets" not in inspect.signature(function).parameters:
        given.pop("show_secrets", None)
    from vestige.cli.terminal import Terminal, show_json
    from vestige.session import COMMAND

    command = COMMAND.set(("vestige", name, *words))
    try:
        result = function(**given, monitor=Terminal())
    finally:
        COMMAND.reset(command)
    if as_json:
        show_json(result.summary, show_secrets=show_secrets)
    else:
        from vestige.cli.terminal import show_result

        show_result(result, given.get("out"), show_secrets=show_secrets)
    return int(result.exit_code)


def verb_app(name: str, function: Callable[..., Any]) -> App:
    """A cyclopts application with the options of a verb, and `--json`, `--show-secrets`,
    `--config`."""

    def nothing(**_: Any) -> None:
        pass

    nothing.__signature__ = command_line(function)  # type: ignore[attr-defined]
    nothing.__annotations__ = {
        one.name: one.annotation for one in command_line(function).parameters.values()
    }
    nothing.__doc__ = inspect.getdoc(function)
    app = App(
        name=f"vestige {name}",
        help_formatter=Formatter(),
        help_format="plaintext",
        help_flags=HELP,
        version_flags=(),
        help_epilogue=examples(function),
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


def command_line(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a verb on the command line, where `out` is required."""
    public = inspect.signature(function)
    own = inspect.signature(inspect.unwrap(function)).parameters
    parameters = [_strict(one) for one in public.parameters.values() if one.name != "monitor"]
    for place, one in enumerate(parameters):
        if one.name == "out" and "out" not in own:
            parameters[place] = one.replace(default=inspect.Parameter.empty)
    for name, hint, default in _ADDED:
        if name in public.parameters:
            continue
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=hint))
    return inspect.Signature(parameters)


def _strict(one: inspect.Parameter) -> inspect.Parameter:
    """An argument that is no option may not begin with a dash: it is a misspelt option."""
    if one.kind is inspect.Parameter.KEYWORD_ONLY:
        return one
    hint = Annotated[one.annotation, Parameter(allow_leading_hyphen=False)]  # type: ignore[name-defined]
    return one.replace(annotation=hint)


_ADDED: tuple[tuple[str, Any, Any], ...] = (
    ("show_secrets", Annotated[bool, RUN, Parameter(help="Show texts unredacted.")], False),
    ("json", Annotated[bool, RUN, Parameter(help="Print the summary as JSON.")], False),
    (
        "config",
        Annotated[
            Path | None,
            RUN,
            Parameter(help="Options from YAML, TOML, JSON, or a run folder, which it repeats."),
        ],
        None,
    ),
)


def examples(function: Callable[..., Any]) -> str:
    """The section "Examples" of a docstring, which cyclopts does not show."""
    text = inspect.getdoc(function) or ""
    _, _, after = text.partition("\nExamples:\n")
    lines = []
    for line in after.split("\n"):
        if line and not line.startswith(" "):
            break
        lines.append(line[2:])
    shown = [line for line in lines if line.strip()]
    return "\n".join(["Examples:", *shown]) if shown else ""


def flags_of(function: Callable[..., Any]) -> dict[str, str]:
    """The spelling of each parameter on the command line, by its name in Python."""
    app = verb_app("", function)
    found = {}
    for argument in app.assemble_argument_collection(parse_docstring=False):
        name = argument.field_info.name
        if argument.field_info.is_positional:
            found[name] = name.upper()
        elif argument.names:
            found[name] = argument.name
    return found


def in_flags(line: str, flags: dict[str, str]) -> str:
    """A message, with parameters in backticks as options."""
    for name, flag in flags.items():
        line = line.replace(f"`{name}`", flag)
    return line


def without_verb(name: str) -> int:
    """Show the version or the list of commands."""
    if name == "--version":
        print(f"vestige {__version__}")
        return 0
    if name and name not in HELP:
        near = get_close_matches(name, places(), n=1)
        kind = "option" if name.startswith("-") else "command"
        also = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(in_one_line(f"Unknown {kind} {name}.{also}"))
    print("Usage: vestige COMMAND [OPTIONS]\n")
    print(f"{ABOUT}\n")
    for group, verbs in VERBS.items():
        print(group)
        for verb, (_, sentence) in verbs.items():
            print(f"  {verb:<12}{sentence}")
        print()
    return 0 if name else 2


def plain_console() -> Any:
    """A console without colours, as wide as the terminal."""
    from rich.console import Console

    return Console(highlight=False, no_color=True)


def is_of_input(error: Exception) -> bool:
    """Whether an error is about the input or the machine, and no bug."""
    of_input = isinstance(error, VestigeError | ValueError | OSError | RecursionError)
    return of_input or ran_out(error)


def refuse(line: str) -> int:
    """Print an error; the exit code of bad input."""
    print(f"vestige: {line}", file=sys.stderr, flush=True)
    return 2


def main() -> None:
    """Run the command line of the process and exit.

    Exit codes: 0 to 3 as of `run`, 70 for a bug, 130 after Ctrl-C and 143 after SIGTERM.
    """
    # Progress bars and advice of the libraries below would mix with ours.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    keep_freed_pages()
    interrupts.raise_when_asked_to_end()
    try:
        sys.exit(run(sys.argv[1:]))
    except Exception as error:  # a bug, or shown with its traceback
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        else:
            print(bug(error), file=sys.stderr)
        sys.exit(2 if is_of_input(error) else BUG)


def bug(error: BaseException) -> str:
    """Where an error was raised; its message may quote a secret and is left out."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return (
        f"Traceback (most recent call last):\n{frames}{type(error).__name__}\n"
        f"This is a bug of Vestige. {TRACEBACK}=1 shows the message, which may quote texts."
    )
