"""How an error of the input looks: one line, not long, with nothing in it that a terminal obeys."""

from vestige.errors import VestigeError
from vestige.memory import ran_out

LONGEST = 600
"""Letters of an argument or a reason that are quoted; of what is longer, both ends."""


class UsageError(Exception):
    """The words of a command line are not those of the verb; the message is one line."""


def error_line(error: Exception) -> str:
    """What to say of an error: what was wrong, and what to do."""
    from vestige.data.atomic_write import FULL

    if ran_out(error):
        text = (
            "there is not enough memory for what was asked. Ask for less: smaller sizes, batches "
            "or numbers."
        )
    elif isinstance(error, RecursionError):
        text = "something that was given is nested too deeply. Give it with fewer levels."
    elif isinstance(error, OSError) and error.errno in FULL:
        text = f"{error.filename or 'standard output'}: {error.strerror}. Make room on that disk."
    elif isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}. Check the path and its permissions."
    elif isinstance(error, VestigeError):
        text = str(error)
    else:
        text = f"{str(error).rstrip('.')}."
        if ". " not in text:  # a message of one sentence has no remedy of its own
            text += " Change that argument or file."
    notes = [f"{note}." for note in getattr(error, "__notes__", ())]
    return " ".join(map(in_one_line, [text, *notes]))


def in_one_line(text: str) -> str:
    """Text that quotes what was given, as a terminal may have it."""
    from vestige.reports.disclosure import printable

    return " ".join(map(printable, shortened(text).splitlines()))


def shortened(text: str) -> str:
    """The text, without the middle of it where it is long.

    Example:
        >>> len(shortened("x" * 100_000)) < 700
        True
    """
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} … ({len(text) - LONGEST:,} letters) … {text[-half:]}"
