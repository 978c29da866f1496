"""Files and folders of results: they appear whole or not at all, and are never overwritten."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from vestige.data import atomic_write
from vestige.errors import RunError


def require_new(directory: str | Path) -> Path:
    """Directory as a Path; an error if anything is there.

    Call it before long work, so that the refusal comes first.

    Raises:
        RunError: something exists at this path.
    """
    directory = Path(directory)
    if os.path.lexists(directory):
        raise _exists(directory)
    return directory


def require_outside_runs(path: str | Path) -> Path:
    """Path of a file to write as a Path; an error if it lies in a run directory.

    Raises:
        RunError: a run directory holds it.
    """
    for folder in Path(path).resolve().parents:
        if (folder / "run.json").exists():
            raise RunError(
                f"{path} lies in the run directory {folder}, which nothing may change",
                remedy="Choose another file.",
            )
    return Path(path)


def _exists(path: Path) -> RunError:
    return RunError(
        f"{path} exists already, and a run is never overwritten",
        remedy="Choose another --out, or remove it first.",
    )


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """Hidden directory beside `directory`, which takes its name on success.

    What is written there is private to its owner, see `data.atomic_write`.

    Raises:
        RunError: the directory exists by then, or cannot be written.
    """
    with _written(directory), atomic_write.new_directory(directory) as partial:
        yield partial


@contextmanager
def new_file(path: Path, *, shared: bool) -> Iterator[BinaryIO]:
    """File to write, which appears at `path` once it is whole.

    Args:
        path: where nothing is yet.
        shared: whether others may read it, as far as the umask lets them.

    Raises:
        RunError: something exists there by then, or it cannot be written.
    """
    with _written(path), atomic_write.replacing(path, shared=shared, new=True) as file:
        yield file


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into a RunError about `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileExistsError) or error.errno == errno.ENOTEMPTY:
            raise _exists(path) from error
        full = error.errno in atomic_write.FULL
        raise RunError(
            f"{path} cannot be written: {error.strerror or error}",
            remedy="Make room on that disk, or choose an --out on another."
            if full
            else "Choose an --out whose parent is a directory that you may write to.",
        ) from error
