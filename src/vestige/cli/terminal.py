"""What the command line prints: results on stdout, progress on stderr."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vestige.monitor import Step
from vestige.reports.disclosure import disclose_facts, printable
from vestige.reports.terminal import say, show

PATIENCE = 2.0
"""Seconds after which a progress bar appears."""

EVERY = 30.0
"""Seconds between two lines of progress where there is no terminal to draw a bar on."""


def show_json(summary: Mapping[str, object], *, show_secrets: bool = False) -> None:
    """A result's summary as JSON on stdout, redacted like a table, invisible characters escaped."""
    from vestige.results import to_json

    text = to_json(disclose_facts(summary, show_secrets=show_secrets))
    print("\n".join(_escaped(line) for line in text.split("\n")))


def _escaped(line: str) -> str:
    return "".join(c if printable(c) == c else json.dumps(c)[1:-1] for c in line)


def show_result(result: Any, out: Any, *, show_secrets: bool) -> None:
    """The report of a result on stdout, notices on stderr."""
    reports = result.reports(show_secrets=show_secrets)
    for place, one in enumerate(reports):
        if place:
            print()
        show(one, titled=len(reports) > 1)
    if out is not None:
        say(result.next_step(out))


class Terminal:
    """A verb's monitor: lines on stderr, and a bar for what takes longer than two seconds."""

    def log(self, text: str) -> None:
        """One line."""
        say(text)

    @contextmanager
    def progress(self, task: str) -> Iterator[Step]:
        """A bar; without a terminal a line now and then, so that a log does not look hung."""
        shown = _Progress(task)
        try:
            yield shown
        finally:
            shown.close()


class _Progress:
    """Progress of one task: Rich, if it draws a bar, is imported once there is reason to wait."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._start = self._shown = time.monotonic()
        self._first: float | None = None  # what was done before: a resumed training's steps
        self._bar: Any = None
        self._draws = sys.stderr.isatty()

    def __call__(self, done: float, total: float | None = None, task: str = "") -> None:
        self._task = task or self._task
        self._first = done if self._first is None else self._first
        now = time.monotonic()
        if self._draws:
            self._draw(done, total, now)
        elif now - self._shown >= EVERY:
            self._shown = now
            say(f"{self._task}: {self._position(done, total, now - self._start)}")

    def _draw(self, done: float, total: float | None, now: float) -> None:
        if self._bar is None and now - self._start > PATIENCE:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
            from rich.progress import MofNCompleteColumn as Count

            text = TextColumn("{task.description}", markup=False)
            columns = (text, BarColumn(), Count(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._bar.add_task("", total=total)
            self._bar.start()
        if self._bar is not None:
            (id_,) = self._bar.task_ids
            self._bar.update(id_, completed=done, total=total, description=printable(self._task))

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _position(self, done: float, total: float | None, seconds: float) -> str:
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
