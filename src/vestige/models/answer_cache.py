"""Answers of a callable service in a file, so that a killed audit asks nothing twice.

A call is counted before it is made, so that a killed one still counts against the budget. The file
holds the queried texts and is private to its owner.
"""

import json
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from pathlib import Path

from vestige.models.service import QueryStatistics
from vestige.models.top_k import Context
from vestige.monitor import SILENT, Monitor
from vestige.store import Store

_STATISTICS, _SENT = "statistics", "sent"


class AnswerCache(MutableMapping[Context, tuple[str, ...]]):
    """A cache of `ServiceModel` that outlives the program.

    Args:
        path: the file, made if it is missing. For one callable, one k, one process.
        monitor: gets a line if answers are damaged, whose contexts are then asked about again.

    Attributes:
        before: query statistics of the sessions before this one.

    Raises:
        RunError: the file cannot be read or written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with AnswerCache(Path(folder) / "answers.sqlite") as cache:
        ...         cache[Context(("to",))] = ("be", "go")
        ...     with AnswerCache(Path(folder) / "answers.sqlite") as again:
        ...         again[Context(("to",))]
        ('be', 'go')
    """

    def __init__(self, path: Path, monitor: Monitor = SILENT) -> None:
        self._store = Store(path, monitor=monitor)
        self._answers = self._store.part("answer/")
        noted = QueryStatistics(**self._store.get(_STATISTICS, {}))
        queries, calls = self._store.get(_SENT, (0, 0))
        self.before = replace(noted, queries=noted.queries + queries, calls=noted.calls + calls)

    def __enter__(self) -> "AnswerCache":
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def __getitem__(self, context: Context) -> tuple[str, ...]:
        try:
            return tuple(self._answers[_key(context)])
        except KeyError:
            raise KeyError(context) from None

    def __setitem__(self, context: Context, answer: tuple[str, ...]) -> None:
        self._answers[_key(context)] = answer

    def __delitem__(self, context: Context) -> None:
        raise TypeError("answers are kept for good, got one to delete")

    def __iter__(self) -> Iterator[Context]:
        for key in self._answers:
            source, *words = json.loads(key)
            yield Context(tuple(words), source)

    def __len__(self) -> int:
        return len(self._answers)

    def sending(self, queries: int) -> None:
        """Count a call before it is made."""
        with self._store.transaction():
            earlier, calls = self._store.get(_SENT, (0, 0))
            self._store[_SENT] = [earlier + queries, calls + 1]

    def note(self, statistics: QueryStatistics) -> None:
        """Record the statistics of all sessions, which count every call so far."""
        with self._store.transaction():
            self._store[_STATISTICS] = statistics.summary()
            self._store.pop(_SENT, None)


def _key(context: Context) -> str:
    return json.dumps([context.source, *context.words])
