"""From files to a `Corpus`: one file for each format, and `read_corpus` as the door to all."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.loaders import tables
from vestige.data.loaders.cornell import read_cornell
from vestige.data.loaders.federalist import AUTHORS, read_federalist
from vestige.data.loaders.newsgroups import read_newsgroups
from vestige.data.loaders.pairs import read_pairs
from vestige.data.loaders.penn_treebank import read_penn_treebank
from vestige.data.loaders.plain_text import fitting, read_plain_text
from vestige.data.loaders.recognition import FORMATS, TEXT_SUFFIXES, recognised
from vestige.data.loaders.reddit import read_reddit
from vestige.data.loaders.sated import read_sated
from vestige.data.loaders.tables import read_hub, read_table
from vestige.data.loaders.ubuntu_irc import read_ubuntu_irc
from vestige.data.loaders.wikitext import read_wikitext
from vestige.errors import DataError

__all__ = [
    "FORMATS",
    "read_cornell",
    "read_corpus",
    "read_federalist",
    "read_hub",
    "read_newsgroups",
    "read_pairs",
    "read_penn_treebank",
    "read_plain_text",
    "read_reddit",
    "read_sated",
    "read_table",
    "read_ubuntu_irc",
    "read_wikitext",
]


def read_corpus(
    source: str | Path,
    *,
    format: str = "auto",
    text_column: str = "text",
    user_column: str | None = None,
    source_column: str | None = None,
    limit: int | None = None,
) -> Corpus:
    """Read text from wherever it is.

    Args:
        source: a file, a folder, the name of a hub data set ("owner/name@configuration:split"),
            or "federalist" ("federalist:Hamilton,Jay" for some of its authors).
        format: one of `FORMATS`; "auto" looks at names and, in doubt, at first lines. Messages
            of Ubuntu's chat are replies with sources, and a plain table where columns are named.
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
    _validate.one_of(FORMATS, format=format)
    _validate.positive(limit=1 if limit is None else limit)
    given = {"text": text_column != "text", "user": user_column, "source": source_column}
    named = frozenset(name for name, column in given.items() if column)
    chosen = recognised(str(source), named=named) if format == "auto" else format
    target = "fr" if text_column == "text" else text_column
    table = partial(
        read_table, text_column=text_column, user_column=user_column, source_column=source_column
    )
    hub = partial(
        read_hub, text_column=text_column, user_column=user_column, source_column=source_column
    )
    readers: dict[str, Callable[[], Corpus]] = {
        "text": partial(_read_all, source, TEXT_SUFFIXES, read_plain_text),
        "table": partial(_read_all, source, tables.SUFFIXES, table),
        "hub": partial(hub, str(source), limit=limit),
        "penn-treebank": partial(read_penn_treebank, source),
        "wikitext": partial(read_wikitext, source),
        "newsgroups": partial(read_newsgroups, source),
        "reddit": partial(read_reddit, source),
        "federalist": partial(_read_federalist, str(source)),
        "sated": partial(read_sated, source, source=source_column or "en", target=target),
        "cornell": partial(read_cornell, source),
        "ubuntu-irc": partial(read_ubuntu_irc, source),
        "pairs": partial(read_pairs, source),
    }
    corpus = readers[chosen]()
    if limit is None or limit >= len(corpus):
        return corpus
    return corpus.take(np.arange(limit))


def _read_all(
    source: str | Path, suffixes: tuple[str, ...], read: Callable[[Path], Corpus]
) -> Corpus:
    path = Path(source)
    files = fitting(path, suffixes) if path.is_dir() else [path]
    if not files:
        raise DataError(
            f"{path} holds no file whose name ends in {', '.join(filter(None, suffixes))}",
            remedy="Give a file, or a folder that holds such files.",
        )
    return Corpus.concatenate([read(file) for file in files])


def _read_federalist(source: str) -> Corpus:
    named = source.partition(":")[2]
    return read_federalist([name.strip() for name in named.split(",")] if named else AUTHORS)
