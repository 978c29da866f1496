"""Finished work of long calls, by key, in one SQLite file.

A value is JSON or a dict of NumPy arrays. It is on the disk, whole, when the assignment returns.
SQLite keeps a transaction whole through a kill or a power failure, but not through a damaged disk
or a copy that was cut off, so each value has a checksum. Damaged values are dropped when the file
is opened, and their work is done again. The file is private to its owner (0600).

Example:
    >>> store = Store()
    >>> if "unit 1" not in store:
    ...     store["unit 1"] = [2, 3]
    >>> store.part("unit ")["1"]
    [2, 3]
"""

import hashlib
import json
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any

from vestige.data.writing import FULL, PRIVATE_FILE, lock_file, make_directory, replacing_path
from vestige.errors import RunError
from vestige.monitor import SILENT, Monitor

ROWS = "SELECT name, kind, value, checksum FROM work"
PUT = """INSERT INTO work VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE
    SET kind = excluded.kind, value = excluded.value, checksum = excluded.checksum"""
_TABLE = "work (name BLOB PRIMARY KEY, kind INTEGER, value BLOB, checksum BLOB)"
_OF_THE_SYSTEM = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
    sqlite3.SQLITE_CANTOPEN,
)
"""Errors that say nothing about the file's content."""

KEPT = "Finished work is kept: the same command resumes it"

_OWN = "WHERE name BETWEEN ? AND ? AND name NOT BETWEEN x'00' AND x'00FF'"
_IDENTITY = "\0identity"
"""Iteration shows no key that begins with a null character."""
_JSON, _ARRAYS = 0, 1
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_UNWRITTEN = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_CLOSED = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


class Store(MutableMapping[str, Any]):
    """Values by key. One process at a time has the file; its threads may share the store.

    Args:
        path: the file, made if it is missing; None keeps the values in memory.
        monitor: gets one line if the file is damaged.
        essential: a key without which a damaged file is refused, such as an account of money spent.
        shared: let several processes use the file at once.

    Raises:
        RunError: another process has the file, or it cannot be read or written.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        monitor: Monitor = SILENT,
        essential: str | None = None,
        shared: bool = False,
    ) -> None:
        self.path, self._monitor, self._shared, self._prefix = path, monitor, shared, b""
        self._mutex, self._held = threading.RLock(), ExitStack()
        with ExitStack() as undo:
            undo.push(self._held)
            if path is not None and not shared:
                self._held.enter_context(lock_file(path))
            with self._errors():
                name = None if essential is None else _name(essential)
                self._db, intact = _opened(path, essential=name)
            undo.pop_all()
        if intact is not None:
            self._monitor.log(
                f"{path} is damaged: {intact:,} of its values are intact, the others are computed "
                "again"
            )

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that `identify` recorded."""
        return dict(self.get(_IDENTITY, {}))

    def identify(self, identity: Mapping[str, Any]) -> None:
        """Record the settings that determine the values, or compare them with the record.

        Raises:
            RunError: the values belong to other settings; the message quotes no text.
        """
        now, known = json.loads(json.dumps(identity)), self.identity
        folder = None if self.path is None else self.path.parent
        if known and (differences := _differences(known, now)):
            raise RunError(
                f"{folder} holds unfinished work with other settings: {differences}",
                remedy="Repeat that command to finish it, choose another --out, or delete "
                f"{folder}.",
            )
        if len(self) and known:
            self._monitor.log(f"Resuming: {len(self):,} finished parts found in {folder}")
        elif len(self):
            self._monitor.log(f"{self.path} is damaged: its work is done again")
            self.clear()
        self[_IDENTITY] = now

    def part(self, prefix: str) -> "Store":
        """The values whose keys begin with a prefix, by the rest of their keys."""
        part = copy(self)
        part._prefix += _name(prefix)
        return part

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all values of the block together, or none of them if it raises."""
        with self._mutex:
            if self._db.in_transaction:
                yield
                return
            self._sql("BEGIN IMMEDIATE")
            try:
                yield
                self._sql("COMMIT")
            except BaseException:
                self._db.rollback()
                raise

    def close(self) -> None:
        """Close the file; an empty one is deleted."""
        with self._mutex, self._held, suppress(sqlite3.Error):
            is_empty = not self._db.execute(f"{ROWS} LIMIT 1").fetchall()
            self._db.close()
            if self.path is not None and is_empty and not self._shared:
                self.path.unlink(missing_ok=True)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, key: str) -> Any:
        rows = self._sql(f"{ROWS} WHERE name = ?", self._prefix + _name(key))
        if not rows or not _is_intact(rows[0]):
            raise KeyError(key)
        return _decoded(*rows[0][1:3])

    def __setitem__(self, key: str, value: Any) -> None:
        row = (self._prefix + _name(key), *_encoded(value))
        self._sql(PUT, *row, checksum(*row))

    def __delitem__(self, key: str) -> None:
        deleted = "DELETE FROM work WHERE name = ? RETURNING 1"
        if not self._sql(deleted, self._prefix + _name(key)):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        rows = self._sql(f"SELECT name FROM work {_OWN} ORDER BY rowid", *self._range)
        start = len(self._prefix)
        return (row[0][start:].decode("utf-8", "surrogatepass") for row in rows)

    def __len__(self) -> int:
        return int(self._sql(f"SELECT count(*) FROM work {_OWN}", *self._range)[0][0])

    def clear(self) -> None:
        """Delete the values; of a whole store, its identity too."""
        self._sql("DELETE FROM work WHERE name BETWEEN ? AND ?", *self._range)

    @property
    def _range(self) -> tuple[bytes, bytes]:
        """The first and the last name with the prefix; no UTF-8 has a byte FF."""
        return self._prefix, self._prefix + b"\xff"

    def _sql(self, statement: str, *values: object) -> list[Any]:
        with self._mutex, self._errors():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:  # such as a closed store
            raise
        except (sqlite3.Error, OSError) as error:
            raise _refusal(self.path, error) from error


def _name(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _encoded(value: Any) -> tuple[int, bytes]:
    import numpy as np
    from safetensors.numpy import save

    if isinstance(value, dict) and any(isinstance(one, np.ndarray) for one in value.values()):
        return _ARRAYS, save(value)
    return _JSON, json.dumps(value, separators=(",", ":")).encode()


def _decoded(kind: int, content: bytes) -> Any:
    if kind == _JSON:
        return json.loads(content)
    from safetensors.numpy import load

    return load(content)


def _refusal(path: Path | None, error: sqlite3.Error | OSError) -> RunError:
    """An error about the store's file; a full disk says that finished work is kept."""
    code, reason = _error_code(error), getattr(error, "strerror", None) or error
    if code in _BUSY:
        return RunError(
            f"{path} is in use by another process",
            remedy="Wait until that process has ended, or end it.",
        )
    if code == sqlite3.SQLITE_IOERR:  # SQLite does not say which
        reason = "File too large, quota exceeded, or the disk fails"
    if code in _UNWRITTEN or getattr(error, "errno", None) in FULL:
        refusal = RunError(
            f"{path} cannot be written: {reason}",
            remedy="Make room on that disk, or choose an --out on another.",
        )
        refusal.add_note(KEPT)
        return refusal
    if code in _CLOSED or isinstance(error, OSError):
        return RunError(
            f"{path} cannot be opened or written: {reason}",
            remedy="Check the path and its permissions.",
        )
    return RunError(f"{path} cannot be used: {reason}", remedy="Delete it to begin again.")


def _differences(known: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The settings that differ, by name; values only if they are numbers."""
    parts = []
    for name in {**known, **now}:
        one, other = known.get(name), now.get(name)
        if json.dumps(one) == json.dumps(other):
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            parts.append(f"{name}: {_differences(one, other)}")
        elif all(isinstance(each, bool | int | float | None) for each in (one, other)):
            parts.append(f"{name} {one} and not {other}")
        else:
            parts.append(name)
    return ", ".join(parts)


def _opened(
    path: Path | None, *, essential: bytes | None = None
) -> tuple[sqlite3.Connection, int | None]:
    """Open a file of rows, made if it is missing; a damaged one is replaced by its intact rows.

    Args:
        path: the file; None keeps the rows in memory.
        essential: the name of a row without which a damaged file is refused.

    Returns:
        The database, in autocommit mode, and how many rows of a damaged file are intact.

    Raises:
        RunError: the path is not a regular file, or the essential row is lost.
        sqlite3.Error, OSError: the file cannot be read or written.
    """
    db = _connected(path)
    if path is None or _is_sound(db):
        return db, None
    with replacing_path(path) as place:
        fresh = _connected(place)
        fresh.execute("BEGIN")
        fresh.executemany(PUT, _intact_rows(db))
        fresh.execute("COMMIT")
        names = {name for (name,) in fresh.execute("SELECT name FROM work")}
        fresh.close()
        db.close()
        if essential is not None and essential not in names:
            raise RunError(
                f"{path} cannot be used: it is damaged or of another version",
                remedy="Delete it to start again.",
            )
    return _connected(path), len(names)


def checksum(name: bytes, kind: int, value: bytes) -> bytes:
    """The checksum of a row, (16,) bytes of a SHA-256."""
    digest = hashlib.sha256(b"%d %d " % (kind, len(name)) + name)
    digest.update(value)
    return digest.digest()[:16]


def _is_intact(row: tuple[Any, ...]) -> bool:
    """Whether a row is the one that was written."""
    name, kind, value, found = row
    typed = isinstance(name, bytes) and isinstance(kind, int) and isinstance(value, bytes)
    return typed and bool(found == checksum(name, kind, value))


def _error_code(error: BaseException) -> int:
    """SQLite's primary code of an error; 0 if it has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _connected(path: Path | None) -> sqlite3.Connection:
    """A database in which deleted values leave no trace; an empty one gets its table."""
    if path is not None:
        make_directory(path.parent)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
        except FileExistsError:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise RunError(f"{path} is not a regular file", remedy="Remove it.") from None
    place = ":memory:" if path is None else path
    db = sqlite3.connect(place, timeout=30, isolation_level=None, check_same_thread=False)
    db.text_factory = bytes
    db.execute("PRAGMA secure_delete = ON")
    if path is None or path.stat().st_size == 0:
        db.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE}")
    return db


def _is_sound(db: sqlite3.Connection) -> bool:
    """Whether a database is one of ours, without damage."""
    try:
        tables = db.execute("SELECT sql FROM sqlite_schema WHERE type = 'table'").fetchall()
        if tables != [(f"CREATE TABLE {_TABLE}".encode(),)]:
            return False
        db.execute("DELETE FROM work WHERE 0")  # refused if a damaged header forbids writing
        whole = db.execute("PRAGMA integrity_check(1)").fetchone() == (b"ok",)
        return whole and all(map(_is_intact, db.execute(ROWS)))
    except sqlite3.DatabaseError as error:
        if _error_code(error) in _OF_THE_SYSTEM:
            raise
        return False
    except UnicodeDecodeError:  # SQLite's message quotes damaged bytes
        return False


def _intact_rows(db: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """The rows that can be read, from the first and, where reading fails, from the last."""
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
            db.execute("PRAGMA writable_schema = ON")  # so that a file that was cut off is read
            yield from filter(_is_intact, db.execute(f"{ROWS} ORDER BY rowid {order}"))
            return
