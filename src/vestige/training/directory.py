"""The directory of a training: used by one process, and checked before anything is written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vestige.data import writing
from vestige.errors import RunError

DATA = "data"
"""Where the directory keeps what the training reads."""

IDENTITY, CHECKPOINT = "training.json", "checkpoint.safetensors"
LEDGER, RECORDS = "privacy.json", "records"

_RESUMES = "The same command with --resume continues from the last checkpoint"


@contextmanager
def claimed(out: Path, resume: bool) -> Iterator[None]:
    """Claim the directory for this process, from before the text is read until the run is saved.

    The directory is removed again if nothing worth keeping was written.

    Raises:
        RunError: it is in use, or belongs to something else.
    """
    _check(out, resume)
    with writing.claimed(out, worth=lambda directory: (directory / CHECKPOINT).exists()):
        _check(out, resume)  # another process may have begun before the lock
        try:
            yield
        except (OSError, KeyboardInterrupt) as error:
            if (out / CHECKPOINT).exists():
                error.add_note(_RESUMES)
            raise


def check_repeats(out: Path, resume: bool) -> None:
    """Raise RunError unless `out` can hold the trainings of several seeds."""
    if out.exists() and not (out.is_dir() and (resume or not any(out.iterdir()))):
        raise _exists(out)
    if (out / IDENTITY).exists():
        raise RunError(
            f"{out} holds one training, and --seeds makes several", remedy="Choose another --out."
        )


def _check(out: Path, resume: bool) -> None:
    """Raise RunError for a directory of something else."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file", remedy="Choose another --out.")
    if writing.vacant(out):
        return
    if not resume:
        raise _exists(out)
    # Encoded text and ledger are written before the identity of the training.
    visible = {entry.name for entry in out.iterdir() if not entry.name.startswith(".")}
    if not (out / IDENTITY).is_file() and visible - {DATA, LEDGER, RECORDS}:
        raise RunError(
            f"{out} has no training to resume",
            remedy="Give the --out of the interrupted training, or a new folder.",
        )


def _exists(out: Path) -> RunError:
    return RunError(
        f"{out} exists already, and a training is never overwritten",
        remedy="Resume it (--resume), or choose another --out.",
    )
