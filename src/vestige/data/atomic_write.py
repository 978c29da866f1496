"""Atomic writes: a file is whole or not there at all, and private to its owner.

Whoever finds a file takes it for the whole of it: so it is written beside its place, under a name
that nobody can foresee, and moved there in one step. A part is locked by whoever writes it, and a
lock ends with its process: what a killed one left is removed by the next that writes there.

What is written is private to its owner (0600, in directories of 0700): it is text, or says whose.
What others may read, a model or a page, is `shared`: as open as the umask lets it.
"""

import atexit
import errno
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import lock_descriptor

PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the operating system says where nothing more can be written: disk, quota, file size."""


@contextmanager
def replacing(path: Path, *, shared: bool = False, new: bool = False) -> Iterator[BinaryIO]:
    """Binary file to write and seek in, which becomes `path` when the block ends well.

    Args:
        path: of the file; its folder is made where it is missing.
        shared: whether others may read it, as far as the umask lets them.
        new: refuse to replace a file that is there by then.

    Yields:
        the open file; when the block raises, it is deleted and `path` stays as it was.

    Raises:
        OSError: it cannot be written; the error names `path`.
        FileExistsError: `new`, and there is something at `path`.
    """
    with naming(path):
        make_directory(path.parent, shared=shared)
        with _part(path, lambda part: part.touch(PRIVATE_FILE, exist_ok=False)) as part:
            with part.open("r+b") as file:
                yield file
            _move(part, path, shared=shared, new=new)


@contextmanager
def replacing_name(path: Path) -> Iterator[Path]:
    """Private file for writers that want a name; otherwise as `replacing`.

    It is alone in its directory, for what such a writer may put beside it.
    """
    with naming(path), beside(path) as folder:
        yield folder / path.name
        _move(folder / path.name, path, shared=False, new=False)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Private directory beside `path` to fill and move there; what is not moved is deleted.

    Args:
        path: missing directories above it are made.
    """
    make_directory(path.parent)
    with _part(path, lambda part: part.mkdir(PRIVATE_DIRECTORY)) as part:
        yield part


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Private directory to fill, which becomes `path` when the block ends well.

    Args:
        path: where nothing is yet; missing directories above it are made.

    Yields:
        the directory; when the block raises, it is deleted.

    Raises:
        OSError: it cannot be made, or something stands at `path` by then.
    """
    with beside(path) as part:
        yield part
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        part.rename(path)


def make_directory(path: Path, *, shared: bool = False) -> None:
    """Make a directory and its missing parents; an existing one stays as it is.

    Args:
        path: the directory.
        shared: whether others may read it, as far as the umask lets them.
    """
    for missing in reversed([one for one in (path, *path.parents) if not one.exists()]):
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
        path.chmod(_as_umask(0o777 if path.is_dir() else 0o666))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to an error of the operating system that names none.

    A full disk is met while writing, where it is not known any more to which file.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        place = Path(str(error.filename))
        if _is_part(place.name, path) or _is_part(place.parent.name, path):
            error.filename = str(path)
        raise


@contextmanager
def _part(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Locked temporary file beside `path`."""
    _sweep(path)
    part, handle = path, None
    try:
        while part == path:  # more than once only where another took it for a dead one's
            part = path.with_name(f"{_prefix(path)}{secrets.token_hex(4)}{_SUFFIX}")
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


_open_parts: dict[Path, int] = {}
"""Temporary files, and the process that writes each."""


@atexit.register
def _remove_open_parts() -> None:
    """Remove what a signal left that came where no block was entered yet."""
    for part, process in _open_parts.items():
        if process == os.getpid():
            _remove(part)


def _sweep(path: Path) -> None:
    """Remove abandoned temporary files of `path`."""
    with suppress(OSError, NotImplementedError), os.scandir(path.parent) as found:
        for part in [Path(entry.path) for entry in found if _is_part(entry.name, path)]:
            handle = _open_locked(part)
            if handle is not None:
                _remove(part)
                os.close(handle)


def _open_locked(part: Path) -> int | None:
    """Descriptor that holds the lock of a temporary file; None if another process does.

    Raises:
        OSError: it is gone, or has no lock.
    """
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


_SUFFIX = ".part"


def _prefix(path: Path) -> str:
    return f".{path.name}."


def _is_part(name: str, path: Path) -> bool:
    own = Path(name).name
    token = own.removeprefix(_prefix(path)).removesuffix(_SUFFIX)
    return own == f"{_prefix(path)}{token}{_SUFFIX}" and len(token) == 8


def _remove(part: Path) -> None:
    with suppress(OSError):
        if part.is_dir() and not part.is_symlink():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def _move(part: Path, path: Path, *, shared: bool, new: bool) -> None:
    """Give a temporary file its mode and its final name, once it is on the disk."""
    part.chmod(_as_umask(0o666) if shared else PRIVATE_FILE)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    if new:
        _link(part, path)
    else:
        os.replace(part, path)


def _link(part: Path, path: Path) -> None:
    """Give a temporary file its final name, unless the name is taken."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):  # a file system without links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        os.replace(part, path)


def _as_umask(mode: int) -> int:
    return mode & ~_umask()


def _umask() -> int:
    """The process's umask, where possible without changing it, which other threads would see."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    with _UMASK_LOCK:
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


_UMASK_LOCK = threading.Lock()
