"""Corpora from files, folders and named sources: formats, their detection, and what they share.

A format is two functions: `detect`, whether a source has it, and `read`. Each is registered beside
its definition in a module of this package. Another package adds formats through the entry-point
group `vestige.formats`: an entry point names a module that registers when it is imported.

Anyone may have written a data file. Pipes and devices are refused before they are opened. Lines,
also of gzip files, are bounded in their length, and all together by the free memory.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.files import require_regular, unreadable, within_memory
from vestige.data.sources import CORPUS, MANIFEST, TRAIN
from vestige.errors import DataError
from vestige.registry import Registry

AUTO = "auto"
NAMES, ROWS, TABLE, TEXT, MESSAGES = range(5)
"""Stages of detection, in order: by file names, by the first row, by endings, by contents."""
TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
LONGEST_LINE = 2**26
"""Bytes of a line: ten times the Bible."""

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


def add_corpus_format(
    name: str, read: Callable[[Path], Corpus], detect: Detect, *, stage: int = NAMES
) -> None:
    """Register a function that reads a path, without options."""
    CORPUS_FORMATS.add(
        name, CorpusFormat(read=lambda source, _: read(Path(source)), detect=detect, stage=stage)
    )


def read_source(
    source: str,
    *,
    format: str = AUTO,
    text: str = "text",
    user: str | None = None,
    source_column: str | None = None,
    limit: int | None = None,
) -> Corpus:
    """The corpus that DATA names: as `read_corpus`, or the corpus of a planted directory."""
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
    if format != AUTO:
        corpus = CORPUS_FORMATS[format].read(source, options)
    elif detected := detect_format(CORPUS_FORMATS, source, options):
        corpus = detected.read(source, options)
    else:
        raise _unknown_format(source)
    return corpus if limit is None else corpus.take(np.arange(min(limit, len(corpus))))


def detect_format(
    formats: Registry[Format[Content]], source: str, options: ReadOptions
) -> Format[Content] | None:
    """The first format, by stage and name, that a source has."""
    ordered = sorted(formats.values(), key=lambda format: format.stage)
    return next((format for format in ordered if format.detect(source, options)), None)


def table_files(source: str | Path) -> list[Path]:
    """The files of a source that is read as a plain table; none for another format."""
    if detect_format(CORPUS_FORMATS, str(source), ReadOptions()) is not CORPUS_FORMATS["table"]:
        return []
    return source_files(Path(source), TABLES)


def _unknown_format(source: str) -> DataError:
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


# Detection


def by_name(
    *patterns: str, inside: Sequence[str] = (), companion: str = "", source_name: str | None = None
) -> Detect:
    """Detection by names.

    Args:
        patterns: of a file's name without `.gz`.
        inside: patterns of a file in a folder.
        companion: ending of another file of the same name, for files that are no tables.
        source_name: regular expression of a source that is no path and has no table's ending.
    """

    def detect(source: str, _: ReadOptions) -> bool:
        path = Path(source)
        if path.is_dir():
            return any(any(path.glob(pattern)) for pattern in inside)
        if not path.exists():
            like_file = ending(path).startswith((".txt", *TABLES))
            return (
                source_name is not None
                and not like_file
                and re.fullmatch(source_name, source) is not None
            )
        if any(fnmatchcase(path.name.removesuffix(".gz"), pattern) for pattern in patterns):
            return True
        is_table = ending(path) in ("", *TABLES)
        return bool(companion) and not is_table and path.with_suffix(companion).is_file()

    return detect


def by_ending(of_file: tuple[str, ...], inside: tuple[str, ...]) -> Detect:
    """Detection by the ending of a file, or of a file in a folder."""

    def detect(source: str, _: ReadOptions) -> bool:
        path = Path(source)
        if path.is_dir():
            return bool(files_ending_in(path, inside))
        return path.exists() and ending(path) in of_file

    return detect


def by_columns(*columns: str) -> Detect:
    """Detection by the first row of JSON lines, in a file or in a folder's first table.

    The row has these columns; no other ones if "text" is one of them, and no "text" if not. A
    source with named columns is a plain table.
    """

    def detect(source: str, options: ReadOptions) -> bool:
        if options.text_column != "text":
            return False
        if "text" in columns and (options.user_column or options.source_column):
            return False
        present = _first_row(source).keys()
        if "text" in columns:
            return present == set(columns)
        return "text" not in present and present >= set(columns)

    return detect


def _first_row(source: str) -> dict[str, Any]:
    path = Path(source)
    if path.is_dir():
        path = next(iter(files_ending_in(path, TABLES)), path)
    if not path.is_file() or ending(path) not in (".jsonl", ".json"):
        return {}
    try:
        row = json.loads(first_line(path))
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


# Files


def existing_file(path: str | Path) -> Path:
    """The path of a data file; DataError if it is missing, a folder, or no ordinary file."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file", remedy="Pass a file in it.")
    if not path.exists():
        raise DataError(f"{path} does not exist", remedy="Check the path.")
    if not path.is_file():
        require_regular(path, error=DataError, remedy="Write its output to a file first.")
    return path


def ending(path: Path) -> str:
    """The ending of a name that says the format; `.gz` is ignored."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix


def files_ending_in(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    """The visible files of a folder whose names have one of the endings, in order."""
    entries = (entry for entry in sorted(folder.iterdir()) if not entry.name.startswith("."))
    return [entry for entry in entries if entry.is_file() and ending(entry) in endings]


def source_files(source: Path, endings: tuple[str, ...] = (), *patterns: str) -> list[Path]:
    """One file, or those of a folder with one of the endings or names; DataError without any."""
    if not source.is_dir():
        return [source]
    matches = [file for pattern in patterns for file in sorted(source.glob(pattern))]
    files = files_ending_in(source, endings) or matches
    if not files:
        wanted = patterns[0] if patterns else f"file ending in {', '.join(filter(None, endings))}"
        raise DataError(
            f"{source} has no {wanted}", remedy="Pass a file, or a folder with such files."
        )
    return files


def require_documents(corpus: Corpus, source: object) -> Corpus:
    """The corpus; DataError if it has no documents."""
    if not len(corpus):
        raise DataError(f"{source} has no text", remedy="Pass a file or folder with documents.")
    return corpus


# Lines


def lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, as a stream; see `raw_lines`."""
    for number, line in enumerate(raw_lines(path), start=1):
        yield _decoded(line, path, number)


def first_line(path: Path) -> str:
    """The first line of a UTF-8 file; empty if there is none."""
    return _decoded(next(_bounded_lines(path), b""), path, 1)


def raw_lines(path: Path) -> Iterator[bytes]:
    """The undecoded lines of a file, gzip when the name ends in `.gz`.

    Raises:
        DataError: the file is missing, unreadable or cut short, a line is longer than
            `LONGEST_LINE`, or the text exceeds the memory.
    """
    return within_memory(_bounded_lines(path), len, path)


def _bounded_lines(path: Path) -> Iterator[bytes]:
    existing_file(path)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            read_line = partial(file.readline, LONGEST_LINE + 1)
            for number, line in enumerate(iter(read_line, b""), start=1):
                if len(line) > LONGEST_LINE:
                    raise DataError(
                        f"{path}, line {number}: more than {LONGEST_LINE:,} bytes",
                        remedy="Write one document per line; `fold` breaks lines.",
                    )
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path} is incomplete or not a gzip file: {error}",
            remedy="Download or compress it again; `gzip -t` tests it.",
        ) from error
    except OSError as error:
        raise unreadable(path, error, DataError, "Check its permissions.") from error


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}, byte {error.start + 1} (0x{line[error.start]:02x}): not UTF-8",
            remedy="Convert the file, for example with `iconv -f latin1 -t utf-8`.",
        ) from error
