"""Locks: one process at a time writes into a directory.

The lock belongs to an open file and goes with the process, however that ends: nobody has to
remove anything after a kill, since a file that is left behind locks nothing.

File systems: Linux keeps these locks (flock) on NFS 4 and on SMB with the server, so that
machines keep out of each other's way too; where NFS is mounted with `nolock`, only processes of
one machine do. A file system that has no locks is refused.
"""

import errno
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from vestige.data.atomic_write import PRIVATE_FILE, make_directory
from vestige.errors import RunError

LOCK = ".lock"
"""The file in a directory that is locked while somebody writes there."""


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, created where it is missing.

    A process that holds it may ask again. The lock's file is gone behind the outermost block.

    Args:
        directory: which; private to its owner if it is made.

    Raises:
        RunError: another process holds it, or it cannot be written or locked.
    """
    with _held(directory / LOCK, directory):
        yield


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Hold the lock of a file, and remove directories that were made for it if they stay empty.

    A process that holds it may ask again.

    Args:
        file: which; the lock is `.NAME.lock` beside it.

    Raises:
        RunError: another process holds it, or it cannot be locked.
    """
    made = [place for place in file.parents if not place.exists()]
    try:
        with _held(file.with_name(f".{file.name}{LOCK}"), file):
            yield
    finally:
        with suppress(OSError):  # what is not empty stays
            for place in made:
                place.rmdir()


@contextmanager
def claimed(directory: Path, *, worth: Callable[[Path], bool]) -> Iterator[None]:
    """Hold the lock of a directory, and remove the directory if set-up fails.

    Args:
        directory: which.
        worth: whether something has come to be in it that is to be kept after a failure.

    Raises:
        RunError: as `alone`.
    """
    made = [place for place in (directory, *directory.parents) if not place.exists()]
    try:
        with alone(directory):
            empty = vacant(directory)
            try:
                yield
            except BaseException:
                if empty and not worth(directory):
                    _clear(directory)
                raise
    finally:
        with suppress(OSError):  # what is not empty stays
            for place in made:
                place.rmdir()


def discard(path: Path) -> None:
    """Remove the lock file that a killed process left."""
    if path.exists():
        with suppress(OSError, Timeout):
            lock = _lock(path)
            lock.acquire(blocking=False)
            _release(lock)


def vacant(directory: Path) -> bool:
    """Whether a directory is missing or holds nothing but leftovers of a killed process."""
    if not directory.is_dir():
        return not directory.exists()
    return all(entry.name.startswith(".") for entry in directory.iterdir())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds `path`, and hold it for the block.

    Args:
        path: an empty file beside what is guarded; it is made where it is missing, and gone
            behind the outermost block.

    Raises:
        RunError: it cannot be made or locked.
    """
    try:
        make_directory(path.parent)
        lock = _lock(path)
        lock.acquire()
    except OSError as error:
        raise _refused(path.parent, error) from error
    try:
        yield
    finally:
        _release(lock)


@contextmanager
def _held(path: Path, what: Path) -> Iterator[None]:
    """Hold a lock file, which says for others who holds it."""
    try:
        make_directory(path.parent)
        lock = _lock(path)
        lock.acquire(blocking=False)
    except Timeout:
        raise RunError(
            f"{what} is in use by {_holder(path)}",
            remedy="Wait for it to end, or choose another directory.",
        ) from None
    except OSError as error:
        raise _refused(what, error) from error
    try:
        if lock.lock_counter == 1:
            _sign(path)
        yield
    finally:
        _release(lock)


def _clear(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != LOCK:
            with suppress(OSError):
                entry.unlink()


def _lock(path: Path) -> FileLock:
    # One object for a path, so that a process may ask twice; never a file that locks by being
    # there, which a killed process would leave behind.
    place = path.parent.resolve() / path.name
    return FileLock(place, mode=PRIVATE_FILE, is_singleton=True, fallback_to_soft=False)


def _release(lock: FileLock) -> None:
    # While it is held: who has the file open already sees that it is gone, and opens a new one.
    if lock.lock_counter == 1:
        with suppress(OSError):
            os.unlink(lock.lock_file)
    lock.release()


def _sign(path: Path) -> None:
    """Write process, machine and time into a lock file."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    holder = {"process": os.getpid(), "machine": socket.gethostname(), "since": now}
    with suppress(OSError):
        path.write_text(json.dumps(holder), "utf-8")


def _holder(path: Path) -> str:
    """Description of the process that holds a lock."""
    try:
        told = json.loads(path.read_text("utf-8"))
        process, machine, since = int(told["process"]), str(told["machine"]), str(told["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    there = "" if machine == socket.gethostname() else f" on {machine[:64]}"
    return f"process {process}{there}, since {since[:32]}"


def _refused(directory: Path, error: OSError) -> RunError:
    if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
        return RunError(
            f"{directory} is on a file system without locks: {error.strerror or error}",
            remedy="Write to a local disk, or mount that file system with locks.",
        )
    return RunError(
        f"{directory} cannot be written: {error.strerror or error}",
        remedy="Choose a writable directory on a disk with space.",
    )
