"""Ctrl-C and SIGTERM: the verb cleans up, prints one line, and ends.

Both raise an exception in the main thread, so that partial files are removed and locks released. A
second signal ends the process immediately. A kill at any moment loses no finished work.
"""

import _thread
import signal
import sys
from threading import Timer, main_thread
from types import FrameType
from typing import Any

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""Exit codes as in a shell: 128 plus the signal's number."""


class Interrupted(KeyboardInterrupt):
    """A signal ended the verb."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)
        self.code = CODES[self.signal]


def raise_on_signals() -> None:
    """Make the first of both signals raise `Interrupted` in the main thread."""
    for number in CODES:
        signal.signal(number, _raise_interrupted)
    sys.unraisablehook = _resend_if_lost


def interrupt_message(error: KeyboardInterrupt) -> str:
    """The signal, and how to resume if the error has a note about that."""
    terminated = isinstance(error, Interrupted) and error.signal == signal.SIGTERM
    notes = "".join(f". {note}" for note in getattr(error, "__notes__", ()))
    return f"ended by {'SIGTERM' if terminated else 'Ctrl-C'}{notes}"


def _raise_interrupted(number: int, frame: FrameType | None) -> None:
    for handled in CODES:
        signal.signal(handled, signal.SIG_DFL)
    raise Interrupted(number)


def _resend_if_lost(unraisable: Any) -> None:
    """Send the signal again if Python dropped the exception, as in a destructor."""
    if isinstance(unraisable.exc_value, Interrupted):
        raise_on_signals()
        Timer(0.01, _send_to_main_thread, (unraisable.exc_value.signal,)).start()
    else:
        sys.__unraisablehook__(unraisable)


def _send_to_main_thread(number: signal.Signals) -> None:
    """Send a signal to the main thread, which also ends a blocking call there."""
    thread = main_thread().ident
    if thread is None or not hasattr(signal, "pthread_kill"):  # Windows
        _thread.interrupt_main(number)
    else:
        signal.pthread_kill(thread, number)
