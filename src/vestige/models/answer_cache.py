"""Answers of a service, kept in a file: a killed audit goes on without paying for anything twice.

Answers are lines of JSON in a file that only grows: one for each context, one for each call that
is about to be made, so that the budget counts what a kill cut short, and from time to time the
query statistics. A line that a kill left unfinished is taken off again, and one that was damaged
since: each has a checksum. The file holds the texts that were asked about, and is readable to its
owner only.

It is no database: a damaged page of one takes all answers in it, or the file, with it; a damaged
line takes one.
"""

import json
import os
import re
import zlib
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import Field

from vestige.data.atomic_write import PRIVATE_FILE, make_directory, naming
from vestige.data.json_file import Count, Excerpt
from vestige.data.regular_file import require_regular
from vestige.errors import DataError
from vestige.models.service import QueryStatistics
from vestige.models.top_k import Context

_SUM = re.compile(rb', "sum": ([0-9]+)}$')
_KINDS = ({"words", "source", "answer"}, {"sent"}, {"account"})


class AnswerCache(MutableMapping[Context, tuple[str, ...]]):
    """A cache of `ServiceModel` that outlives the program.

    Args:
        path: the file; it is made where it is missing. For one callable, one k, one process.

    Attributes:
        before: query statistics of the sessions before this one.
        damaged: lines of the file that are not what was written; what they answered is asked again.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with AnswerCache(Path(folder) / "answers.jsonl") as kept:
        ...         kept[Context(("to",))] = ("be", "go")
        ...     with AnswerCache(Path(folder) / "answers.jsonl") as again:
        ...         again[Context(("to",))]
        ('be', 'go')
    """

    def __init__(self, path: Path) -> None:
        self._path = Path(path)
        self._answers: dict[Context, tuple[str, ...]] = {}
        self.before, self.damaged = QueryStatistics(), 0
        self._whole: list[bytes] = []
        if os.path.lexists(self._path):
            require_regular(self._path, error=DataError, remedy="Remove it.")
            for line in self._path.read_bytes().split(b"\n")[:-1]:
                if self._read(line):
                    self._whole.append(line)
                else:
                    self.damaged += 1
        self._file: BinaryIO | None = None

    def __enter__(self) -> "AnswerCache":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def __getitem__(self, context: Context) -> tuple[str, ...]:
        return self._answers[context]

    def __setitem__(self, context: Context, answer: tuple[str, ...]) -> None:
        self._answers[context] = answer
        self._write(words=context.words, source=context.source, answer=answer)

    def __delitem__(self, context: Context) -> None:
        raise TypeError("answers are kept for good, got one to delete")

    def __iter__(self) -> Iterator[Context]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def sending(self, queries: int) -> None:
        """Record a call before it is made: a killed one counts for the budget."""
        self._write(sent=queries)

    def note(self, statistics: QueryStatistics) -> None:
        """Record the statistics of all sessions."""
        self._write(account=statistics.summary())

    def _write(self, **content: object) -> None:
        if self._file is None:
            self._file = self._opened()
        with naming(self._path):
            body = json.dumps(content).encode()
            self._file.write(body[:-1] + b', "sum": %d}\n' % zlib.crc32(body))

    def _opened(self) -> BinaryIO:
        """The file with its whole lines and no others; unbuffered, so that a kill takes none."""
        make_directory(self._path.parent)
        kept = b"".join(line + b"\n" for line in self._whole)
        self._whole = []
        path = self._path
        if self.damaged:
            path = path.with_name(f".{path.name}.mended")
            path.unlink(missing_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        file = os.fdopen(handle, "r+b", buffering=0)
        if self.damaged:
            file.write(kept)
            os.fsync(handle)
            os.replace(path, self._path)
        os.truncate(handle, len(kept))
        file.seek(0, os.SEEK_END)
        return file

    def _read(self, line: bytes) -> bool:
        """Whether a line is one that was written."""
        found = _SUM.search(line)
        body = line if found is None else line[: found.start()] + b"}"
        if found is not None and int(found[1]) != zlib.crc32(body):
            return False
        try:
            content = json.loads(body)
            if not isinstance(content, dict) or set(content) not in _KINDS:
                return False
            told = _Line.model_validate(content)
            if told.answer is not None and told.words is not None:
                self._answers[Context(tuple(told.words), told.source)] = tuple(told.answer)
            elif told.sent is not None:
                queries, calls = self.before.queries + told.sent, self.before.calls + 1
                self.before = replace(self.before, queries=queries, calls=calls)
            elif told.account is not None:
                self.before = QueryStatistics(**told.account.model_dump())
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        return True


class _Statistics(Excerpt):
    """A `QueryStatistics` as a line has it."""

    contexts: Count = 0
    cached: Count = 0
    queries: Count = 0
    calls: Count = 0
    retries: Count = 0
    failures: Count = 0
    timeouts: Count = 0
    refused: Count = 0
    unanswered: Count = 0
    unasked: Count = 0
    short_lists: Count = 0
    long_lists: Count = 0
    duplicates: Count = 0
    unknown_words: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    budget: Count | None = None
    budget_spent: bool = False
    gave_up: bool = False


class _Line(Excerpt):
    """A line: an answer, a call that is about to be made, or query statistics."""

    words: list[str] | None = None
    source: str | None = None
    answer: list[str] | None = None
    sent: Count | None = None
    account: _Statistics | None = None
