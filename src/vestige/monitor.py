"""What long work tells whoever waits for it: lines of text, and how far it is.

Example:
    >>> with SILENT.progress("searching") as step:
    ...     step(1, 10)
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Step = Callable[..., None]
"""Called with (done, total), or with (done) where the total is unknown; where the task has parts,
with (done, total, what is being done)."""


class Monitor(Protocol):
    """A reader of progress: a terminal, a notebook, a log."""

    def log(self, text: str) -> None:
        """One line for the reader, without a line break."""

    def progress(self, task: str) -> AbstractContextManager[Step]:
        """Progress of one task, from entry to exit.

        Args:
            task: what is being done, in a few words.

        Returns:
            A context whose value is called as a `Step`.
        """


class _Silent:
    def log(self, text: str) -> None:
        pass

    @contextmanager
    def progress(self, task: str) -> Iterator[Step]:
        yield lambda *_: None


SILENT: Monitor = _Silent()
"""A monitor that shows nothing: the default of every workflow."""
