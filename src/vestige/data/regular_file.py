"""Ordinary files, told from pipes and devices.

A pipe, a socket or a device has no size and perhaps no end, and opening one may wait for ever: what
is not an ordinary file is refused before it is opened, and what is too large before it is read.
"""

import os
import stat
from pathlib import Path

from vestige.errors import DataError, VestigeError

LARGEST_LIST = 2**28
"""Bytes of a file with one entry on each line."""

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def require_regular(path: Path, *, error: type[VestigeError], remedy: str) -> int:
    """Require an ordinary file, or a link to one.

    Returns:
        its size in bytes.

    Raises:
        VestigeError: of the type given; nothing is there, or something else.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError as problem:
        raise error(f"{path} is missing", remedy=remedy) from problem
    except (OSError, ValueError) as problem:  # ValueError: a null byte in the name
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"{path} cannot be read: {reason}", remedy=remedy) from problem
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "no ordinary file")
        raise error(f"{path} is {kind}, not a file", remedy=remedy)
    return found.st_size


def read_bytes(path: Path, *, limit: int, error: type[VestigeError], remedy: str) -> bytes:
    """The content of an ordinary file.

    Args:
        path: which.
        limit: bytes that it may have at most.
        error: class to raise.
        remedy: for an unreadable file.

    Raises:
        VestigeError: of the type given; the file is missing, larger, or no ordinary file.
    """
    size = require_regular(path, error=error, remedy=remedy)
    if size > limit:
        raise error(f"{path} has {size:,} bytes; at most {limit:,} are expected", remedy=remedy)
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as problem:
        reason = problem.strerror or problem
        raise error(f"{path} cannot be read: {reason}", remedy=remedy) from problem


def read_lines(file: Path, *, one: str) -> list[str]:
    """The lines of a UTF-8 file.

    Args:
        one: what each line holds, such as "phrase", for messages.

    Raises:
        DataError: it cannot be read, is too large, or is not UTF-8.
    """
    remedy = f"Pass a UTF-8 file with one {one} per line."
    content = read_bytes(file, limit=LARGEST_LIST, error=DataError, remedy=remedy)
    try:
        return content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: not UTF-8 at byte {error.start}: {error.reason}",
            remedy=f"Convert it with iconv. {remedy}",
        ) from error
