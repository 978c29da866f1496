"""How do two processes keep out of each other's way where both would write the same files?

The lock belongs to the open file and goes with the process, however that ends: nothing is left
behind that somebody would have to remove.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds `path`, and hold it for the block.

    Args:
        path: an empty file beside what is guarded; it is made where it is missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path):
        yield
