"""What DATA may be: anything that `read_corpus` reads, and a directory of `vestige plant`."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus

CORPUS, MANIFEST = "corpus.jsonl", "manifest.json"
"""The files in a directory of `vestige plant`."""


def planted_places(source: str, documents: int) -> tuple[int, ...]:
    """Where the canaries' copies stand in a planted directory, below `documents`; else nowhere."""
    from vestige.data.manifest import Manifest

    file = Path(source) / MANIFEST
    if not file.is_file():
        return ()
    places = (place for own in Manifest.load(file).positions for place in own)
    return tuple(sorted(place for place in places if place < documents))


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
