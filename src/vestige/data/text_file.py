"""Lines of UTF-8 files, gzip when the name ends in `.gz`, with errors that name the line."""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path

from vestige.data.corpus import Corpus
from vestige.data.files import require_regular
from vestige.errors import DataError
from vestige.memory import free_memory

LONGEST_LINE = 2**26
"""Bytes of a line: ten times the Bible."""


def lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, as a stream.

    Raises:
        DataError: the file is missing, cut short, or not UTF-8 (with the line and the byte).
    """
    number = 0
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
            yield from _bounded(file, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path} is incomplete or not a gzip file: {error}",
            remedy="Download or compress it again; `gzip -t` tests it.",
        ) from error
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", remedy="Check its permissions."
        ) from error


def _bounded(file: gzip.GzipFile | BufferedReader, path: Path) -> Iterator[bytes]:
    """The lines of an open file; a few kilobytes of gzip can stand for any number of them."""
    room, read, number = free_memory(), 0, 0
    while line := file.readline(LONGEST_LINE + 1):
        number, read = number + 1, read + len(line)
        if len(line) > LONGEST_LINE:
            raise DataError(
                f"{path}, line {number}: more than {LONGEST_LINE:,} bytes",
                remedy="Write one document per line; `fold` breaks lines.",
            )
        if read > room:
            raise DataError(
                f"{path} has more than {room:,} bytes of text, too many for memory",
                remedy="Split the file.",
            )
        yield line


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
    """The corpus, if it has documents.

    Raises:
        DataError: it has none.
    """
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


def parallel_lines(files: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    """Lines of the same number of all files, stripped.

    Blank lines at the files' ends are ignored.

    Args:
        files: of one folder.

    Raises:
        DataError: a file is missing, no UTF-8, or has other lines than the others.
    """
    columns = [[line.strip() for line in lines(file)] for file in files]
    wanted = max(map(_filled, columns))
    if any(len(column) < wanted for column in columns):
        counts = [_filled(column) for column in columns]
        said = ", ".join(f"{file.name} {count}" for file, count in zip(files, counts, strict=True))
        raise DataError(
            f"{files[0].parent}: the files have different numbers of lines ({said}); line "
            f"{min(counts) + 1} is missing in one",
            remedy="Line n of each file must belong together; download or write them again.",
        )
    return zip(*(column[:wanted] for column in columns), strict=True)


def _filled(column: Sequence[str]) -> int:
    """Number of the last line that is not blank."""
    return max((number for number, line in enumerate(column, start=1) if line), default=0)
