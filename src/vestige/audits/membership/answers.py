"""Answers of a function in the store: a killed audit resumes and pays for nothing twice."""

import json
from collections.abc import Iterator, MutableMapping
from dataclasses import replace

from vestige.models.service import QueryStatistics
from vestige.models.top_k import Context
from vestige.store import Store

ACCOUNT = "account"


class StoredAnswers(MutableMapping[Context, tuple[str, ...]]):
    """A cache of `ServiceModel` that outlives the program.

    The answers of one call are written together, before the next call is made or at the end of the
    block. A call is counted before it is made, so that a killed one counts for the budget.

    Attributes:
        before: query statistics of earlier sessions.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._answers = store, store.part("answer/")
        self._fresh: dict[str, list[str]] = {}
        self.before = self._account = QueryStatistics(**store.get(ACCOUNT, {}))

    def __enter__(self) -> "StoredAnswers":
        return self

    def __exit__(self, *_: object) -> None:
        self.note(self._account)

    def sending(self, queries: int) -> None:
        """Count a call before it is made."""
        so_far = self._account
        self.note(replace(so_far, queries=so_far.queries + queries, calls=so_far.calls + 1))

    def note(self, statistics: QueryStatistics) -> None:
        """Write the statistics of all sessions, and new answers."""
        if statistics != self._account or self._fresh:
            with self._store.transaction():
                self._answers.update(self._fresh)
                self._store[ACCOUNT] = statistics.summary()
            self._account, self._fresh = statistics, {}

    def __getitem__(self, context: Context) -> tuple[str, ...]:
        key = _key(context)
        return tuple(self._fresh[key] if key in self._fresh else self._answers[key])

    def __setitem__(self, context: Context, answer: tuple[str, ...]) -> None:
        self._fresh[_key(context)] = list(answer)

    def __delitem__(self, context: Context) -> None:
        raise TypeError("answers are kept, got one to delete")

    def __iter__(self) -> Iterator[Context]:
        for key in (*self._answers, *self._fresh):
            words, source = json.loads(key)
            yield Context(tuple(words), source)

    def __len__(self) -> int:
        return len(self._answers) + len(self._fresh)


def _key(context: Context) -> str:
    return json.dumps([context.words, context.source])
