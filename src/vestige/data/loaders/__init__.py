"""From files to a `Corpus`: one file for each format, and `read_corpus` as the door to all."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.loaders import reddit, tables
from vestige.data.loaders.federalist import AUTHORS, read_federalist
from vestige.data.loaders.newsgroups import is_message, read_newsgroups
from vestige.data.loaders.penn_treebank import read_penn_treebank
from vestige.data.loaders.plain_text import ending, fitting, lines, read_plain_text
from vestige.data.loaders.reddit import read_reddit
from vestige.data.loaders.tables import read_hub, read_table
from vestige.data.loaders.wikitext import read_wikitext
from vestige.errors import DataError

__all__ = [
    "FORMATS",
    "read_corpus",
    "read_federalist",
    "read_hub",
    "read_newsgroups",
    "read_penn_treebank",
    "read_plain_text",
    "read_reddit",
    "read_table",
    "read_wikitext",
]

FORMATS = (
    "auto",
    "text",
    "table",
    "hub",
    "penn-treebank",
    "wikitext",
    "newsgroups",
    "reddit",
    "federalist",
)
_HUB = re.compile(r"[\w-][\w.-]*/[\w.-]+(@[^:/]+)?(:.+)?")
_TEXT_SUFFIXES = (".txt", ".text", "")


def read_corpus(
    source: str | Path,
    *,
    format: str = "auto",
    text_column: str = "text",
    user_column: str | None = None,
    limit: int | None = None,
) -> Corpus:
    """Read text from wherever it is.

    Args:
        source: a file, a folder, the name of a hub data set ("owner/name@configuration:split"),
            or "federalist" ("federalist:Hamilton,Jay" for some of its authors).
        format: one of `FORMATS`; "auto" looks at names and, in doubt, at first lines.
        text_column: the documents' column, in tables and hub data sets.
        user_column: the users' column, in tables and hub data sets.
        limit: keep only the first so many documents.

    Raises:
        ValueError: the format is unknown, or the limit is not positive.
        DataError: naming the file, the line where there is one, and the remedy.
    """
    _validate.one_of(FORMATS, format=format)
    _validate.positive(limit=1 if limit is None else limit)
    table = partial(read_table, text_column=text_column, user_column=user_column)
    hub = partial(read_hub, text_column=text_column, user_column=user_column)
    chosen = _recognised(str(source), text_column) if format == "auto" else format
    readers: dict[str, Callable[[], Corpus]] = {
        "text": partial(_read_all, source, _TEXT_SUFFIXES, read_plain_text),
        "table": partial(_read_all, source, tables.SUFFIXES, table),
        "hub": partial(hub, str(source), limit=limit),
        "penn-treebank": partial(read_penn_treebank, source),
        "wikitext": partial(read_wikitext, source),
        "newsgroups": partial(read_newsgroups, source),
        "reddit": partial(read_reddit, source),
        "federalist": partial(_read_federalist, str(source)),
    }
    corpus = readers[chosen]()
    if limit is None or limit >= len(corpus):
        return corpus
    return corpus.take(np.arange(limit))


def _recognised(source: str, text_column: str) -> str:
    """The format of a source, by its name or its first lines."""
    path = Path(source)
    if path.is_dir():
        return _recognised_folder(path, text_column)
    if path.exists():
        return _recognised_file(path, text_column)
    if source.partition(":")[0] == "federalist":
        return "federalist"
    if _HUB.fullmatch(source) and not ending(path).startswith((".txt", *tables.SUFFIXES)):
        return "hub"
    raise DataError(
        f"{source} does not exist",
        remedy="Give a file, a folder, a hub data set as owner/name, or federalist.",
    )


def _recognised_file(path: Path, text_column: str) -> str:
    suffix = ending(path)
    if suffix in tables.SUFFIXES:
        return "reddit" if _is_reddit(path, text_column) else "table"
    if suffix in (".tokens", ".raw"):
        return "wikitext"
    if suffix in _TEXT_SUFFIXES:
        return "text"
    raise DataError(
        f"{path} has a name whose ending says nothing about its format",
        remedy=f"Name the format, one of {', '.join(FORMATS[1:])}.",
    )


def _recognised_folder(path: Path, text_column: str) -> str:
    names = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")}
    if any(re.fullmatch(r"ptb.*\.(train|valid|test)\.txt", name) for name in names):
        return "penn-treebank"
    if any(name.endswith(".tokens") for name in names):
        return "wikitext"
    if names & {"state.json", "dataset_dict.json"}:
        return "hub"
    if found := fitting(path, tables.SUFFIXES):
        return "reddit" if _is_reddit(found[0], text_column) else "table"
    if fitting(path, (".txt", ".text")):
        return "text"
    first = next((entry for entry in sorted(path.rglob("*")) if entry.is_file()), None)
    if first is not None and is_message(first):
        return "newsgroups"
    raise DataError(
        f"{path} holds no file of a format that we know",
        remedy="Give a folder of text, JSON lines, CSV, Parquet, WikiText or newsgroup files.",
    )


def _is_reddit(path: Path, text_column: str) -> bool:
    """Whether the default column is asked for and the file holds comments."""
    if text_column != "text" or not ending(path).startswith(".json"):
        return False
    try:
        row = json.loads(next(lines(path), ""))
    except ValueError:
        return False
    return isinstance(row, dict) and "text" not in row and row.keys() >= set(reddit.COLUMNS)


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
