"""What a server was asked and has answered, in SQLite: paid for once, whoever was killed.

A call stands in the file before it is made, so that a killed one counts for the budget. Answers are
on trial until a control question says that the model behind the name is still the same. The file
holds the texts that were asked about and is its owner's alone; it never holds a key.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vestige.data.atomic_write import PRIVATE_FILE, make_directory, naming
from vestige.data.regular_file import require_regular
from vestige.errors import DataError
from vestige.models.endpoint_wire import Question, Reply

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers (
    question TEXT PRIMARY KEY, reply TEXT NOT NULL, on_trial INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, questions INTEGER NOT NULL, tokens INTEGER NOT NULL, outcome TEXT,
    seconds REAL NOT NULL DEFAULT 0);
"""


class EndpointStore:
    """Answers of one server, for threads of one process.

    Args:
        path: the file; it is made where it is missing.

    Raises:
        DataError: the file is damaged or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = Path(path), threading.Lock()
        make_directory(self._path.parent)
        if os.path.lexists(self._path):
            require_regular(self._path, error=DataError, remedy="Remove it.")
        with naming(self._path):
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
        self._file = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        with self._alone() as file:
            file.executescript(_SCHEMA)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def about(self, name: str) -> str | None:
        """What was noted under a name."""
        with self._alone() as file:
            row = file.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def note(self, name: str, value: str) -> None:
        """Note something of the server itself."""
        with self._alone() as file:
            file.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, value))

    def reply(self, question: Question) -> Reply | None:
        """The answer to a question, if it was given before."""
        with self._alone() as file:
            found = file.execute("SELECT reply FROM answers WHERE question = ?", (question.key,))
            row = found.fetchone()
        return None if row is None else Reply.from_json(row[0])

    def sending(self, questions: int, tokens: int) -> int:
        """Record a call before it is made, with the tokens that it can take; its number."""
        with self._alone() as file:
            done = file.execute(
                "INSERT INTO calls (questions, tokens) VALUES (?, ?)", (questions, tokens)
            )
        return int(done.lastrowid or 0)

    def ended(self, call: int, outcome: str, *, tokens: int, seconds: float) -> None:
        """Record how a call ended, and the tokens that it took."""
        with self._alone() as file:
            file.execute(
                "UPDATE calls SET outcome = ?, tokens = ?, seconds = ? WHERE id = ?",
                (outcome, tokens, seconds, call),
            )

    def keep(self, questions: Sequence[Question], replies: Sequence[Reply]) -> None:
        """Keep the answers of one call, on trial."""
        rows = [(q.key, r.to_json()) for q, r in zip(questions, replies, strict=True)]
        with self._alone() as file:
            file.execute("BEGIN")
            file.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, 1)", rows)
            file.execute("COMMIT")

    def judge(self, same: bool) -> int:
        """Confirm the answers on trial, or forget them; how many there were."""
        with self._alone() as file:
            done = file.execute(
                "UPDATE answers SET on_trial = 0 WHERE on_trial = 1"
                if same
                else "DELETE FROM answers WHERE on_trial = 1"
            )
        return done.rowcount

    def spent(self) -> tuple[int, int]:
        """Calls and tokens of all sessions."""
        with self._alone() as file:
            row = file.execute("SELECT count(*), coalesce(sum(tokens), 0) FROM calls").fetchone()
        return int(row[0]), int(row[1])

    def statistics(self) -> dict[str, float]:
        """Totals of all sessions: calls, tokens, failed calls and seconds that calls took."""
        calls, tokens = self.spent()
        with self._alone() as file:
            failed, seconds, kept = file.execute(
                "SELECT (SELECT count(*) FROM calls WHERE outcome IS NOT 'answered'), "
                "(SELECT coalesce(sum(seconds), 0) FROM calls), (SELECT count(*) FROM answers)"
            ).fetchone()
        return {
            "calls": calls,
            "tokens": tokens,
            "failed_calls": failed,
            "kept_answers": kept,
            "seconds": seconds,
        }

    @contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._file
            except sqlite3.Error as error:
                raise DataError(
                    f"{self._path} cannot be used: {error}",
                    remedy="Make room or give back the right to write there; a damaged file must "
                    "be removed, and is then paid for again.",
                ) from error
