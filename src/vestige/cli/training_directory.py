"""The directory of `vestige train`: whose it is before the first step, and after a failure."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPEAT = "seed-{}"
"""Where `--seeds` keeps the training of a seed."""

DATA, IDENTITY, CHECKPOINT, RUN = "data", "training.json", "checkpoint.safetensors", "run"


def check_out(out: Path, resume: bool) -> None:
    """Refuse a directory that is not ours, before anything is read or written."""
    from vestige.errors import RunError

    if out.exists() and not resume:
        raise RunError(
            f"{out} exists already, and a training is never overwritten",
            remedy="Go on with it (--resume), choose another --out, or remove it first.",
        )
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file", remedy="Give the directory of the training.")
    if _holds_something_else(out):
        raise RunError(
            f"{out} holds something, but no training to resume",
            remedy="Give the --out of the interrupted training, or a new directory.",
        )


def check_repeats(out: Path, resume: bool) -> None:
    """Refuse a directory that is no place for several trainings."""
    from vestige.errors import RunError

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


def repeats(path: str) -> tuple[str, ...]:
    """The trainings in a directory of `vestige train --seeds`, by seed; of any other, the path."""
    found = [one for one in Path(path).glob(REPEAT.format("*")) if one.name[5:].isdecimal()]
    ordered = sorted(found, key=lambda one: int(one.name[5:]))
    return tuple(map(str, ordered)) or (path,)


def _holds_something_else(out: Path) -> bool:
    if not out.is_dir() or (out / IDENTITY).is_file():
        return False
    # Encoding comes before the training says what it is.
    return any(entry.name != DATA for entry in out.iterdir())


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """A training that could not begin leaves nothing behind where nothing was."""
    was_there = out.exists()
    try:
        yield
    except Exception:
        if not was_there and not (out / CHECKPOINT).exists():
            shutil.rmtree(out, ignore_errors=True)
        raise
