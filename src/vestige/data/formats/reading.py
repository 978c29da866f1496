"""Corpora from files, folders and named sources: the registry of formats, and their detection.

A format is two functions: `detect`, whether a source has it, and `read`. Each is registered beside
its definition in a module of this package. Another package adds formats through the entry-point
group `vestige.formats`: an entry point names a module that registers when it is imported.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os.path import basename, exists, isdir
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.files import lines
from vestige.data.sources import CORPUS, MANIFEST, TRAIN
from vestige.errors import DataError
from vestige.registry import Registry

AUTO = "auto"
NAMES, ROWS, TABLE, TEXT, MESSAGES = range(5)
"""Stages of detection, in order: by names of files, by the first row, by endings, by contents."""
TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")

Content = TypeVar("Content")


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of `read_corpus` and `read_utterances`; a format may read more than `limit`."""

    text_column: str = "text"
    user_column: str | None = None
    source_column: str | None = None
    tokens_column: str = "tokens"
    tags_column: str = "tags"
    intent_column: str = "intent"
    limit: int | None = None


Detect = Callable[[str, ReadOptions], bool]


@dataclass(frozen=True, kw_only=True)
class Format(Generic[Content]):
    """A format of corpora or of utterances.

    Attributes:
        read: (source, options) -> content; the source is a path or a name.
        detect: (source, options) -> whether the source has this format.
        stage: when `detect` is called; a specific format comes before a general one.
    """

    read: Callable[[str, ReadOptions], Content]
    detect: Detect
    stage: int = NAMES


CorpusFormat = Format[Corpus]
CORPUS_FORMATS: Registry[CorpusFormat] = Registry(
    "format", package="vestige.data.formats", group="vestige.formats"
)


def corpus_format(
    name: str, detect: Detect, *, stage: int = NAMES
) -> Callable[[Callable[[Path], Corpus]], Callable[[Path], Corpus]]:
    """Decorator that registers a function which reads a path."""

    def register(read: Callable[[Path], Corpus]) -> Callable[[Path], Corpus]:
        found = CorpusFormat(read=lambda source, _: read(Path(source)), detect=detect, stage=stage)
        CORPUS_FORMATS.add(name, found)
        return read

    return register


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
        limit: keep only the first documents.

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
    chosen = detected(CORPUS_FORMATS, source, options) if format == AUTO else CORPUS_FORMATS[format]
    if chosen is None:
        raise _unknown(source)
    corpus = chosen.read(source, options)
    return corpus if limit is None else corpus.take(np.arange(min(limit, len(corpus))))


def read_source(
    source: str,
    *,
    format: str = AUTO,
    text: str = "text",
    user: str | None = None,
    source_column: str | None = None,
    limit: int | None = None,
) -> Corpus:
    """The corpus that DATA names, as `read_corpus` reads it; of a planted directory, its corpus."""
    folder = Path(source)
    if (folder / MANIFEST).is_file() and (folder / TRAIN).is_file():
        raise DataError(
            f"{source} is labelled utterances with planted secrets, not text",
            remedy="Pass --task nlu if the command has it, or other DATA.",
        )
    if format == AUTO and (folder / MANIFEST).is_file() and (folder / CORPUS).is_file():
        source = str(folder / CORPUS)
    return read_corpus(
        source,
        format=format,
        text_column=text,
        user_column=user,
        source_column=source_column,
        limit=limit,
    )


def detected(
    formats: Registry[Format[Content]], source: str, options: ReadOptions
) -> Format[Content] | None:
    """The first format, by stage and name, that a source has."""
    found = sorted(formats.values(), key=lambda one: one.stage)
    return next((one for one in found if one.detect(source, options)), None)


def table_files(source: str | Path) -> list[Path]:
    """The files of a source that is read as a plain table; none of any other format."""
    if detected(CORPUS_FORMATS, str(source), ReadOptions()) is not CORPUS_FORMATS["table"]:
        return []
    path = Path(source)
    return fitting(path, TABLES) if path.is_dir() else [path]


def _unknown(source: str) -> DataError:
    path = Path(source)
    if path.is_dir():
        return DataError(
            f"{path} has no file of a known format",
            remedy="Pass a folder of text, JSON lines, CSV, Parquet, WikiText or newsgroup files.",
        )
    if path.exists():
        return DataError(
            f"the name of {path} ends in no known format",
            remedy=f"Pass --format: {', '.join(CORPUS_FORMATS.names())}.",
        )
    return DataError(
        f"{source} does not exist",
        remedy="Pass a file, a folder, a hub data set (owner/name), or federalist.",
    )


# What formats share


def named(
    *files: str, inside: Sequence[str] = (), beside: str = "", called: str | None = None
) -> Detect:
    """Detection by names.

    Args:
        files: patterns of a file's name without `.gz`.
        inside: patterns of a file in a folder.
        beside: ending of another file of the same name, for files that are no tables.
        called: regular expression of a source that is no path, and ends as no table does.
    """

    def detect(source: str, _: ReadOptions) -> bool:
        if isdir(source):
            return any(any(Path(source).glob(pattern)) for pattern in inside)
        suffix = ending(Path(source))
        if not exists(source):
            table = suffix.startswith((".txt", *TABLES))
            return called is not None and not table and re.fullmatch(called, source) is not None
        name = basename(source).removesuffix(".gz")
        if any(fnmatchcase(name, pattern) for pattern in files):
            return True
        alone = not beside or suffix in ("", *TABLES)
        return not alone and Path(source).with_suffix(beside).is_file()

    return detect


def ending_in(files: tuple[str, ...], inside: tuple[str, ...]) -> Detect:
    """Detection by endings, of a file or of the files in a folder."""

    def detect(source: str, _: ReadOptions) -> bool:
        path = Path(source)
        if path.is_dir():
            return bool(fitting(path, inside))
        return path.exists() and ending(path) in files

    return detect


def with_columns(*columns: str) -> Detect:
    """Detection by the first row of JSON lines, in a file or in a folder's first table.

    It has these columns; no other ones if "text" is one of them, and no "text" if not. With named
    columns, a plain table is meant.
    """

    def detect(source: str, options: ReadOptions) -> bool:
        if options.text_column != "text":
            return False
        if "text" in columns:
            plain = options.user_column or options.source_column
            return not plain and _first_row(source).keys() == set(columns)
        found = _first_row(source).keys()
        return "text" not in found and found >= set(columns)

    return detect


def _first_row(source: str) -> dict[str, Any]:
    path = Path(source)
    if path.is_dir():
        path = next(iter(fitting(path, TABLES)), path)
    if not path.is_file() or ending(path) not in (".jsonl", ".json"):
        return {}
    try:
        row = json.loads(next(lines(path), ""))
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def not_empty(corpus: Corpus, source: object) -> Corpus:
    """The corpus; DataError if it has no documents."""
    if not len(corpus):
        raise DataError(f"{source} has no text", remedy="Pass a file or folder with documents.")
    return corpus


def ending(path: Path) -> str:
    """The ending of a name that says the format, `.gz` left aside."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix


def fitting(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The visible files of a folder whose names have one of the endings, in order."""
    entries = (entry for entry in sorted(folder.iterdir()) if not entry.name.startswith("."))
    return [entry for entry in entries if entry.is_file() and ending(entry) in suffixes]


def files_of(source: Path, suffixes: tuple[str, ...] = (), *patterns: str) -> list[Path]:
    """One file, or those of a folder with one of the endings or names; DataError without any."""
    if not source.is_dir():
        return [source]
    matching = [file for pattern in patterns for file in sorted(source.glob(pattern))]
    files = fitting(source, suffixes) or matching
    if not files:
        wanted = patterns[0] if patterns else f"file ending in {', '.join(filter(None, suffixes))}"
        raise DataError(
            f"{source} has no {wanted}", remedy="Pass a file, or a folder with such files."
        )
    return files
