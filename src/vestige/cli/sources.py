"""What DATA may be: anything that `read_corpus` reads, and a directory of `vestige plant`."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Manifest

CORPUS, MANIFEST = "corpus.jsonl", "manifest.json"
"""The files in a directory of `vestige plant`."""


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
    limit: int | None = None,
) -> "Corpus":
    """The corpus that DATA names; see `vestige.data.loaders.read_corpus`.

    A planted directory stands for the corpus in it: its manifest is no text.
    """
    from vestige.data.loaders import read_corpus

    folder = Path(source)
    if format == "auto" and (folder / MANIFEST).is_file() and (folder / CORPUS).is_file():
        source = str(folder / CORPUS)
    return read_corpus(source, format=format, text_column=text, user_column=user, limit=limit)
