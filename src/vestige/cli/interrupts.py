"""Ctrl-C and SIGTERM: a verb cleans up, says so in one line, and ends.

Both are an exception in the main thread, so that partial files are removed and locks released. A
second one ends the process at once; a kill at any moment loses no finished work.
"""

import _thread
import signal
import sys
from threading import Timer, main_thread
from types import FrameType
from typing import Any

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""Exit codes: 128 and the signal's number, as a shell has them."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the verb to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)
        self.code = CODES[self.signal]


def raise_when_asked_to_end() -> None:
    """Make both signals an `Interrupted` in the main thread, the first time."""
    for number in CODES:
        signal.signal(number, _end)
    sys.unraisablehook = _ask_again


def last_words(error: KeyboardInterrupt) -> str:
    """What ended a verb, and how to resume it if that was noted."""
    terminated = isinstance(error, Interrupted) and error.signal == signal.SIGTERM
    notes = "".join(f". {note}" for note in getattr(error, "__notes__", ()))
    return f"ended by {'SIGTERM' if terminated else 'Ctrl-C'}{notes}"


def _end(number: int, frame: FrameType | None) -> None:
    for each in CODES:
        signal.signal(each, signal.SIG_DFL)
    raise Interrupted(number)


def _ask_again(lost: Any) -> None:
    """Where Python had to drop the exception, as in a destructor, send the signal again soon."""
    if isinstance(lost.exc_value, Interrupted):
        raise_when_asked_to_end()
        Timer(0.01, _send, (lost.exc_value.signal,)).start()
    else:
        sys.__unraisablehook__(lost)


def _send(number: signal.Signals) -> None:
    """Send a signal to the main thread, which also ends what it waits for."""
    main = main_thread().ident
    if main is None or not hasattr(signal, "pthread_kill"):  # Windows
        _thread.interrupt_main(number)
    else:
        signal.pthread_kill(main, number)
