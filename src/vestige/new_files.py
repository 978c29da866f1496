"""Files and folders of results: written atomically, never overwritten, and resumable."""

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
"""Key in the store while a complete run is written, to recognize a kill at that moment."""


def require_new(directory: str | Path) -> Path:
    """Check before long work that nothing exists at a path; returns it as a Path.

    Raises:
        RunError: something exists at this path.
    """
    directory = Path(directory)
    if os.path.lexists(directory):
        raise _exists_error(directory)
    return directory


def require_outside_runs(path: str | Path) -> Path:
    """Check that a file to write is not in a run folder; returns it as a Path.

    Raises:
        RunError: it is in a run folder.
    """
    for folder in Path(path).resolve().parents:
        if (folder / "run.json").exists():
            raise RunError(
                f"{path} is in the run folder {folder}, which must not change",
                remedy="Choose another file.",
            )
    return Path(path)


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """Hidden staging directory that is renamed to `directory` on success; private to its owner.

    Raises:
        RunError: the directory exists by then or cannot be written.
    """
    with _writing_errors(directory), writing.new_directory(directory) as staging:
        yield staging


@contextmanager
def new_file(path: Path, *, shared: bool) -> Iterator[BinaryIO]:
    """File to write, which appears at `path` when it is complete.

    Raises:
        RunError: the path exists by then or cannot be written.
    """
    with _writing_errors(path), writing.replacing(path, shared=shared, new=True) as file:
        yield file


@contextmanager
def resumable(out: Path | None, monitor: Monitor = SILENT) -> Iterator[Store]:
    """Store of a call, in `OUT.partial` until `save_run` saves a complete run.

    A call that stops early may save a partial run, whose summary says `complete: false`.

    Args:
        out: the run folder, which may contain a partial run; None keeps work in memory.
        monitor: gets a line if there is earlier or damaged work.

    Raises:
        RunError: `out` exists and is not a partial run of this work, or another process uses it.
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
        with suppress(OSError):  # not empty
            file.parent.rmdir()


def save_run(
    write: Callable[[Path], object], out: Path | None, store: Store, *, complete: bool
) -> None:
    """Replace a partial run by a new one; a complete run empties the store.

    Args:
        write: writes the run folder.
        out: the run folder; None writes nothing.
        store: the store of `resumable`.
        complete: all work is finished; otherwise the same call can resume it.
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
    """Refuse an existing run folder unless it is a partial run of this store's work."""
    exists = os.path.lexists(out)
    if exists and store.identity and _is_partial(out):
        return
    if _SAVING in store if exists else not len(store):
        store.clear()
    if exists:
        raise _exists_error(out)


def _is_partial(out: Path) -> bool:
    """Whether the summary of a run folder says that its work is unfinished."""
    summary = out / "summary.json"
    if not summary.is_file():
        return False
    content = read_object(summary, error=RunError, remedy=f"Remove {out}.")
    return content.get("complete") is False


def _exists_error(path: Path) -> RunError:
    return RunError(
        f"{path} exists already, and a run is never overwritten",
        remedy="Choose another --out, or remove it first.",
    )


@contextmanager
def _writing_errors(path: Path) -> Iterator[None]:
    """Convert errors of the operating system to a RunError about `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileExistsError) or error.errno == errno.ENOTEMPTY:
            raise _exists_error(path) from error
        full = error.errno in writing.FULL
        raise RunError(
            f"{path} cannot be written: {error.strerror or error}",
            remedy="Make room on that disk, or choose an --out on another."
            if full
            else "Choose an --out whose parent is a directory that you may write to.",
        ) from error
