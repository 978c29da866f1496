"""How does a file come to be there whole or not at all?

Whoever finds a file takes it for the whole of it: so it is written beside its place, under
another name, and moved there in one step.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary file to write and seek in, which becomes `path` when the block ends well.

    Args:
        path: where the file shall stand; its folder is made where it is missing.

    Yields:
        the open file; when the block raises, it is deleted and `path` stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to `path`, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())
