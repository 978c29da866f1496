"""From sources of any registered format to a `Corpus`."""

from pathlib import Path

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.loaders.registry import CORPUS_FORMATS, CorpusFormat, ReadOptions
from vestige.errors import DataError

AUTO = "auto"


def read_corpus(
    source: str | Path,
    *,
    format: str = AUTO,
    text_column: str = "text",
    user_column: str | None = None,
    source_column: str | None = None,
    limit: int | None = None,
) -> Corpus:
    """Text from a file, a folder or a named source.

    Args:
        source: a file, a folder, the name of a hub data set ("owner/name@configuration:split"),
            or "federalist" ("federalist:Hamilton,Jay" for some of its authors).
        format: the name of a registered format; "auto" looks at names and, in doubt, at first
            lines. Messages of Ubuntu's chat are replies with sources, and a plain table where
            columns are named.
        text_column: the documents' column, in tables and hub data sets; the ending of the files
            to translate to in "sated" (there "text" stands for "fr").
        user_column: the users' column, in tables and hub data sets.
        source_column: what the documents answer or translate, in tables and hub data sets; the
            ending of the files to translate from in "sated" (there None stands for "en").
        limit: keep only the first so many documents.

    Raises:
        ValueError: the format is unknown, or the limit is not positive.
        DataError: naming the file, the line where there is one, and the remedy.
    """
    _validate.positive(limit=1 if limit is None else limit)
    _validate.one_of((AUTO, *CORPUS_FORMATS.names()), format=format)
    options = ReadOptions(
        text_column=text_column, user_column=user_column, source_column=source_column, limit=limit
    )
    source = str(source)
    chosen = _recognised(source, options) if format == AUTO else CORPUS_FORMATS[format]
    corpus = chosen.read(source, options)
    if limit is None or limit >= len(corpus):
        return corpus
    return corpus.take(np.arange(limit))


def _recognised(source: str, options: ReadOptions) -> CorpusFormat:
    """The first format that takes a source for its own."""
    for found in sorted(CORPUS_FORMATS.values(), key=lambda one: one.stage):
        if found.recognised(source, options):
            return found
    path = Path(source)
    if path.is_dir():
        raise DataError(
            f"{path} has no file of a known format",
            remedy="Pass a folder of text, JSON lines, CSV, Parquet, WikiText or newsgroup files.",
        )
    if path.exists():
        raise DataError(
            f"the name of {path} ends in no known format",
            remedy=f"Pass --format: {', '.join(CORPUS_FORMATS.names())}.",
        )
    raise DataError(
        f"{source} does not exist",
        remedy="Pass a file, a folder, a hub data set (owner/name), or federalist.",
    )
