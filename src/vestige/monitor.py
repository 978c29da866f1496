"""Monitors receive lines of text and progress from long work.

Example:
    >>> with SILENT.progress("searching") as step:
    ...     step(1, 10)
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Step = Callable[..., None]
"""Called with (done, total); with (done) if the total is unknown; or with (done, total, task)."""


class Monitor(Protocol):
    """Receiver of progress, such as a terminal, a notebook or a log."""

    def log(self, text: str) -> None:
        """Show one line of text, without a line break."""

    def progress(self, task: str) -> AbstractContextManager[Step]:
        """Context manager that yields a `Step`; `task` is a few words."""


class _Silent:
    def log(self, text: str) -> None:
        pass

    @contextmanager
    def progress(self, task: str) -> Iterator[Step]:
        yield lambda *_: None


SILENT: Monitor = _Silent()
"""A monitor that shows nothing; the default of all verbs."""
