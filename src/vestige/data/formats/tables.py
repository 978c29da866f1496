"""Tables: JSON lines, CSV and Parquet files.

Files are read by Arrow, straight into its own memory. If Arrow fails, JSON lines are read once
more, a line at a time, to name the line at fault. Messages quote nothing of a row.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from vestige.data.corpus import Corpus
from vestige.data.formats.reading import (
    TABLES,
    ReadOptions,
    ending,
    existing,
    files_of,
    lines,
    not_empty,
    within_memory,
)
from vestige.errors import DataError, reason

_JSON = (".jsonl", ".ndjson", ".json")
_DELIMITED = (".csv", ".tsv")
BLOCK = 1 << 24
"""Bytes that are parsed at once; a JSON object or a row of a CSV file must fit."""
_ROWS = 1024  # of a Parquet file, read at once
_SHOWN = 100  # rows that show what columns hold
_NULL_ROW, _OVERLAP = re.compile(rb"\n\s*null\b"), 4096
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_NAME = re.compile(r"[^\W\d][\w.:/-]{0,39}")


def read_table(
    path: str | Path,
    *,
    text_column: str = "text",
    user_column: str | None = None,
    label_column: str | None = None,
    source_column: str | None = None,
) -> Corpus:
    """The rows of a file whose name says its format, gzip too.

    Rows with blank text or a blank source are left out; a row without a user belongs to the
    user "".

    Args:
        path: a `.jsonl`, `.json` (an object a line), `.csv`, `.tsv` or `.parquet` file.
        text_column: the documents.
        user_column: the user of each document.
        label_column: the class of each document.
        source_column: what each document answers or translates.

    Raises:
        DataError: naming file, line or column, and the columns that there are.
    """
    path = existing(Path(path))
    wanted = named_columns(
        text=text_column, user=user_column, label=label_column, source=source_column
    )
    return corpus_of(_table(path, list(wanted.values())), wanted, str(path))


def read_tables(source: str, options: ReadOptions) -> Corpus:
    """A table, or all tables of a folder."""
    parts = [
        read_table(
            file,
            text_column=options.text_column,
            user_column=options.user_column,
            source_column=options.source_column,
        )
        for file in files_of(Path(source), TABLES)
    ]
    return Corpus.concatenate(parts)


def rows(path: str | Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file whose name says its format, each with its place for messages.

    Args:
        path: a file as for `read_table`.
        columns: required in every row.

    Raises:
        DataError: naming file, line or row, and the column that is missing.
    """
    path = existing(Path(path))
    if ending(path) in _JSON:
        for where, row in _json_rows(path):
            check_columns(columns, list(row), where)
            yield where, row
        return
    below = " below the header" if ending(path) in _DELIMITED else ""
    number = 0
    for batch in _table(path, columns).to_batches(max_chunksize=1000):
        for row in batch.to_pylist():
            number += 1
            yield f"{path}, row {number}{below}", row


def first_rows(path: str | Path, most: int = _SHOWN) -> list[dict[str, Any]]:
    """The first rows of a file with all their columns. No more of the file is read.

    Args:
        path: a file as for `read_table`; values of a CSV file are text.
        most: rows.

    Raises:
        DataError: naming the file, and the line if one of these rows is at fault.
    """
    path = existing(Path(path))
    if ending(path) in _JSON:
        return [row for _, row in islice(_json_rows(path), most)]
    if ending(path) in _DELIMITED:
        batch = _first_of_csv(path)
    else:
        with _parquet_errors(path), pyarrow.parquet.ParquetFile(path) as file:
            batch = next(file.iter_batches(batch_size=most), None)
            return [] if batch is None else batch.to_pylist()
    return [] if batch is None else batch.slice(0, most).to_pylist()


def corpus_of(table: pa.Table, columns: dict[str, str], source: str) -> Corpus:
    """A corpus from the named columns of a table.

    Args:
        table: as read.
        columns: the table's column for each of "text", "user", "label" and "source".
        source: name for messages.

    Raises:
        DataError: a column is missing, holds no text, or the text has nulls.
    """
    check_columns(list(columns.values()), table.column_names, source)
    made = pa.table({name: _text(table, column, source) for name, column in columns.items()})
    if nulls := made["text"].null_count:
        row = pc.index(pc.is_null(made["text"]), True).as_py() + 1
        raise DataError(
            f'{source}: {nulls} rows have no "{columns["text"]}"; the first is row {row}',
            remedy="Fill them in or remove them, or pass another --text column.",
        )
    for name in made.column_names[1:]:
        filled = pc.fill_null(made[name], "")
        made = made.set_column(made.column_names.index(name), name, filled)
    for name in ("text", "source"):
        if name in made.column_names:
            made = made.filter(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(made[name])), 0))
    return not_empty(Corpus(made), source)


def named_columns(**columns: str | None) -> dict[str, str]:
    """The columns that are wanted, by what they hold."""
    return {name: column for name, column in columns.items() if column is not None}


def check_columns(wanted: Sequence[str], there: Sequence[str], source: str) -> None:
    missing = [column for column in wanted if column not in there]
    if missing:
        raise DataError(
            f'{source} has no column "{missing[0]}"',
            remedy=f"Pass one of its columns: {', '.join(there) or 'none'}.",
        )


def _text(table: pa.Table, column: str, source: str) -> pa.ChunkedArray:
    values = table[column]
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    text_types = (pa.string(), pa.large_string(), pa.string_view(), pa.null())
    if values.type not in text_types:
        raise DataError(
            f'{source}: column "{column}" has type {values.type}, not text',
            remedy="Choose another column, or convert this one to strings.",
        )
    return values.cast(pa.large_string())


def _table(path: Path, columns: Sequence[str]) -> pa.Table:
    suffix = ending(path)
    if suffix in _JSON:
        return _read_json(path, columns)
    if suffix in _DELIMITED:
        return _read_csv(path, columns)
    if suffix == ".parquet":
        return _read_parquet(path, columns)
    raise DataError(
        f"the name of {path} ends in no known table format",
        remedy=f"Use one of {', '.join(TABLES)}, or pass --format.",
    )


def _read_json(path: Path, columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([(column, pa.large_string()) for column in columns])
    try:
        if _has_null_rows(path):
            return _read_json_slowly(path, columns)
        with pa.input_stream(str(path), compression="detect") as stream:
            table = pyarrow.json.read_json(
                stream,
                pyarrow.json.ReadOptions(block_size=BLOCK),
                pyarrow.json.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior="ignore"
                ),
            )
        table.validate(full=True)
        whole = all(table[column].null_count < len(table) for column in columns)
    except (OSError, pa.ArrowInvalid):
        whole = False
    # Arrow names no line and takes a missing column for nulls: read again to say what is wrong.
    return table if whole else _read_json_slowly(path, columns)


def _has_null_rows(path: Path) -> bool:
    """Whether a line may be null and nothing else: a block that begins so ends Arrow's process."""
    end = b"\n"
    with pa.input_stream(str(path), compression="detect") as stream:
        while block := stream.read(BLOCK):
            if _NULL_ROW.search(end + block):
                return True
            end = block[-_OVERLAP:]
    return False


def _read_json_slowly(path: Path, columns: Sequence[str]) -> pa.Table:
    values: dict[str, list[str | None]] = {column: [] for column in columns}
    seen: set[str] = set()
    for where, row in _json_rows(path):
        seen.update(row)
        for column in columns:
            value = row.get(column)
            if not isinstance(value, str | None):
                raise DataError(
                    f'{where}: "{column}" is {type(value).__name__}, not text',
                    remedy="Choose another column, or convert its values to strings.",
                )
            values[column].append(value)
    if seen:  # else the file is empty, which is said later
        check_columns(columns, sorted(seen), str(path))
    return pa.table({c: pa.array(v, pa.large_string()) for c, v in values.items()})


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
            json.dumps(row, ensure_ascii=False).encode()  # finds surrogates without a partner
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{where}: invalid JSON: {reason(error)}",
                remedy="Fix or remove the line; every line must be one JSON object.",
            ) from error
        if not isinstance(row, dict):
            raise DataError(
                f"{where}: {type(row).__name__} instead of a JSON object",
                remedy="Write one object per line, for example with `jq -c '.[]'`.",
            )
        yield where, row


def _read_parquet(path: Path, columns: Sequence[str]) -> pa.Table:
    with _parquet_errors(path):
        with pyarrow.parquet.ParquetFile(path) as file:
            check_columns(columns, file.schema_arrow.names, str(path))
            batches = file.iter_batches(batch_size=_ROWS, columns=list(columns))
            # Without dictionaries, in which a text that repeats takes no room.
            plain = (pa.table({c: _plain(batch.column(c)) for c in columns}) for batch in batches)
            parts = list(within_memory(plain, lambda part: int(part.nbytes), path))
            fields = [file.schema_arrow.field(column) for column in columns]
        table = pa.concat_tables(parts) if parts else pa.schema(fields).empty_table()
        table.validate(full=True)
    return table


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        quoted = re.sub(r"'[^']*'|\"[^\"]*\"", "…", str(error))  # which may be text
        raise DataError(
            f"{path}: invalid Parquet: {quoted.partition(chr(10))[0]}",
            remedy="Download or write it again.",
        ) from error


def _read_csv(path: Path, columns: Sequence[str]) -> pa.Table:
    types = {column: pa.large_string() for column in columns}
    with _csv_errors(path):
        _check_header(_csv_names(path), columns, path)
        options = pyarrow.csv.ConvertOptions(include_columns=list(columns), column_types=types)
        with pa.input_stream(str(path), compression="detect") as stream:
            return pyarrow.csv.read_csv(stream, _csv_block(), _delimiter(path), options)


def _first_of_csv(path: Path) -> pa.RecordBatch | None:
    """The first block of a CSV file with all columns as text; None without rows."""
    with _csv_errors(path):
        types = dict.fromkeys(_csv_names(path), pa.string())
        options = pyarrow.csv.ConvertOptions(column_types=types)
        with pa.input_stream(str(path), compression="detect") as stream:
            reader = pyarrow.csv.open_csv(stream, _csv_block(), _delimiter(path), options)
            return next(iter(reader), None)


def _csv_names(path: Path) -> list[str]:
    parse = _delimiter(path)
    with pa.input_stream(str(path), compression="detect") as stream:
        return list(pyarrow.csv.open_csv(stream, _csv_block(), parse).schema.names)


def _csv_block() -> pyarrow.csv.ReadOptions:
    # With threads Arrow would not know the number of a faulty row.
    return pyarrow.csv.ReadOptions(block_size=BLOCK, use_threads=False)


def _delimiter(path: Path) -> pyarrow.csv.ParseOptions:
    header = next(lines(path), "")
    if not header.strip():
        raise DataError(f"{path} has no header line", remedy="Write the column names on line 1.")
    delimiter = "\t" if ".tsv" in path.suffixes else max(",;\t|", key=header.count)
    return pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


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


@contextmanager
def _csv_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        for _ in lines(path):  # raises with the line, where the text or the compression is at fault
            pass
        ragged = _RAGGED.search(str(error))
        problem = "Arrow cannot parse it"
        if ragged is not None:
            problem = f"row {ragged[1]} has {ragged[3]} fields; line 1 has {ragged[2]}"
        raise DataError(
            f"{path}: invalid CSV: {problem}",
            remedy="Fix the row; quote text with delimiters or line ends.",
        ) from error
