"""Files that are whole or absent, private to their owner, and written by one process at a time.

A file is written under an unpredictable name beside its place and moved there in one step. Files
are 0600 in directories of 0700; what is `shared`, such as a model, is as open as the umask allows.

Unfinished files and locks are held by open files (flock), which end with their process. So nothing
is left to remove after a kill: the next writer removes an unfinished file that nobody holds. Linux
keeps such locks on NFS 4 and SMB with the server; a file system without locks is refused.
"""

import atexit
import errno
import json
import os
import secrets
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout, lock_descriptor

from vestige.errors import RunError

PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, a quota, and a limit of file sizes."""
LOCK = ".lock"
"""The file in a directory that is locked while a process writes there."""


@contextmanager
def replacing(path: Path, *, shared: bool = False, new: bool = False) -> Iterator[BinaryIO]:
    """Binary file, open for writing and seeking, which replaces `path` when the block ends well.

    When the block raises, `path` stays as it was. Missing directories are made.

    Args:
        path: the file, which errors name.
        shared: let others read it, as far as the umask allows.
        new: FileExistsError if something exists at `path`.
    """
    with naming(path):
        make_directory(path.parent, shared=shared)
        with _part(path, lambda part: part.touch(PRIVATE_FILE, exist_ok=False)) as part:
            with part.open("r+b") as file:
                yield file
            _move(part, path, shared=shared, new=new)


@contextmanager
def replacing_name(path: Path) -> Iterator[Path]:
    """As `replacing`, for writers that need a name; the private file is alone in its directory."""
    with naming(path), beside(path) as folder:
        yield folder / path.name
        _move(folder / path.name, path, shared=False, new=False)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Private directory beside `path` to fill and move there; removed if it was not moved."""
    make_directory(path.parent)
    with _part(path, lambda part: part.mkdir(PRIVATE_DIRECTORY)) as part:
        yield part


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Private directory that becomes `path` when the block ends well; OSError if that exists."""
    with beside(path) as part:
        yield part
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        part.rename(path)


def make_directory(path: Path, *, shared: bool = False) -> None:
    """Make a directory and its missing parents; an existing one keeps its mode."""
    for missing in reversed(_missing(path)):
        missing.mkdir(0o777 if shared else PRIVATE_DIRECTORY, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def write_text(path: Path, text: str, *, shared: bool = False, new: bool = False) -> None:
    """Write `text` as UTF-8 to `path`, whole or not at all; see `replacing`."""
    with replacing(path, shared=shared, new=new) as file:
        file.write(text.encode())


def append_line(path: Path, line: str) -> None:
    """Append a line to a private file, created where it is missing."""
    with naming(path):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
        with os.fdopen(handle, "wb", buffering=0) as file:
            file.write(line.encode() + b"\n")


def share(directory: Path) -> None:
    """Give others access to a directory and its contents, as far as the umask allows."""
    for path in (directory, *directory.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~_umask())


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name `path` in errors of the operating system that name no file, or an unfinished one."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        place = Path(str(error.filename))
        if _is_part(place.name, path) or _is_part(place.parent.name, path):
            error.filename = str(path)
        raise


# Unfinished files


_open_parts: dict[Path, int] = {}
"""Unfinished files, and the process that writes each."""
_SUFFIX = ".part"
_umask_lock = threading.Lock()


@contextmanager
def _part(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Locked unfinished file or directory beside `path`."""
    _sweep(path)
    part, handle = path, None
    try:
        while part == path:  # more than once only if another process removed it, unlocked as yet
            part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
            _open_parts[part] = os.getpid()
            make(part)
            with suppress(OSError, NotImplementedError):  # not every file system has locks
                handle = _open_locked(part)
            if not os.path.lexists(part):
                _close(handle)
                part, handle = path, None
        yield part
    finally:
        _close(handle)
        if part != path:
            _remove(part)
            _open_parts.pop(part, None)


@atexit.register
def _remove_open_parts() -> None:
    """Remove what a signal left that came before the block was entered."""
    for part, process in _open_parts.items():
        if process == os.getpid():
            _remove(part)


def _sweep(path: Path) -> None:
    """Remove abandoned unfinished files of `path`."""
    with suppress(OSError, NotImplementedError), os.scandir(path.parent) as found:
        for part in [Path(entry.path) for entry in found if _is_part(entry.name, path)]:
            handle = _open_locked(part)
            if handle is not None:
                _remove(part)
                os.close(handle)


def _open_locked(part: Path) -> int | None:
    """Descriptor that holds the lock of a part; None if another process does; OSError if gone."""
    if os.name == "nt":
        raise NotImplementedError  # Windows would not move what is open
    handle = os.open(part, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        held = lock_descriptor(handle, blocking=False)
    except BaseException:
        os.close(handle)
        raise
    if held:
        return handle
    os.close(handle)
    return None


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _is_part(name: str, path: Path) -> bool:
    token = name.removeprefix(f".{path.name}.").removesuffix(_SUFFIX)
    return len(token) == 8 and name == f".{path.name}.{token}{_SUFFIX}"


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _move(part: Path, path: Path, *, shared: bool, new: bool) -> None:
    """Give a part its mode and final name, once it is on the disk."""
    part.chmod(0o666 & ~_umask() if shared else PRIVATE_FILE)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    if new:
        try:
            os.link(part, path)  # which never replaces
            return
        except FileExistsError:
            raise
        except (OSError, NotImplementedError):  # a file system without links
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
    os.replace(part, path)


def _umask() -> int:
    """The process's umask, where possible without changing it, which other threads would see."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    with _umask_lock:
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


# Locks


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, made if it is missing; RunError if another process does.

    A process may hold it twice.
    """
    with _held(directory / LOCK, directory):
        yield


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """As `alone`, of a file (`.NAME.lock`); directories made for it go if they stay empty."""
    with _tidy(file.parent), _held(file.with_name(f".{file.name}{LOCK}"), file):
        yield


@contextmanager
def claimed(directory: Path, *, worth: Callable[[Path], bool]) -> Iterator[None]:
    """As `alone`; after a failure, a vacant directory is emptied again unless `worth` keeping."""
    with _tidy(directory), alone(directory):
        empty = vacant(directory)
        try:
            yield
        except BaseException:
            if empty and not worth(directory):
                for entry in directory.iterdir():
                    if entry.name != LOCK or entry.is_dir():
                        _remove(entry)
            raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock file `path`, made if it is missing, and hold it for the block."""
    with _held(path, path.parent, wait=True):
        yield


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
def _held(path: Path, what: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file, which tells others which process holds it."""
    try:
        make_directory(path.parent)
        lock = _lock(path)
        lock.acquire(blocking=wait)
    except Timeout:
        raise RunError(
            f"{what} is in use by {_holder(path)}",
            remedy="Wait for it to end, or choose another directory.",
        ) from None
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
            raise RunError(
                f"{what} is on a file system without locks: {error.strerror or error}",
                remedy="Write to a local disk, or mount that file system with locks.",
            ) from error
        raise RunError(
            f"{what} cannot be written: {error.strerror or error}",
            remedy="Choose a writable directory on a disk with space.",
        ) from error
    try:
        if lock.lock_counter == 1:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            holder = {"process": os.getpid(), "machine": socket.gethostname(), "since": now}
            with suppress(OSError):
                path.write_text(json.dumps(holder), "utf-8")
        yield
    finally:
        _release(lock)


def _holder(path: Path) -> str:
    """Description of the process that holds a lock."""
    try:
        found = json.loads(path.read_text("utf-8"))
        process, machine, since = int(found["process"]), str(found["machine"]), str(found["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    there = "" if machine == socket.gethostname() else f" on {machine[:64]}"
    return f"process {process}{there}, since {since[:32]}"


def _lock(path: Path) -> FileLock:
    # One object per path, so that a process may lock twice; never a file that locks by existing,
    # which a killed process would leave behind.
    place = path.parent.resolve() / path.name
    return FileLock(place, mode=PRIVATE_FILE, is_singleton=True, fallback_to_soft=False)


def _release(lock: FileLock) -> None:
    # Removed while held: who has the file open sees that it is gone, and makes a new one.
    if lock.lock_counter == 1:
        with suppress(OSError):
            os.unlink(lock.lock_file)
    lock.release()


@contextmanager
def _tidy(directory: Path) -> Iterator[None]:
    """Remove directories that the block makes down to `directory`, if they stay empty."""
    missing = _missing(directory)
    try:
        yield
    finally:
        with suppress(OSError):  # one that is not empty stays
            for path in missing:
                path.rmdir()


def _missing(path: Path) -> list[Path]:
    """A directory and those above it that do not exist, the innermost first."""
    return [one for one in (path, *path.parents) if not one.exists()]
