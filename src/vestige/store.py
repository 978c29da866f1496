"""Finished work of long calls by key, in one SQLite file.

A value is JSON or a dict of NumPy arrays. It is on the disk when the assignment returns. SQLite
transactions survive kills and power failures, but not a damaged disk or a truncated copy, so each
value has a checksum. Opening the file drops damaged values, which are then computed again. Only the
owner can read the file (0600).

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
KEPT = "Finished work is kept: the same command resumes it"

_VISIBLE_KEYS = "WHERE name BETWEEN ? AND ? AND name NOT BETWEEN x'00' AND x'00FF'"
_IDENTITY = "\0identity"
"""Keys that begin with a null character are hidden from iteration."""
_JSON, _ARRAYS = 0, 1
_BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_WRITE_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_OPEN_CODES = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
_SYSTEM_CODES = (*_BUSY_CODES, *_WRITE_CODES, sqlite3.SQLITE_CANTOPEN)
"""Codes that do not mean that the file is damaged."""


class Store(MutableMapping[str, Any]):
    """Values by key. One process at a time uses the file; its threads may share the store.

    Args:
        path: the file, made if it is missing; None keeps the values in memory.
        monitor: gets one line if the file is damaged.
        essential: a key that a damaged file must still have, such as an account of money spent.
        shared: let several processes use the file at once.

    Raises:
        RunError: another process uses the file, or it cannot be read or written.
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
        self._lock, self._resources = threading.RLock(), ExitStack()
        with ExitStack() as cleanup:
            cleanup.push(self._resources)
            if path is not None and not shared:
                self._resources.enter_context(lock_file(path))
            with self._errors():
                essential_key = None if essential is None else _key_bytes(essential)
                self._db, recovered = _open(path, essential=essential_key)
            cleanup.pop_all()
        if recovered is not None:
            self._monitor.log(
                f"{path} is damaged: {recovered:,} of its values are intact, the others are "
                "computed again"
            )

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that `identify` recorded."""
        return dict(self.get(_IDENTITY, {}))

    def identify(self, identity: Mapping[str, Any]) -> None:
        """Record the settings that determine the values, or compare them with the recorded ones.

        Raises:
            RunError: the values were computed with other settings; the message quotes no text.
        """
        new, saved = json.loads(json.dumps(identity)), self.identity
        folder = None if self.path is None else self.path.parent
        if saved and (differences := _differences(saved, new)):
            raise RunError(
                f"{folder} holds unfinished work with other settings: {differences}",
                remedy="Repeat that command to finish it, choose another --out, or delete "
                f"{folder}.",
            )
        if len(self) and saved:
            self._monitor.log(f"Resuming: {len(self):,} finished parts found in {folder}")
        elif len(self):
            self._monitor.log(f"{self.path} is damaged: its work is done again")
            self.clear()
        self[_IDENTITY] = new

    def part(self, prefix: str) -> "Store":
        """A view of the keys that begin with a prefix; its keys omit the prefix."""
        part = copy(self)
        part._prefix += _key_bytes(prefix)
        return part

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all values of the block, or none if it raises."""
        with self._lock:
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
        with self._lock, self._resources, suppress(sqlite3.Error):
            is_empty = not self._db.execute(f"{ROWS} LIMIT 1").fetchall()
            self._db.close()
            if self.path is not None and is_empty and not self._shared:
                self.path.unlink(missing_ok=True)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, key: str) -> Any:
        rows = self._sql(f"{ROWS} WHERE name = ?", self._prefix + _key_bytes(key))
        if not rows or not _is_intact(rows[0]):
            raise KeyError(key)
        return _decode(*rows[0][1:3])

    def __setitem__(self, key: str, value: Any) -> None:
        row = (self._prefix + _key_bytes(key), *_encode(value))
        self._sql(PUT, *row, checksum(*row))

    def __delitem__(self, key: str) -> None:
        deleted = "DELETE FROM work WHERE name = ? RETURNING 1"
        if not self._sql(deleted, self._prefix + _key_bytes(key)):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        rows = self._sql(f"SELECT name FROM work {_VISIBLE_KEYS} ORDER BY rowid", *self._range)
        start = len(self._prefix)
        return (row[0][start:].decode("utf-8", "surrogatepass") for row in rows)

    def __len__(self) -> int:
        return int(self._sql(f"SELECT count(*) FROM work {_VISIBLE_KEYS}", *self._range)[0][0])

    def clear(self) -> None:
        """Delete the values; without a prefix, the identity too."""
        self._sql("DELETE FROM work WHERE name BETWEEN ? AND ?", *self._range)

    @property
    def _range(self) -> tuple[bytes, bytes]:
        """Bounds of the names with the prefix; UTF-8 never contains the byte FF."""
        return self._prefix, self._prefix + b"\xff"

    def _sql(self, statement: str, *values: object) -> list[Any]:
        with self._lock, self._errors():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:  # such as a closed store
            raise
        except (sqlite3.Error, OSError) as error:
            raise _run_error(self.path, error) from error


def _key_bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _encode(value: Any) -> tuple[int, bytes]:
    import numpy as np
    from safetensors.numpy import save

    if isinstance(value, dict) and any(isinstance(item, np.ndarray) for item in value.values()):
        return _ARRAYS, save(value)
    return _JSON, json.dumps(value, separators=(",", ":")).encode()


def _decode(kind: int, content: bytes) -> Any:
    if kind == _JSON:
        return json.loads(content)
    from safetensors.numpy import load

    return load(content)


def _run_error(path: Path | None, error: sqlite3.Error | OSError) -> RunError:
    """A RunError about the store's file; for a full disk, with a note that work is kept."""
    code, reason = _error_code(error), getattr(error, "strerror", None) or error
    if code in _BUSY_CODES:
        return RunError(
            f"{path} is in use by another process",
            remedy="Wait until that process has ended, or end it.",
        )
    if code == sqlite3.SQLITE_IOERR:  # SQLite does not say which
        reason = "File too large, quota exceeded, or the disk fails"
    if code in _WRITE_CODES or getattr(error, "errno", None) in FULL:
        refusal = RunError(
            f"{path} cannot be written: {reason}",
            remedy="Make room on that disk, or choose an --out on another.",
        )
        refusal.add_note(KEPT)
        return refusal
    if code in _OPEN_CODES or isinstance(error, OSError):
        return RunError(
            f"{path} cannot be opened or written: {reason}",
            remedy="Check the path and its permissions.",
        )
    return RunError(f"{path} cannot be used: {reason}", remedy="Delete it to begin again.")


def _differences(saved: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Names of the settings that differ; values only if they are numbers."""
    parts = []
    for name in {**saved, **new}:
        old_value, new_value = saved.get(name), new.get(name)
        if json.dumps(old_value) == json.dumps(new_value):
            continue
        if isinstance(old_value, dict) and isinstance(new_value, dict):
            parts.append(f"{name}: {_differences(old_value, new_value)}")
        elif all(isinstance(value, bool | int | float | None) for value in (old_value, new_value)):
            parts.append(f"{name} {old_value} and not {new_value}")
        else:
            parts.append(name)
    return ", ".join(parts)


def _open(
    path: Path | None, *, essential: bytes | None = None
) -> tuple[sqlite3.Connection, int | None]:
    """Open or make a database file; a damaged file is replaced by its intact rows.

    Returns:
        The database in autocommit mode, and the number of intact rows if the file was damaged.

    Raises:
        RunError: the path is not a regular file, or the essential row is missing.
        sqlite3.Error, OSError: the file cannot be read or written.
    """
    db = _connect(path)
    if path is None or _is_sound(db):
        return db, None
    with replacing_path(path) as new_path:
        copy = _connect(new_path)
        copy.execute("BEGIN")
        copy.executemany(PUT, _intact_rows(db))
        copy.execute("COMMIT")
        recovered = {name for (name,) in copy.execute("SELECT name FROM work")}
        copy.close()
        db.close()
        if essential is not None and essential not in recovered:
            raise RunError(
                f"{path} cannot be used: it is damaged or of another version",
                remedy="Delete it to start again.",
            )
    return _connect(path), len(recovered)


def checksum(name: bytes, kind: int, value: bytes) -> bytes:
    """Checksum of a row: the first 16 bytes of a SHA-256."""
    digest = hashlib.sha256(b"%d %d " % (kind, len(name)) + name)
    digest.update(value)
    return digest.digest()[:16]


def _is_intact(row: tuple[Any, ...]) -> bool:
    """Whether a row has its types and its checksum."""
    name, kind, value, saved_checksum = row
    has_types = isinstance(name, bytes) and isinstance(kind, int) and isinstance(value, bytes)
    return has_types and bool(saved_checksum == checksum(name, kind, value))


def _error_code(error: BaseException) -> int:
    """Primary SQLite code of an error; 0 for other errors."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _connect(path: Path | None) -> sqlite3.Connection:
    """Connect with secure deletion; an empty database gets its table."""
    if path is not None:
        make_directory(path.parent)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
        except FileExistsError:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise RunError(f"{path} is not a regular file", remedy="Remove it.") from None
    target = ":memory:" if path is None else path
    db = sqlite3.connect(target, timeout=30, isolation_level=None, check_same_thread=False)
    db.text_factory = bytes
    db.execute("PRAGMA secure_delete = ON")
    if path is None or path.stat().st_size == 0:
        db.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE}")
    return db


def _is_sound(db: sqlite3.Connection) -> bool:
    """Whether a database has our table and no damage."""
    try:
        tables = db.execute("SELECT sql FROM sqlite_schema WHERE type = 'table'").fetchall()
        if tables != [(f"CREATE TABLE {_TABLE}".encode(),)]:
            return False
        db.execute("DELETE FROM work WHERE 0")  # fails if a damaged header forbids writing
        is_whole = db.execute("PRAGMA integrity_check(1)").fetchone() == (b"ok",)
        return is_whole and all(map(_is_intact, db.execute(ROWS)))
    except sqlite3.DatabaseError as error:
        if _error_code(error) in _SYSTEM_CODES:
            raise
        return False
    except UnicodeDecodeError:  # SQLite's message quotes damaged bytes
        return False


def _intact_rows(db: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """The readable rows: in order and, if that fails, also in reverse order."""
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
            db.execute("PRAGMA writable_schema = ON")  # to read a truncated file
            yield from filter(_is_intact, db.execute(f"{ROWS} ORDER BY rowid {order}"))
            return
