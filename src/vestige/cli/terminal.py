"""What the command line prints: results on stdout, progress on stderr."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from vestige.reports.disclosure import disclose_facts, printable
from vestige.reports.terminal import say

__all__ = ["Terminal", "progress", "say", "show_json", "show_result"]

PATIENCE = 2.0
"""Seconds after which a progress bar appears."""

EVERY = 30.0
"""Seconds between two lines of progress where there is no terminal to draw a bar on."""

Progress = Callable[..., None]


def show_json(summary: Mapping[str, object], *, show_secrets: bool = False) -> None:
    """A result's summary as JSON on stdout: for programs, but for logs and terminals, too.

    What is redacted in a table is redacted here, and invisible characters are JSON's own escapes.
    """
    from vestige.results import to_json  # pulls in Arrow, which help can do without

    text = to_json(disclose_facts(summary, show_secrets=show_secrets))
    print("\n".join(_escaped(line) for line in text.split("\n")))


def _escaped(line: str) -> str:
    return "".join(c if printable(c) == c else json.dumps(c)[1:-1] for c in line)


def show_result(result: Any, out: Any, *, show_secrets: bool) -> None:
    """The report of a result on stdout, notices on stderr."""
    from vestige.reports.terminal import show

    reports = result.reports(show_secrets=show_secrets)
    for place, one in enumerate(reports):
        if place:
            print()
        show(one, titled=len(reports) > 1)
    if out is not None:
        say(result.next_step(out))


@contextmanager
def progress(task: str) -> Iterator[Progress]:
    """A bar on stderr that appears after two seconds; without a terminal a line now and then.

    Args:
        task: what is being done, in a few words.

    Yields:
        A callback (done, total) or (done) for library functions; a third argument says what is
        being done now.
    """
    if not sys.stderr.isatty():
        yield _Lines(task)
        return
    bar = _Bar(task)
    try:
        yield bar
    finally:
        bar.close()


class Terminal:
    """A workflow's monitor: lines on stderr, and a bar for what takes longer than two seconds."""

    def log(self, text: str) -> None:
        """One line."""
        say(text)

    def progress(self, task: str) -> AbstractContextManager[Progress]:
        """A bar; without a terminal a line now and then."""
        return progress(task)


class _Bar:
    """Rich's progress bar, imported and drawn only once there is reason to wait."""

    def __init__(self, task: str) -> None:
        self._task, self._since = task, time.monotonic()
        self._shown: Any = None
        self._id: Any = None

    def __call__(self, done: float, total: float | None = None, task: str = "") -> None:
        self._task = task or self._task
        if self._shown is None and time.monotonic() - self._since > PATIENCE:
            self._show(total)
        if self._shown is not None:
            told = printable(self._task)
            self._shown.update(self._id, completed=done, total=total, description=told)

    def _show(self, total: float | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.progress import MofNCompleteColumn as Count

        text = TextColumn("{task.description}", markup=False)
        self._shown = Progress(
            text, BarColumn(), Count(), TimeRemainingColumn(), console=Console(stderr=True)
        )
        self._id = self._shown.add_task(printable(self._task), total=total)
        self._shown.start()

    def close(self) -> None:
        if self._shown is not None:
            self._shown.stop()


class _Lines:
    """One plain line on stderr every so often, so that a log does not look hung."""

    def __init__(self, task: str) -> None:
        self._task, self._since = task, time.monotonic()
        self._said = self._since
        self._first: float | None = None  # what was done before: a resumed training's steps

    def __call__(self, done: float, total: float | None = None, task: str = "") -> None:
        self._task = task or self._task
        if self._first is None:
            self._first = done
        now = time.monotonic()
        if now - self._said < EVERY:
            return
        self._said = now
        say(f"{self._task}: {self._where(done, total, now - self._since)}")

    def _where(self, done: float, total: float | None, seconds: float) -> str:
        so_far = f"{_span(seconds)} so far"
        if not total:
            return f"{done:,.0f} done, {so_far}"
        share = f"{done:,.0f} of {total:,.0f} ({done / total:.0%}), {so_far}"
        own = done - (self._first or 0)
        if own <= 0:
            return share
        return f"{share}, about {_span(seconds * max(0, total - done) / own)} to go"


def _span(seconds: float) -> str:
    """A length of time in words: "40 s", "3 min 20 s", "2 h 05 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
