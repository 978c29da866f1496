"""How does a file come to be there whole or not at all?

A reader that finds a file may take it for the whole of it: text is written beside its place
under another name and moved over it in one step.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary file to write and seek in, which becomes `path` when the block ends well.

    Args:
        path: where the file shall stand; its folder is made when it is missing.

    Yields:
        the open file; when the block raises, it is deleted and `path` stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to `path`, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())


def _umask() -> int:
    # The process mask can only be read by setting it; mkstemp ignores it and makes 0600.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
