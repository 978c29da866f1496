"""Files that are whole or absent, private to their owner, and written by one process at a time.

A file is written under an unpredictable name in the same directory and renamed in one step. Files
are 0600 in directories of 0700; `shared` files, such as a model's, are as open as the umask allows.

Locks (flock) belong to open files and end with their process. So a killed process needs no cleaning
up: the next writer removes an unfinished file without a lock. On NFS 4 and SMB, Linux keeps such
locks on the server; a file system without locks is refused.
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
"""Errors for a full disk, a quota, and a limit of file sizes."""
LOCK = ".lock"
"""The file in a directory that is locked while a process writes there."""


@contextmanager
def replacing(path: Path, *, shared: bool = False, new: bool = False) -> Iterator[BinaryIO]:
    """Binary file, open for writing and seeking, that replaces `path` after the block.

    If the block raises, `path` is unchanged. Missing directories are made.

    Args:
        path: the file; errors name it.
        shared: let others read it, as far as the umask allows.
        new: FileExistsError if `path` exists.
    """
    with name_in_errors(path):
        make_directory(path.parent, shared=shared)
        with _unfinished(path, lambda part: part.touch(PRIVATE_FILE, exist_ok=False)) as part:
            with part.open("r+b") as file:
                yield file
            _move(part, path, shared=shared, new=new)


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """As `replacing`, for writers that need a path: a private file in a staging directory."""
    with name_in_errors(path), staging_directory(path) as folder:
        yield folder / path.name
        _move(folder / path.name, path, shared=False, new=False)


@contextmanager
def staging_directory(path: Path) -> Iterator[Path]:
    """Private directory to fill and rename to `path`; removed if it was not renamed."""
    make_directory(path.parent)
    with _unfinished(path, lambda part: part.mkdir(PRIVATE_DIRECTORY)) as part:
        yield part


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Private directory that becomes `path` after the block; OSError if `path` exists."""
    with staging_directory(path) as part:
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
    """Append a line to a private file, created if it is missing."""
    with name_in_errors(path):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
        with os.fdopen(handle, "wb", buffering=0) as file:
            file.write(line.encode() + b"\n")


def share(directory: Path) -> None:
    """Give others access to a directory and its contents, as far as the umask allows."""
    for path in (directory, *directory.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~_umask())


@contextmanager
def name_in_errors(path: Path) -> Iterator[None]:
    """Name `path` in errors of the operating system that name no file or an unfinished one."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        named = Path(str(error.filename))
        if _is_part(named.name, path) or _is_part(named.parent.name, path):
            error.filename = str(path)
        raise


# Unfinished files


_open_parts: dict[Path, int] = {}
"""Unfinished files and the processes that write them."""
_SUFFIX = ".part"
_umask_lock = threading.Lock()


@contextmanager
def _unfinished(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Locked unfinished file or directory in the directory of `path`."""
    _remove_abandoned(path)
    while True:
        part, handle = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}"), None
        _open_parts[part] = os.getpid()
        try:
            make(part)
            with suppress(OSError, NotImplementedError):  # a file system without locks
                handle = _open_locked(part)
            if os.path.lexists(part):  # otherwise another process removed it before the lock
                yield part
                return
        finally:
            if handle is not None:
                os.close(handle)
            _remove(part)
            _open_parts.pop(part, None)


@atexit.register
def _remove_open_parts() -> None:
    """Remove an unfinished file if a signal came before its block was entered."""
    for part, process in _open_parts.items():
        if process == os.getpid():
            _remove(part)


def _remove_abandoned(path: Path) -> None:
    """Remove unfinished files of `path` that no process has locked."""
    with suppress(OSError, NotImplementedError), os.scandir(path.parent) as entries:
        for part in [Path(entry.path) for entry in entries if _is_part(entry.name, path)]:
            handle = _open_locked(part)
            if handle is not None:
                _remove(part)
                os.close(handle)


def _open_locked(part: Path) -> int | None:
    """Descriptor with the lock of a part; None if another process has it; OSError if missing."""
    if os.name == "nt":
        raise NotImplementedError  # Windows does not rename open files
    handle = os.open(part, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        is_locked = lock_descriptor(handle, blocking=False)
    except BaseException:
        os.close(handle)
        raise
    if is_locked:
        return handle
    os.close(handle)
    return None


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
    """Set the mode of a part, write it to the disk, and rename it."""
    part.chmod(0o666 & ~_umask() if shared else PRIVATE_FILE)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    if new:
        try:
            os.link(part, path)  # never replaces a file
            return
        except FileExistsError:
            raise
        except (OSError, NotImplementedError):  # a file system without links
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
    os.replace(part, path)


def _umask() -> int:
    """The process's umask. To change it, even briefly, would affect other threads."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    with _umask_lock:
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


# Locks


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, made if it is missing; RunError if another process has it.

    A process may hold it twice.
    """
    with _hold(directory / LOCK, directory):
        yield


@contextmanager
def lock_file(file: Path) -> Iterator[None]:
    """Hold the lock of a file (`.NAME.lock`); directories made for it are removed if empty."""
    lock_path = file.with_name(f".{file.name}{LOCK}")
    with _remove_empty_directories(file.parent), _hold(lock_path, file):
        yield


@contextmanager
def lock_output(directory: Path, *, keep_if: Callable[[Path], bool]) -> Iterator[None]:
    """As `lock_directory`; after a failure, a directory that was vacant is emptied again.

    `keep_if` says for the directory whether its contents are kept after a failure.
    """
    with _remove_empty_directories(directory), lock_directory(directory):
        was_vacant = is_vacant(directory)
        try:
            yield
        except BaseException:
            if was_vacant and not keep_if(directory):
                for entry in directory.iterdir():
                    if entry.name != LOCK or entry.is_dir():
                        _remove(entry)
            raise


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Wait for the lock file `path`, made if it is missing, and hold it for the block."""
    with _hold(path, path.parent, wait=True):
        yield


def remove_stale_lock(path: Path) -> None:
    """Remove the lock file of a killed process."""
    if path.exists():
        with suppress(OSError, Timeout):
            lock = _lock(path)
            lock.acquire(blocking=False)
            _release(lock)


def is_vacant(directory: Path) -> bool:
    """Whether a directory is missing, or has only leftovers of a killed process."""
    if not directory.is_dir():
        return not directory.exists()
    return all(entry.name.startswith(".") for entry in directory.iterdir())


@contextmanager
def _hold(path: Path, target: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file, and describe this process in it. Errors name the target."""
    try:
        make_directory(path.parent)
        lock = _lock(path)
        lock.acquire(blocking=wait)
    except Timeout:
        raise RunError(
            f"{target} is in use by {_describe_holder(path)}",
            remedy="Wait for it to end, or choose another directory.",
        ) from None
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
            raise RunError(
                f"{target} is on a file system without locks: {error.strerror or error}",
                remedy="Write to a local disk, or mount that file system with locks.",
            ) from error
        raise RunError(
            f"{target} cannot be written: {error.strerror or error}",
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


def _describe_holder(path: Path) -> str:
    """Description of the process that holds a lock."""
    try:
        holder = json.loads(path.read_text("utf-8"))
        process, machine = int(holder["process"]), str(holder["machine"])
        since = str(holder["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    host = "" if machine == socket.gethostname() else f" on {machine[:64]}"
    return f"process {process}{host}, since {since[:32]}"


def _lock(path: Path) -> FileLock:
    # One object per path, so that a process may lock twice. No lock by the existence of a file:
    # a killed process would leave it behind.
    resolved = path.parent.resolve() / path.name
    return FileLock(resolved, mode=PRIVATE_FILE, is_singleton=True, fallback_to_soft=False)


def _release(lock: FileLock) -> None:
    # Removed while held: a process that has it open notices that and makes a new one.
    if lock.lock_counter == 1:
        with suppress(OSError):
            os.unlink(lock.lock_file)
    lock.release()


@contextmanager
def _remove_empty_directories(directory: Path) -> Iterator[None]:
    """After the block, remove the directories on the way that it made and left empty."""
    missing = _missing(directory)
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for path in missing:
                path.rmdir()


def _missing(path: Path) -> list[Path]:
    """The missing ones of a directory and its parents, the innermost first."""
    return [directory for directory in (path, *path.parents) if not directory.exists()]
