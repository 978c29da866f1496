"""The directory of a training: held by one process, and checked before anything is written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vestige.data import file_lock
from vestige.errors import RunError
from vestige.training_runs import DATA

IDENTITY, CHECKPOINT = "training.json", "checkpoint.safetensors"
LEDGER, RECORDS = "privacy.json", "records"


@contextmanager
def claimed(out: Path, resume: bool) -> Iterator[None]:
    """The directory, for one process alone, from before the text is read until the run is saved.

    The directory is removed again if set-up fails.

    Raises:
        RunError: it is not a place for this training, or another process writes there.
    """
    _check_out(out, resume)
    with file_lock.claimed(out, worth=lambda directory: (directory / CHECKPOINT).exists()):
        _check_out(out, resume)  # between the first look and the lock, another may have begun
        try:
            yield
        except (OSError, KeyboardInterrupt) as error:
            if (out / CHECKPOINT).exists():
                error.add_note("The same command with --resume goes on from the last checkpoint")
            raise


def _check_out(out: Path, resume: bool) -> None:
    """Refuse a directory that is not ours, before anything is read or written."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file", remedy="Give the directory of the training.")
    if file_lock.vacant(out):
        return
    if not resume:
        raise RunError(
            f"{out} exists already, and a training is never overwritten",
            remedy="Go on with it (--resume), choose another --out, or remove it first.",
        )
    # Encoding and ledger come before the training says what it is.
    visible = {entry.name for entry in out.iterdir() if not entry.name.startswith(".")}
    if not (out / IDENTITY).is_file() and visible - {DATA, LEDGER, RECORDS}:
        raise RunError(
            f"{out} holds something, but no training to resume",
            remedy="Give the --out of the interrupted training, or a new directory.",
        )


def check_repeats(out: Path, resume: bool) -> None:
    """Refuse a directory that is no place for several trainings."""
    if out.exists() and not (out.is_dir() and (resume or not any(out.iterdir()))):
        raise RunError(
            f"{out} exists already, and a training is never overwritten",
            remedy="Go on with it (--resume), choose another --out, or remove it first.",
        )
    if (out / IDENTITY).exists():
        raise RunError(
            f"{out} holds one training, and --seeds makes several",
            remedy="Choose another --out.",
        )


@contextmanager
def claimed_for_several(out: Path) -> Iterator[None]:
    """A directory of several trainings that one command makes, for one process alone.

    Raises:
        RunError: another process writes there, or it cannot be written.
    """
    with file_lock.claimed(out, worth=_holds_a_training_or_run):
        try:
            yield
        except (OSError, KeyboardInterrupt) as error:
            if not file_lock.vacant(out):
                error.add_note("The same command goes on: what is finished is found again")
            raise


def _holds_a_training_or_run(out: Path) -> bool:
    return any(out.rglob(CHECKPOINT)) or any(out.rglob("run.json"))
