"""From files to a `Corpus`: one file for each format, and one door for all of them."""

from pathlib import Path

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.loaders.penn_treebank import read_penn_treebank
from vestige.data.loaders.plain_text import read_plain_text


def read_corpus(
    source: str | Path,
    *,
    format: str = "auto",
    text_column: str = "text",
    user_column: str | None = None,
    limit: int | None = None,
) -> Corpus:
    path = Path(source)
    corpus = read_penn_treebank(path) if path.is_dir() else read_plain_text(path)
    if limit is not None:
        _validate.positive(limit=limit)
        corpus = corpus.take(np.arange(min(limit, len(corpus))))
    return corpus
