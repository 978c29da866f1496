"""A workflow's monitor on a terminal: lines and progress on stderr."""

from contextlib import AbstractContextManager

from vestige.cli.terminal import progress, say
from vestige.monitor import Step


class Terminal:
    """Shows lines, and a bar for what takes longer than two seconds."""

    def log(self, text: str) -> None:
        """One line on stderr."""
        say(text)

    def progress(self, task: str) -> AbstractContextManager[Step]:
        """A bar on stderr; without a terminal a line now and then."""
        return progress(task)
