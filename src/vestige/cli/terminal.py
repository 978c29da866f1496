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

BAR_DELAY = 2.0
"""Seconds before a progress bar appears."""

LINE_INTERVAL = 30.0
"""Seconds between two lines of progress without a terminal."""


def show_json(summary: Mapping[str, object], *, show_secrets: bool = False) -> None:
    """Print a summary as JSON on stdout, redacted, with invisible characters escaped."""
    from vestige.results import to_json

    text = to_json(disclose_facts(summary, show_secrets=show_secrets))
    print("\n".join(_escaped(line) for line in text.split("\n")))


def _escaped(line: str) -> str:
    return "".join(c if printable(c) == c else json.dumps(c)[1:-1] for c in line)


def show_result(result: Any, out: Any, *, show_secrets: bool) -> None:
    """Print the reports of a result on stdout, and notices on stderr."""
    reports = result.reports(show_secrets=show_secrets)
    for index, report in enumerate(reports):
        if index:
            print()
        show(report, titled=len(reports) > 1)
    if out is not None:
        say(result.next_step(out))


class Terminal:
    """Monitor of a verb: lines on stderr, and a bar for tasks longer than two seconds."""

    def log(self, text: str) -> None:
        """Print one line on stderr."""
        say(text)

    @contextmanager
    def progress(self, task: str) -> Iterator[Step]:
        """Show a bar; without a terminal, a line from time to time."""
        display = _Progress(task)
        try:
            yield display
        finally:
            display.close()


class _Progress:
    """Progress of one task; Rich is imported only when a bar is drawn."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._start = self._last_line = time.monotonic()
        self._first_done: float | None = None  # steps before a resumed training
        self._bar: Any = None
        self._has_terminal = sys.stderr.isatty()

    def __call__(self, done: float, total: float | None = None, task: str = "") -> None:
        self._task = task or self._task
        self._first_done = done if self._first_done is None else self._first_done
        now = time.monotonic()
        if self._has_terminal:
            self._draw(done, total, now)
        elif now - self._last_line >= LINE_INTERVAL:
            self._last_line = now
            say(f"{self._task}: {self._text(done, total, now - self._start)}")

    def _draw(self, done: float, total: float | None, now: float) -> None:
        if self._bar is None and now - self._start > BAR_DELAY:
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

    def _text(self, done: float, total: float | None, seconds: float) -> str:
        elapsed = f"{_duration(seconds)} so far"
        if not total:
            return f"{done:,.0f} done, {elapsed}"
        text = f"{done:,.0f} of {total:,.0f} ({done / total:.0%}), {elapsed}"
        done_here = done - (self._first_done or 0)
        if done_here <= 0:
            return text
        return f"{text}, about {_duration(seconds * max(0, total - done) / done_here)} to go"


def _duration(seconds: float) -> str:
    """A duration as text: "40 s", "3 min 20 s", "2 h 05 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
