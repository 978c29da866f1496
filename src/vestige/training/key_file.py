"""Key file of a private training: `DIR/secret.key`, readable by its owner alone.

A training goes on to the same bits from its checkpoint and its secret. The file is there before
the first step and is deleted once the model is written: whoever has it could subtract the noise,
and nothing needs it any more. It never goes into `model/`.

What remains outside: deleting a file does not overwrite the blocks of the disk that it stood in.
"""

import os
from pathlib import Path

from vestige.data.writing import replacing
from vestige.errors import TrainingError
from vestige.training.checkpoint import CHECKPOINT, MODEL
from vestige.training.secret import BYTES, Secret

KEY = "secret.key"


def secret_of(directory: Path | None, given: Secret | None) -> Secret:
    """Secret of a training, written to its directory where it is new.

    Args:
        directory: of the training. None: it is kept nowhere.
        given: the one to take; None: the training's own, or a fresh one.

    Raises:
        TrainingError: the secret is gone, damaged or another one, or cannot be written.
    """
    if directory is None or (directory / MODEL).exists():  # a finished one draws nothing any more
        return given or Secret.fresh()
    path = directory / KEY
    if path.exists():
        kept = read_secret(path)
        if given is not None and given != kept:
            raise TrainingError(
                f"{directory} has a training with another secret",
                remedy="Resume without a secret, or choose another directory.",
            )
        return kept
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


def forget(directory: Path) -> None:
    """Delete the secret of a finished training."""
    (directory / KEY).unlink(missing_ok=True)


def read_secret(path: Path) -> Secret:
    """Secret in a key file.

    Raises:
        TrainingError: it is gone or damaged.
    """
    try:
        return Secret(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"{path} does not have the {BYTES} bytes of a training's secret ({error})",
            remedy="Restore the file, or start again in a new directory.",
        ) from error


def write_secret(path: Path, secret: Secret) -> None:
    """Write a key file atomically, readable by its owner alone.

    Raises:
        OSError: it cannot be written.
    """
    with replacing(path) as file:
        file.write(secret.reveal())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the name itself: no step may be taken that its secret does not outlast
    finally:
        os.close(folder)
