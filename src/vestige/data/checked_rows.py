"""SQLite files of named values with checksums, private to their owner and repaired when opened.

SQLite keeps a transaction whole through a kill or a power failure, but not through a damaged disk
or a copy that was cut off. What is damaged here is dropped, so that it is computed again, and a
wrong number is never read.
"""

import hashlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from vestige.data.atomic_write import PRIVATE_FILE, make_directory, replacing_name
from vestige.errors import RunError

ROWS = "SELECT name, kind, value, checksum FROM work"
PUT = """INSERT INTO work VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE
    SET kind = excluded.kind, value = excluded.value, checksum = excluded.checksum"""
_TABLE = "work (name BLOB PRIMARY KEY, kind INTEGER, value BLOB, checksum BLOB)"
_OF_THE_SYSTEM = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
    sqlite3.SQLITE_CANTOPEN,
)
"""Errors that say nothing about the file's content."""


def open_rows(
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
    with replacing_name(path) as place:
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


def is_intact(row: tuple[Any, ...]) -> bool:
    """Whether a row is the one that was written."""
    name, kind, value, found = row
    typed = isinstance(name, bytes) and isinstance(kind, int) and isinstance(value, bytes)
    return typed and bool(found == checksum(name, kind, value))


def error_code(error: BaseException) -> int:
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
        return whole and all(map(is_intact, db.execute(ROWS)))
    except sqlite3.DatabaseError as error:
        if error_code(error) in _OF_THE_SYSTEM:
            raise
        return False
    except UnicodeDecodeError:  # SQLite's message quotes damaged bytes
        return False


def _intact_rows(db: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """The rows that can be read, from the first and, where reading fails, from the last."""
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
            db.execute("PRAGMA writable_schema = ON")  # so that a file that was cut off is read
            yield from filter(is_intact, db.execute(f"{ROWS} ORDER BY rowid {order}"))
            return
