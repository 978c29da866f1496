"""Files and folders of results: whole or absent, never overwritten, and resumed after a stop."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vestige.data import writing
from vestige.data.files import read_object
from vestige.data.writing import lock_output
from vestige.errors import RunError
from vestige.monitor import SILENT, Monitor
from vestige.store import KEPT, Store

NOT_KEPT = "Nothing is kept. With --out, the same command would resume"
FILE = "work.sqlite"
_SAVING = "\0saving"
"""In the store while a complete run is written, for what a kill then leaves behind."""


def require_new(directory: str | Path) -> Path:
    """Directory as a Path, for a check before long work.

    Raises:
        RunError: something exists at this path.
    """
    directory = Path(directory)
    if os.path.lexists(directory):
        raise _exists(directory)
    return directory


def require_outside_runs(path: str | Path) -> Path:
    """Path of a file to write as a Path.

    Raises:
        RunError: it is in a run folder.
    """
    for folder in Path(path).resolve().parents:
        if (folder / "run.json").exists():
            raise RunError(
                f"{path} lies in the run folder {folder}, which nothing may change",
                remedy="Choose another file.",
            )
    return Path(path)


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """Hidden directory beside `directory`, which takes its name on success; private to its owner.

    Raises:
        RunError: the directory exists by then, or cannot be written.
    """
    with _written(directory), writing.new_directory(directory) as partial:
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
    with _written(path), writing.replacing(path, shared=shared, new=True) as file:
        yield file


@contextmanager
def resumable(out: Path | None, monitor: Monitor = SILENT) -> Iterator[Store]:
    """Finished work of a call, in the directory `OUT.partial`, until `save_run` saves a whole run.

    A call that stops early may save a partial run, whose summary says `complete: false`.

    Args:
        out: the run folder to make, which may hold a partial run; None keeps work in memory.
        monitor: gets a line if work is found, or is damaged.

    Raises:
        RunError: `out` exists and is not a partial run of this work, or another process works on
            it.
    """
    if out is None:
        try:
            yield Store()
        except KeyboardInterrupt as error:
            error.add_note(NOT_KEPT)
            raise
        return
    file = out.with_name(f"{out.name}.partial") / FILE
    try:
        with (
            lock_output(file.parent, keep_if=lambda _: file.exists()),
            Store(file, monitor=monitor) as store,
        ):
            _require_resumable(out, store)
            try:
                yield store
            except BaseException as error:
                if len(store) and isinstance(error, OSError | KeyboardInterrupt):
                    error.add_note(KEPT)
                if not len(store) and not os.path.lexists(out):
                    store.clear()
                raise
    finally:
        with suppress(OSError):  # it is not empty
            file.parent.rmdir()


def save_run(
    write: Callable[[Path], object], out: Path | None, store: Store, *, complete: bool
) -> None:
    """Write a run in place of a partial one; a complete run empties the store.

    Args:
        write: writes the run folder.
        out: its place; None writes nothing.
        store: of `resumable`.
        complete: whether all work is finished; otherwise the same call resumes it.
    """
    if out is None:
        return
    if complete:
        store[_SAVING] = True
    if store.identity and _is_partial(out):
        shutil.rmtree(out)
    write(out)
    if complete:
        store.clear()


def _require_resumable(out: Path, store: Store) -> None:
    """Refuse a run folder that exists, unless it is a partial run of this store's work."""
    exists = os.path.lexists(out)
    if exists and store.identity and _is_partial(out):
        return
    if _SAVING in store if exists else not len(store):
        store.clear()
    if exists:
        raise _exists(out)


def _is_partial(out: Path) -> bool:
    """Whether a run folder says that its work is unfinished."""
    summary = out / "summary.json"
    if not summary.is_file():
        return False
    found = read_object(summary, error=RunError, remedy=f"Remove {out}.")
    return found.get("complete") is False


def _exists(path: Path) -> RunError:
    return RunError(
        f"{path} exists already, and a run is never overwritten",
        remedy="Choose another --out, or remove it first.",
    )


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into a RunError about `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileExistsError) or error.errno == errno.ENOTEMPTY:
            raise _exists(path) from error
        full = error.errno in writing.FULL
        raise RunError(
            f"{path} cannot be written: {error.strerror or error}",
            remedy="Make room on that disk, or choose an --out on another."
            if full
            else "Choose an --out whose parent is a directory that you may write to.",
        ) from error
