"""The directory of a training: its files, lock, identity, log and secret.

    training.json            identity of the training: model, data and settings; written first
    checkpoint.safetensors   everything that the next step depends on
    history.json             one record per epoch
    log.jsonl                one line every few steps
    model/                   the best model; written last
    secret.key               of an unfinished private training, readable by its owner only

Every file except the log is written under another name and then renamed, so a kill at any moment
leaves the previous version. The secret is written before the first step and deleted after the model
is written: anyone who has it could subtract the noise. It never goes into `model/`. Deleting a file
does not overwrite its blocks on the disk.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.data import writing
from vestige.data.files import (
    LARGEST,
    Count,
    Measurements,
    conform,
    parse_object,
    read_bytes,
    read_object,
)
from vestige.data.writing import make_directory, replacing, write_text
from vestige.errors import RunError, TrainingError

if TYPE_CHECKING:  # torch comes with it, and help needs neither
    from vestige.training.secret import Secret

IDENTITY, CHECKPOINT = "training.json", "checkpoint.safetensors"
HISTORY, LOG, MODEL, KEY = "history.json", "log.jsonl", "model", "secret.key"
DATA, LEDGER, RECORDS = "data", "privacy.json", "records"
"""Encoded text, privacy ledger and record hashes; see `preparation.privacy`."""
CONFIGURATION = "model configuration"  # weights do not show dropout
_START_AGAIN = "Start again in a new directory."
_NO_LOG = "Remove it: the training does not need it."
_RESUMES = "The same command with --resume continues from the last checkpoint"
_HASH = 64  # letters of a SHA-256


@contextmanager
def lock_training(out: Path, resume: bool) -> Iterator[None]:
    """Lock the directory for this process, from before the text is read until the run is saved.

    The directory is removed if it has no checkpoint.

    Raises:
        RunError: it is in use, or belongs to something else.
    """
    _check(out, resume)
    with writing.lock_output(out, keep_if=lambda directory: (directory / CHECKPOINT).exists()):
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
    """Raise RunError unless the directory is new, or has a training to resume."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file", remedy="Choose another --out.")
    if writing.is_vacant(out):
        return
    if not resume:
        raise _exists(out)
    # Encoded text and ledger are written before training.json.
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


# Identity


def open_directory(directory: Path, identity: Mapping[str, object], *, resume: bool) -> None:
    """Create a training's directory, or check that it has this training.

    Raises:
        TrainingError: it has a training and `resume` is off, or it has another training.
    """
    path = directory / IDENTITY
    if not path.exists():
        if (directory / MODEL).exists() or (directory / CHECKPOINT).exists():
            raise TrainingError(
                f"{directory} has a model, but not its training",
                remedy="Train into a new directory.",
            )
        try:
            make_directory(directory)
            write_json(path, identity)
        except OSError as error:
            raise TrainingError(
                f"{directory} cannot be written ({error})",
                remedy="Choose a writable directory on a disk with space.",
            ) from error
        return
    if not resume:
        raise TrainingError(
            f"{directory} already has a training",
            remedy="Pass --resume, or another directory.",
        )
    before = read_object(path, error=TrainingError, remedy=_START_AGAIN, finite=False)
    if differing := _differences(before, json.loads(json.dumps(identity))):
        raise TrainingError(
            f"{directory} has another training: {'; '.join(differing)}",
            remedy="Resume with the same settings, data and model, or choose another directory.",
        )


def _differences(before: Any, now: Any, where: str = "") -> list[str]:
    both = isinstance(before, dict) and isinstance(now, dict)
    if both and before.get("name") == now.get("name"):
        keys = sorted(before.keys() | now.keys())
        inside = f"{where}." if where else ""
        return [
            line
            for key in keys
            for line in _differences(before.get(key), now.get(key), f"{inside}{key}")
        ]
    if before == now:
        return []
    return [f"{where} was {_brief(before)} and is {_brief(now)}"]


def _brief(value: Any) -> Any:
    """Setting for a message: a name, or the beginning of a hash."""
    if isinstance(value, dict) and "name" in value:
        value = value["name"]
    if not isinstance(value, str):
        return value
    return value.partition(".<locals>")[0] if len(value) < _HASH else value[:12]


# History and log


class _LogLine(Measurements):
    """Schema of a line of the log."""

    step: Count
    clipped: float | None = None
    median_norm: float | None = None


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def cut_log(directory: Path, step: int) -> None:
    """Remove log lines after a step, and an incomplete last line."""
    path = directory / LOG
    if not path.exists():
        return
    lines = [line for line, entry in log_lines(path) if entry.get("step", 0) <= step]
    write_text(path, "".join(f"{line}\n" for line in lines))


def log_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lines of a log, parsed, without an incomplete last line.

    Raises:
        TrainingError: a line is not JSON or has no step, or the log is no ordinary file.
    """
    content = read_bytes(path, limit=LARGEST, error=TrainingError, remedy=_NO_LOG)
    for number, line in enumerate(content.splitlines(), 1):
        if not line.endswith(b"}"):
            continue
        where = f"{path}, line {number},"
        entry = parse_object(line, where, error=TrainingError, remedy=_NO_LOG, finite=False)
        conform(entry, _LogLine, where, error=TrainingError, remedy=_NO_LOG)
        yield line.decode(), entry


# The secret of a private training


def secret_of(directory: Path | None, given: "Secret | None") -> "Secret":
    """Secret of a training; a new one is written to its directory.

    Args:
        directory: of the training. None: the secret is not stored.
        given: secret to use; None: the stored one, or a fresh one.

    Raises:
        TrainingError: the secret is missing, damaged or another one, or cannot be written.
    """
    from vestige.training.secret import Secret

    if directory is None or (directory / MODEL).exists():  # a finished training needs none
        return given or Secret.fresh()
    path = directory / KEY
    if path.exists():
        stored = read_secret(path)
        if given is not None and given != stored:
            raise TrainingError(
                f"{directory} has a training with another secret",
                remedy="Resume without a secret, or choose another directory.",
            )
        return stored
    if given is None and (directory / CHECKPOINT).exists():
        raise TrainingError(
            f"{path} is missing; a private training cannot resume without it",
            remedy="Restore the file, or start again in a new directory.",
        )
    secret = given or Secret.fresh()
    try:
        write_secret(path, secret)
    except OSError as error:
        raise TrainingError(
            f"{path} cannot be written ({error})",
            remedy="Choose your own directory, on a disk with space.",
        ) from error
    return secret


def read_secret(path: Path) -> "Secret":
    """Secret in a key file; TrainingError if it is missing or damaged."""
    from vestige.training.secret import BYTES, Secret

    try:
        return Secret(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"{path} does not have the {BYTES} bytes of a training's secret ({error})",
            remedy="Restore the file, or start again in a new directory.",
        ) from error


def write_secret(path: Path, secret: "Secret") -> None:
    """Write a key file atomically, readable by its owner only."""
    with replacing(path) as file:
        file.write(secret.reveal())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # also the name: the secret must survive every step
    finally:
        os.close(folder)
