"""What DATA may be: anything that `read_corpus` reads, and a directory of `vestige plant`."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Manifest

CORPUS, MANIFEST = "corpus.jsonl", "manifest.json"
"""The files in a directory of `vestige plant`."""

TRAIN, VALIDATION, TEST = "train.jsonl", "validation.jsonl", "test.jsonl"
"""The parts in a directory of `vestige plant --task nlu`; the last two may be missing."""


def manifest_file(path: "str | PathLike[str]") -> Path:
    """The manifest that a path names: the file itself, or the one in a planted directory."""
    return Path(path) / MANIFEST if Path(path).is_dir() else Path(path)


def planting(source: str) -> "Manifest | None":
    """The manifest of a planted directory; None where DATA is anything else."""
    from vestige.data.manifest import Manifest

    file = Path(source) / MANIFEST
    return Manifest.load(file) if file.is_file() else None


def read_source(
    source: str,
    *,
    format: str = "auto",
    text: str = "text",
    user: str | None = None,
    source_column: str | None = None,
    limit: int | None = None,
) -> "Corpus":
    """The corpus that DATA names; see `vestige.data.loaders.read_corpus`.

    A planted directory stands for the corpus in it: its manifest is no text.

    Raises:
        DataError: it cannot be read, or holds labelled utterances.
    """
    from vestige.data.loaders import read_corpus
    from vestige.errors import DataError

    folder = Path(source)
    if (folder / MANIFEST).is_file() and (folder / TRAIN).is_file():
        raise DataError(
            f"{source} is labelled utterances with planted secrets, not text",
            remedy="Pass --task nlu if the command has it, or other DATA.",
        )
    if format == "auto" and (folder / MANIFEST).is_file() and (folder / CORPUS).is_file():
        source = str(folder / CORPUS)
    return read_corpus(
        source,
        format=format,
        text_column=text,
        user_column=user,
        source_column=source_column,
        limit=limit,
    )
