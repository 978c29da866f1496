"""Calls that resume where an earlier one stopped.

The finished work of a call is in `OUT.partial/work.sqlite` until its run directory OUT is complete.
A call that stops early may write a partial run there, whose summary says `complete: false`.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vestige.data.file_lock import claimed
from vestige.data.json_file import read_object
from vestige.errors import RunError
from vestige.monitor import SILENT, Monitor
from vestige.store import KEPT, Store

NOT_KEPT = "Nothing is kept. With --out, the same command would resume"
FILE = "work.sqlite"
_SAVING = "\0saving"
"""In the store while a complete run is written, for what a kill then leaves behind."""


@dataclass(frozen=True)
class Resumable:
    """A call that resumes where an earlier one stopped.

    Attributes:
        store: finished work of this call and of those before it.
        out: the run directory to make, or None.
    """

    store: Store
    out: Path | None = None

    def save(self, write: Callable[[], object], *, complete: bool) -> None:
        """Write the run in place of a partial one; a complete run empties the store.

        Args:
            write: writes the run directory `out`.
            complete: whether all work is finished; otherwise the same call resumes it.
        """
        if self.out is None:
            return
        if complete:
            self.store[_SAVING] = True
        if self.out.exists():
            shutil.rmtree(self.out)
        write()
        if complete:
            self.store.clear()


@contextmanager
def resumable(out: Path | None, monitor: Monitor = SILENT) -> Iterator[Resumable]:
    """Keep finished work in the directory `OUT.partial`, which one process at a time may use.

    Args:
        out: the run directory to make, which may hold a partial run; None keeps work in memory.
        monitor: gets a line if work is found, or is damaged.

    Raises:
        RunError: `out` exists and is not a partial run, or another process works on it.
    """
    if out is None:
        try:
            yield Resumable(Store())
        except KeyboardInterrupt as error:
            error.add_note(NOT_KEPT)
            raise
        return
    file = out.with_name(f"{out.name}.partial") / FILE
    try:
        with (
            claimed(file.parent, worth=lambda _: file.exists()),
            Store(file, monitor=monitor) as store,
        ):
            _require_resumable(out, store)
            try:
                yield Resumable(store, out)
            except BaseException as error:
                if len(store) and isinstance(error, OSError | KeyboardInterrupt):
                    error.add_note(KEPT)
                if not len(store) and not os.path.lexists(out):
                    store.clear()
                raise
    finally:
        with suppress(OSError):  # it is not empty
            file.parent.rmdir()


def _require_resumable(out: Path, store: Store) -> None:
    """Refuse a run directory that is there, unless it is a partial run of this store's work."""
    is_there = os.path.lexists(out)
    if is_there and store.identity and _is_partial(out):
        return
    if _SAVING in store if is_there else not len(store):
        store.clear()
    if is_there:
        raise RunError(
            f"{out} exists already, and a run is never overwritten",
            remedy="Choose another --out, or remove it first.",
        )


def _is_partial(out: Path) -> bool:
    """Whether a run directory says that its work is unfinished."""
    summary = out / "summary.json"
    if not summary.is_file():
        return False
    found = read_object(summary, error=RunError, remedy=f"Remove {out}.")
    return found.get("complete") is False
