"""`vestige`: the table of verbs, and how their errors look.

A verb's module is imported only when the verb or the list of verbs is asked for, and imports
torch only when it runs, so that help answers at once.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from vestige import __version__
from vestige.cli import interrupts
from vestige.cli.error_lines import UsageError, error_line, in_one_line
from vestige.errors import VestigeError
from vestige.memory import keep_freed_pages, ran_out

if TYPE_CHECKING:
    from vestige.cli.verbs import Verb

GROUPS: dict[str, dict[str, str]] = {}
"""Each panel of the help, with its verbs and the first sentence of each.

The sentences are those of the workflows, which help of the program does not import; a test
compares them. The module of a verb has its name.
"""

VERBS = {verb: summary for group in GROUPS.values() for verb, summary in group.items()}

ABOUT = """Vestige measures what a text model gives away about the text it was trained on.

Start with `vestige demo`. On two snapshots of a model of your own:
`vestige diff BEFORE AFTER --out run`, then `vestige report run --out page.html`.
"""

BUG = 70
"""Exit code of a crash (EX_SOFTWARE of sysexits.h), which must not look like a verdict."""

TRACEBACK = "VESTIGE_TRACEBACK"
"""An environment variable: where it is set, an error shows where it came from."""


def verb(name: str) -> "Verb":
    """The verb of a name, imported when asked for."""
    found: Verb = import_module(f"vestige.cli.{name.replace('-', '_')}").VERB
    return found


def app(words: Sequence[str] | None = None) -> int:
    """Do what a command line asks.

    Args:
        words: after the program's name; by default those of the process.

    Returns:
        The exit code.
    """
    from vestige.cli import app as new

    name, *rest = (sys.argv[1:] if words is None else words) or [""]
    if name in (*new.places(), *new.HIDDEN):
        return new.run([name, *rest])
    asked: Verb | None = None
    try:
        if name in VERBS:
            asked = verb(name)
            code = asked(rest)
        else:
            code = _without_verb(name)
        sys.stdout.flush()  # a full disk is told of here, not at the end of the process
    except UsageError as error:
        # It quotes no value, and what it quotes is escaped.
        more = f"vestige {name} --help" if asked else "vestige --help"
        return _refuse(f"{error} `{more}` says more.")
    except Exception as error:
        if os.environ.get(TRACEBACK) or not _is_of_input(error):
            raise
        line = error_line(error)
        return _refuse(asked.in_flags(line) if asked else line)
    except KeyboardInterrupt as error:
        _refuse(interrupts.last_words(error))
        return int(getattr(error, "code", 130))
    return code


def _is_of_input(error: Exception) -> bool:
    """Whether an error is about what was given or the machine, and is no bug."""
    of_input = isinstance(error, VestigeError | ValueError | OSError | RecursionError)
    return of_input or ran_out(error)


def _refuse(line: str) -> int:
    print(f"vestige: {line}", file=sys.stderr, flush=True)
    return 2


def _without_verb(name: str) -> int:
    """What the program says of itself; the exit code."""
    from vestige.cli.help import HELP_FLAGS, show_verbs

    if name == "--version":
        print(f"vestige {__version__}")
        return 0
    if name and name not in HELP_FLAGS:
        near = get_close_matches(name, VERBS, n=1)
        what = "option" if name.startswith("-") else "verb"
        also = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(in_one_line(f"There is no {what} {name}.{also}"))
    show_verbs(GROUPS, text=ABOUT)
    return 0 if name else 2


def main() -> None:
    """Run the command line and leave with its exit code: 0 for fine, or a verb without a verdict;
    1 for a leak, or above a limit of `vestige report`; 2 for bad input or usage; 3 for undecided;
    70 for a bug; 130 and 143 after Ctrl-C and SIGTERM.
    """
    # Progress bars and advice of the libraries below would run into ours.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    keep_freed_pages()
    interrupts.raise_when_asked_to_end()
    try:
        sys.exit(app())
    except Exception as error:  # a bug, or shown with its traceback
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        else:
            print(_bug(error), file=sys.stderr)
        sys.exit(2 if _is_of_input(error) else BUG)


def _bug(error: BaseException) -> str:
    """Where an error came from; what it says may quote a secret, and is left out."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return (
        f"Traceback (most recent call last):\n{frames}{type(error).__name__}\n"
        f"This is a bug of Vestige. {TRACEBACK}=1 shows what the error says, which may quote texts."
    )
