"""What long work reports while it runs: lines of text, and progress.

Example:
    >>> with SILENT.progress("searching") as step:
    ...     step(1, 10)
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Step = Callable[..., None]
"""Called with (done, total), with (done) if the total is unknown, or with (done, total, part)."""


class Monitor(Protocol):
    """A reader of progress: a terminal, a notebook, a log."""

    def log(self, text: str) -> None:
        """One line for the reader, without a line break."""

    def progress(self, task: str) -> AbstractContextManager[Step]:
        """Progress of one task, named in a few words, as a context that yields a `Step`."""


class _Silent:
    def log(self, text: str) -> None:
        pass

    @contextmanager
    def progress(self, task: str) -> Iterator[Step]:
        yield lambda *_: None


SILENT: Monitor = _Silent()
"""A monitor that shows nothing: the default of every verb."""
