"""Atomic replacement of folders.

A directory cannot be renamed over another one. So the old one steps aside to a hidden name,
the new one takes its place, and whoever reads between the two finds the old one aside.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from vestige.data import atomic_write
from vestige.errors import ModelError

DESCRIPTIONS = ("model.json", "config.json", "adapter_config.json")
GGUF = ".gguf"
ANSWERS = "intent_slot.json"
"""What makes the folder of an encoder an intent-and-slot model: its labels."""


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """Fresh folder that replaces `directory` when the block ends well.

    When the block raises, or the process dies, `directory` stays what it was. Others may read it
    as far as the umask lets them, since a model is what is meant for release.

    Raises:
        ModelError: the place cannot be written.
    """
    directory = directory.absolute()
    try:
        if directory.exists() and not directory.is_dir():
            raise NotADirectoryError(f"{directory} is a file")
        with atomic_write.beside(directory) as fresh:
            yield fresh
            atomic_write.share(fresh)
            _swap(fresh, directory)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"the model cannot be saved in {directory}: {error}",
            remedy="Choose a writable directory on a disk with space.",
        ) from error


def standing(directory: Path) -> Path:
    """The directory, or its predecessor where a kill came between the two renames."""
    former = _aside(directory.absolute())
    return former if not directory.exists() and former.is_dir() else directory


def model_folder(path: str | Path) -> Path:
    """Folder of a model's files: `path`, or its "model" where a training wrote it."""
    folder = standing(Path(path))
    inner = standing(folder / "model")
    described = any((folder / name).is_file() for name in DESCRIPTIONS)
    return inner if inner.is_dir() and not described else folder


def gguf_file(path: Path) -> Path | None:
    """The GGUF file at a path, or the only one in a folder that describes no other model."""
    if path.suffix == GGUF:
        return None if path.is_dir() else path
    if any((path / name).exists() for name in DESCRIPTIONS) or not path.is_dir():
        return None
    found = list(path.glob(f"*{GGUF}"))
    return found[0] if len(found) == 1 else None


def is_model(path: Path) -> bool:
    """Whether a path holds a model or a finished training."""
    folder = model_folder(path)
    described = any((folder / name).is_file() for name in DESCRIPTIONS)
    return described or ((file := gguf_file(folder)) is not None and file.is_file())


def sha256(files: list[Path]) -> str:
    """SHA-256 (hex) over the contents of some files."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _swap(fresh: Path, directory: Path) -> None:
    aside = _aside(directory)
    if directory.exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(directory, aside)
    os.replace(fresh, directory)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.before")
