"""CSV files, read by Arrow; errors name the row and quote nothing."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from vestige.data.text_file import lines
from vestige.errors import DataError

BLOCK = 1 << 24
"""Bytes that are parsed at once; a row must fit."""

_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_NAME = re.compile(r"[^\W\d][\w.:/-]{0,39}")


def check_columns(wanted: Sequence[str], there: Sequence[str], source: str) -> None:
    missing = [column for column in wanted if column not in there]
    if missing:
        raise DataError(
            f'{source} has no column "{missing[0]}"',
            remedy=f"Pass one of its columns: {', '.join(there) or 'none'}.",
        )


def read_csv(path: Path, columns: Sequence[str]) -> pa.Table:
    types = {column: pa.large_string() for column in columns}
    with _csv_errors(path):
        _check_header(_csv_header(path), columns, path)
        with pa.input_stream(str(path), compression="detect") as stream:
            return pyarrow.csv.read_csv(
                stream,
                _reading(),
                _delimited(path),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=list(columns), column_types=types
                ),
            )


def _reading() -> pyarrow.csv.ReadOptions:
    # With threads Arrow would not know the number of a faulty row.
    return pyarrow.csv.ReadOptions(block_size=BLOCK, use_threads=False)


def _delimited(path: Path) -> pyarrow.csv.ParseOptions:
    header = next(lines(path), "")
    if not header.strip():
        raise DataError(f"{path} has no header line", remedy="Write the column names on line 1.")
    delimiter = "\t" if ".tsv" in path.suffixes else max(",;\t|", key=header.count)
    return pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def _csv_header(path: Path) -> list[str]:
    parse = _delimited(path)
    with pa.input_stream(str(path), compression="detect") as stream:
        return list(pyarrow.csv.open_csv(stream, _reading(), parse).schema.names)


def first_of_csv(path: Path) -> pa.RecordBatch | None:
    """The first block of a CSV file with all columns as text; None without rows.

    Raises:
        DataError: the file, or a row of the block, is no valid CSV.
    """
    with _csv_errors(path):
        names = _csv_header(path)
        options = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        with pa.input_stream(str(path), compression="detect") as stream:
            reader = pyarrow.csv.open_csv(stream, _reading(), _delimited(path), options)
            return next(iter(reader), None)


@contextmanager
def _csv_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        for _ in lines(path):  # raises with the line, where the text or the compression is at fault
            pass
        raise DataError(
            f"{path}: invalid CSV: {_in_csv(error)}",
            remedy="Fix the row; quote text with delimiters or line ends.",
        ) from error


def _in_csv(error: Exception) -> str:
    """What is wrong with a CSV file; Arrow's own message quotes the row."""
    found = _RAGGED.search(str(error))
    if found is None:
        return "Arrow cannot parse it"
    row, expected, there = found.groups()
    return f"row {row} has {there} fields; line 1 has {expected}"


def _check_header(there: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    """Refuse a CSV file without the columns; a first row of text is no list of their names."""
    if set(wanted) <= set(there) or all(map(_NAME.fullmatch, there)):
        check_columns(wanted, there, str(path))
        return
    missing = next(column for column in wanted if column not in there)
    raise DataError(
        f'{path} has no column "{missing}"; line 1 has {len(there)} other fields',
        remedy="Write the column names on line 1, or pass one of them.",
    )
