"""Corpora from files, folders and named sources: the formats, their detection, and lines of text.

A format is two functions: `detect`, whether a source has it, and `read`. Our own formats are listed
below, most of them by the names of their files, so that detecting one imports no reader. Another
package adds formats through the entry-point group `vestige.formats`: an entry point names a module
that registers when it is imported.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from os.path import basename, exists, isdir, join
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.files import require_regular
from vestige.errors import DataError
from vestige.memory import free_memory
from vestige.registry import Registry

T = TypeVar("T")

AUTO = "auto"
NAMES, ROWS, TABLE, TEXT, MESSAGES = range(5)
"""Stages of detection, in order: by names of files, by the first row, by endings, by contents."""
TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
TEXTS = (".txt", ".text", "")
LONGEST_LINE = 2**26
"""Bytes of a line: ten times the Bible."""

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+(@[^:/]+)?(:.+)?")


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of `read_corpus` that a format may use; it may read more than `limit`."""

    text_column: str = "text"
    user_column: str | None = None
    source_column: str | None = None
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class CorpusFormat:
    """A format of corpora.

    Attributes:
        read: (source, options) -> corpus; the source is a path or a name.
        detect: (source, options) -> whether the source has this format.
        stage: when `detect` is called; a specific format comes before a general one.
    """

    read: Callable[[str, ReadOptions], Corpus]
    detect: Callable[[str, ReadOptions], bool]
    stage: int = NAMES


CORPUS_FORMATS: Registry[CorpusFormat] = Registry("format", group="vestige.formats")


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
    chosen = _detected(source, options) if format == AUTO else CORPUS_FORMATS[format]
    if chosen is None:
        raise _unknown(source)
    corpus = chosen.read(source, options)
    if limit is None or limit >= len(corpus):
        return corpus
    return corpus.take(np.arange(limit))


def table_files(source: str | Path) -> list[Path]:
    """The files of a source that is read as a plain table; none of any other format."""
    if _detected(str(source), ReadOptions()) is not CORPUS_FORMATS["table"]:
        return []
    path = Path(source)
    return fitting(path, TABLES) if path.is_dir() else [path]


def _detected(source: str, options: ReadOptions) -> CorpusFormat | None:
    formats = sorted(CORPUS_FORMATS.values(), key=lambda one: one.stage)
    return next((one for one in formats if one.detect(source, options)), None)


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


def _named(
    *files: str, inside: Sequence[str] = (), beside: str = ""
) -> Callable[[str, ReadOptions], bool]:
    """Detection by names.

    Args:
        files: patterns of a file's name, `.gz` left aside.
        inside: patterns of what a folder has.
        beside: ending of another file of the same name; tables take no part.
    """

    def detect(source: str, _: ReadOptions) -> bool:
        if isdir(source):
            return any(any(Path(source).glob(pattern)) for pattern in inside)
        name = basename(source).removesuffix(".gz")
        if any(fnmatchcase(name, pattern) for pattern in files):
            return exists(source)
        if not beside or ending(Path(source)) in ("", *TABLES):
            return False
        return exists(source) and Path(source).with_suffix(beside).is_file()

    return detect


def _ending_in(
    files: tuple[str, ...], inside: tuple[str, ...]
) -> Callable[[str, ReadOptions], bool]:
    """Detection by endings, of a file or of the files in a folder."""

    def detect(source: str, _: ReadOptions) -> bool:
        path = Path(source)
        if path.is_dir():
            return bool(fitting(path, inside))
        return path.exists() and ending(path) in files

    return detect


def _is_federalist(source: str, _: ReadOptions) -> bool:
    return source.partition(":")[0] == "federalist" and not exists(source)


def _is_data_set(source: str, _: ReadOptions) -> bool:
    """A folder that `datasets` saved, or a name on the hub."""
    if exists(source):
        return any(exists(join(source, name)) for name in ("state.json", "dataset_dict.json"))
    named = ending(Path(source)).startswith((".txt", *TABLES))
    return not named and _HUB_NAME.fullmatch(source) is not None


def _is_reddit(source: str, options: ReadOptions) -> bool:
    if options.text_column != "text":
        return False
    row = _first_row(Path(source))
    return "text" not in row and row.keys() >= {"author", "body", "subreddit"}


def _is_chat(source: str, options: ReadOptions) -> bool:
    if options.text_column != "text" or options.user_column or options.source_column:
        return False  # named columns: a plain table is meant
    return _first_row(Path(source)).keys() == {"log", "time", "user", "text"}


def _is_newsgroup(source: str, _: ReadOptions) -> bool:
    path = Path(source)
    files = sorted(path.rglob("*")) if path.is_dir() else []
    first = next((file for file in files if file.is_file()), None)
    return first is not None and is_message(first)


def is_message(file: Path) -> bool:
    """Whether a file begins with a header block that names a sender."""
    with existing(file).open("rb") as opened:
        head = opened.read(8192).partition(b"\n\n")[0]
    return re.search(rb"^From:", head, re.MULTILINE | re.IGNORECASE) is not None


def _first_row(path: Path) -> dict[str, Any]:
    """The first object of JSON lines, in a file or in a folder's first table; else nothing."""
    if path.is_dir():
        path = next(iter(fitting(path, TABLES)), path)
    if not path.is_file() or ending(path) not in (".jsonl", ".json"):
        return {}
    try:
        row = json.loads(next(lines(path), ""))
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _add(
    name: str,
    reader: str,
    detect: Callable[[str, ReadOptions], bool],
    *,
    stage: int = NAMES,
    options: bool = False,
) -> None:
    """Register one of our own formats.

    Args:
        name: of the format.
        reader: "module.function" of this package, imported when it is first called.
        detect, stage: see `CorpusFormat`.
        options: whether the function takes the options; else it takes the path alone.
    """
    module, _, function = reader.partition(".")

    def read(source: str, given: ReadOptions) -> Corpus:
        found = getattr(import_module(f"vestige.data.formats.{module}"), function)
        corpus: Corpus = found(source, given) if options else found(Path(source))
        return corpus

    CORPUS_FORMATS.add(name, CorpusFormat(read=read, detect=detect, stage=stage))


_add("cornell", "dialogue.read_cornell", _named("movie_lines*.txt", inside=["movie_lines*.txt"]))
_add("federalist", "federalist.read_authors", _is_federalist, options=True)
_add("hub", "hub.read_hub", _is_data_set, options=True)
_add("pairs", "parallel.read_pairs", _named("?*.enc", "?*.dec", inside=["[!.]*.enc", "[!.]*.dec"]))
_add(
    "penn-treebank",
    "text.read_penn_treebank",
    _named(inside=["ptb*.train.txt", "ptb*.valid.txt", "ptb*.test.txt"]),
)
_add(
    "sated",
    "parallel.read_languages",
    _named("?*.usr", inside=["*.usr", "[!-][!-]-[!-][!-]/*.usr"], beside=".usr"),
    options=True,
)
_add("wikitext", "text.read_wikitext", _named("?*.tokens", "?*.raw", inside=["[!.]*.tokens"]))
_add("reddit", "dialogue.read_reddit", _is_reddit, stage=ROWS)
_add("ubuntu-irc", "dialogue.read_ubuntu_irc", _is_chat, stage=ROWS)
_add("table", "tables.read_tables", _ending_in(TABLES, TABLES), stage=TABLE, options=True)
_add("text", "text.read_texts", _ending_in(TEXTS, TEXTS[:2]), stage=TEXT)
_add("newsgroups", "text.read_newsgroups", _is_newsgroup, stage=MESSAGES)


# Lines and files.


def lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, as a stream; gzip when the name ends in `.gz`.

    Raises:
        DataError: the file is missing, cut short, or not UTF-8 (with the line and the byte).
    """
    for number, line in enumerate(raw_lines(path), start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}, line {number}, byte {error.start + 1} (0x{line[error.start]:02x}): not "
                "UTF-8",
                remedy="Convert the file, for example with `iconv -f latin1 -t utf-8`.",
            ) from error


def raw_lines(path: Path) -> Iterator[bytes]:
    """The undecoded lines of a file, gzip or not.

    Raises:
        DataError: the file is missing, unreadable or cut short; a line is longer than
            `LONGEST_LINE`, or all of them are more than memory holds.
    """
    existing(path)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            rows = iter(partial(file.readline, LONGEST_LINE + 1), b"")
            for number, line in enumerate(within_memory(rows, len, path), start=1):
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
        raise DataError(
            f"{path} cannot be read: {error.strerror}", remedy="Check its permissions."
        ) from error


def within_memory(parts: Iterable[T], size: Callable[[T], int], path: Path) -> Iterator[T]:
    """The parts of a file as long as memory holds them: a small file can unpack to any size.

    Raises:
        DataError: they have more bytes than are free.
    """
    room, used = free_memory(), 0
    for part in parts:
        used += size(part)
        if used > room:
            raise DataError(
                f"{path} has more than {room:,} bytes of text, too many for memory",
                remedy="Split the file.",
            )
        yield part


def existing(path: Path) -> Path:
    """The path, if a file is there.

    Raises:
        DataError: there is nothing, or a folder, a pipe or a device, which may have no end.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file", remedy="Pass a file in it.")
    if not path.exists():
        raise DataError(f"{path} does not exist", remedy="Check the path.")
    require_regular(path, error=DataError, remedy="Write its output to a file first.")
    return path


def not_empty(corpus: Corpus, source: object) -> Corpus:
    """The corpus; DataError if it has no documents."""
    if not len(corpus):
        raise DataError(f"{source} has no text", remedy="Pass a file or folder with documents.")
    return corpus


def ending(path: Path) -> str:
    """The ending of a name that says the format, `.gz` left aside."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix


def fitting(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a folder whose names have one of the endings, in order; hidden ones left out."""
    entries = (entry for entry in sorted(folder.iterdir()) if not entry.name.startswith("."))
    return [entry for entry in entries if entry.is_file() and ending(entry) in suffixes]


def files_of(source: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """One file, or the files of a folder that have one of the endings, in order.

    Raises:
        DataError: the folder has no such file.
    """
    files = fitting(source, suffixes) if source.is_dir() else [source]
    if not files:
        raise DataError(
            f"{source} has no file ending in {', '.join(filter(None, suffixes))}",
            remedy="Pass a file, or a folder with such files.",
        )
    return files
