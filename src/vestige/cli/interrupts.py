"""Ctrl-C and SIGTERM: a verb puts its things away, says so in one line, and ends.

Both are an exception in the main thread, so that parts of files are removed and locks given back
on the way out. A second one ends the process at once; nothing needs more than that, since a kill
at any moment loses nothing.
"""

import _thread
import signal
import sys
from threading import Timer, main_thread
from types import FrameType
from typing import Any

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""What a shell calls the end by these signals: 128 and the signal's number."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the verb to end.

    Attributes:
        number: of the signal.
        code: with which the process shall end.
        by: what to call it.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.code = CODES[signal.Signals(number)]
        self.by = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def raise_when_asked_to_end() -> None:
    """Make both signals an `Interrupted` in the main thread, the first time."""
    for number in CODES:
        signal.signal(number, _end)
    sys.unraisablehook = _ask_again


def last_words(error: KeyboardInterrupt) -> str:
    """What to say of an end: by whom, and how to go on where that was noted."""
    by = error.by if isinstance(error, Interrupted) else "Ctrl-C"
    notes = "".join(f". {note}" for note in getattr(error, "__notes__", ()))
    return f"ended by {by}{notes}"


def _end(number: int, frame: FrameType | None) -> None:
    for each in CODES:
        signal.signal(each, signal.SIG_DFL)
    raise Interrupted(number)


def _ask_again(lost: Any) -> None:
    """Where Python had to drop the exception, as in a destructor, ask once more a little later."""
    if isinstance(lost.exc_value, Interrupted):
        raise_when_asked_to_end()
        Timer(0.01, _ask, (lost.exc_value.number,)).start()
    else:
        sys.__unraisablehook__(lost)


def _ask(number: int) -> None:
    """Send a signal to the main thread, which also ends what it waits for."""
    main = main_thread().ident
    if main is None or not hasattr(signal, "pthread_kill"):  # Windows
        _thread.interrupt_main(signal.Signals(number))
    else:
        signal.pthread_kill(main, number)
