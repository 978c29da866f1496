"""The program `vestige`: its verbs, and the call of a verb from the command line.

A verb is a function decorated with `vestige.session.verb`. Its signature gives the options and its
docstring the help. The module of a verb is imported when the verb is called.
"""

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import vestige
from vestige.cli import interrupts
from vestige.cli.options import flags_of, verb_app
from vestige.cli.parsing import UsageError, parse_words
from vestige.errors import VestigeError
from vestige.memory import keep_freed_pages, ran_out

VERBS: dict[str, dict[str, str]] = {
    "Start": {
        "demo": "See it work: plant a secret, train two models, find the secret.",
    },
    "Train": {
        "plant": "Plant canaries in a copy of a corpus.",
        "train": "Train a model on DATA, or continue one with --from.",
    },
    "Audit": {
        "check": "Check whether a fine-tuned model reveals its training text.",
        "diff": "List the phrases that an update made more probable.",
        "exposure": "Measure how well a model knows canaries or your secrets, in bits.",
        "extract": "Measure which canaries, secrets or passages a model generates verbatim.",
        "membership": "Test whether texts or users were in the training data.",
        "unlearning": "Test whether a model still knows texts that were deleted from its training "
        "data.",
    },
    "Report": {
        "compare": "Compare trainings under several defences, and say which one to use.",
        "report": "Show runs on one page or in the terminal, and pass or fail them.",
    },
}
"""Verbs by group with the first sentence of their help; a test compares these.

A verb is a public name of `vestige`, unless `MODULES` has its module.
"""

MODULES = {"demo": "vestige.demo"}
"""Modules of verbs that are not public names: `vestige.demo` is a module."""

ABOUT = """Measure how much a language model reveals about its training text.

Start with `vestige demo`. Each command has its own help: vestige COMMAND --help."""

HELP = ("--help", "-h")
BUG = 70
"""Exit code of a crash (EX_SOFTWARE of sysexits.h), different from those of verdicts."""

TRACEBACK = "VESTIGE_TRACEBACK"
"""Environment variable that makes errors show their traceback."""

LONGEST = 600
"""Characters of a message; a longer message is shortened in the middle."""


def names() -> list[str]:
    """Names of the verbs in the order of the help."""
    return [name for group in VERBS.values() for name in group]


def function_of(name: str) -> Callable[..., Any]:
    """The function of a verb."""
    module = import_module(MODULES[name]) if name in MODULES else vestige
    function: Callable[..., Any] = getattr(module, name)
    return function


def run(words: Sequence[str]) -> int:
    """Run a command line.

    Args:
        words: the words after the program's name.

    Returns:
        The exit code: 0 no leak shown or no verdict, 1 a leak or above a limit, 2 bad input,
        3 undecided.
    """
    name, *rest = words or [""]
    if name in names():
        return run_verb(f"vestige {name}", function_of(name), rest)
    try:
        return show_overview(name)
    except UsageError as error:
        return refuse(f"{error} See vestige --help.")


def run_verb(command: str, function: Callable[..., Any], words: Sequence[str]) -> int:
    """Call a verb and show its result or its error; returns the exit code, see `run`."""
    try:
        code = call_verb(command, function, words)
        sys.stdout.flush()  # a full disk fails here, not at the end of the process
    except UsageError as error:
        return refuse(f"{error} See {command} --help.")
    except Exception as error:
        if os.environ.get(TRACEBACK) or not is_expected(error):
            raise
        return refuse(with_flags(error_line(error), flags_of(function)))
    except KeyboardInterrupt as error:
        refuse(interrupts.interrupt_message(error))
        return int(getattr(error, "code", 130))
    return code


def call_verb(command: str, function: Callable[..., Any], words: Sequence[str]) -> int:
    """Call a verb and show its result; returns the exit code."""
    if any(word in HELP for word in words):
        from vestige.cli.help import help_of

        print(help_of(command, function))
        return 0
    arguments = parse_words(verb_app(command, function), words)
    as_json, show_secrets = arguments.pop("json", False), arguments.get("show_secrets", False)
    arguments.pop("config", None)
    if "show_secrets" not in inspect.signature(function).parameters:
        arguments.pop("show_secrets", None)
    from vestige.cli.terminal import Terminal, show_json, show_result
    from vestige.session import COMMAND

    token = COMMAND.set((*command.split(), *words))
    try:
        result = function(**arguments, monitor=Terminal())
    finally:
        COMMAND.reset(token)
    if as_json:
        show_json(result.summary, show_secrets=show_secrets)
    else:
        show_result(result, arguments.get("out"), show_secrets=show_secrets)
    return int(result.exit_code)


def with_flags(line: str, flags: dict[str, str]) -> str:
    """Replace parameters in backticks by their names on the command line."""
    for name, flag in flags.items():
        line = line.replace(f"`{name}`", flag)
    return line


def show_overview(name: str) -> int:
    """Show the version or the list of commands."""
    if name == "--version":
        print(f"vestige {vestige.__version__}")
        return 0
    if name and name not in HELP:
        similar = get_close_matches(name, names(), n=1)
        kind = "option" if name.startswith("-") else "command"
        suggestion = f" Did you mean {similar[0]}?" if similar else ""
        raise UsageError(single_line(f"Unknown {kind} {name}.{suggestion}"))
    print(f"Usage: vestige COMMAND [OPTIONS]\n\n{ABOUT}\n")
    for group, verbs in VERBS.items():
        print(group)
        for verb, sentence in verbs.items():
            print(f"  {verb:<12}{sentence}")
        print()
    return 0 if name else 2


def is_expected(error: Exception) -> bool:
    """Whether an error comes from the input or the machine; others are bugs."""
    of_input = isinstance(error, VestigeError | ValueError | OSError | RecursionError)
    return of_input or ran_out(error)


def error_line(error: Exception) -> str:
    """Problem and remedy of an error in one line."""
    from vestige.data.writing import FULL

    if ran_out(error):
        text = "there is not enough memory. Choose smaller sizes, batches or numbers."
    elif isinstance(error, RecursionError):
        text = "an argument or a file is nested too deeply. Use fewer levels."
    elif isinstance(error, OSError) and error.errno in FULL:
        text = f"{error.filename or 'standard output'}: {error.strerror}. Make room on that disk."
    elif isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}. Check the path and its permissions."
    elif isinstance(error, VestigeError):
        text = str(error)
    else:
        text = f"{str(error).rstrip('.')}."
        if ". " not in text:  # one sentence: no remedy
            text += " Change that argument or file."
    notes = [f"{note}." for note in getattr(error, "__notes__", ())]
    return " ".join(map(single_line, [text, *notes]))


def single_line(text: str) -> str:
    """Shorten a text, escape its control characters and join its lines."""
    from vestige.reports.disclosure import printable

    if len(text) > LONGEST:
        half = LONGEST // 2
        text = f"{text[:half]} … ({len(text) - LONGEST:,} letters) … {text[-half:]}"
    return " ".join(map(printable, text.splitlines()))


def refuse(line: str) -> int:
    """Print an error; returns the exit code of bad input."""
    print(f"vestige: {line}", file=sys.stderr, flush=True)
    return 2


def main(run_words: Callable[[Sequence[str]], int] | None = None) -> None:
    """Run the command line of the process and exit.

    Exit codes: 0 to 3 as in `run`, 70 after a bug, 130 after Ctrl-C, 143 after SIGTERM.
    """
    # Progress bars and warnings of these libraries would mix with ours.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    keep_freed_pages()
    interrupts.raise_on_signals()
    try:
        sys.exit((run_words or run)(sys.argv[1:]))
    except Exception as error:  # a bug, or shown with its traceback
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        else:
            print(traceback_without_message(error), file=sys.stderr)
        sys.exit(2 if is_expected(error) else BUG)


def traceback_without_message(error: BaseException) -> str:
    """Traceback of a bug without the error's message, which may quote a secret."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return (
        f"Traceback (most recent call last):\n{frames}{type(error).__name__}\n"
        f"This is a bug of Vestige. {TRACEBACK}=1 shows the message, which may quote texts."
    )
