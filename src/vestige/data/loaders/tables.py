"""Tables: JSON lines, CSV and Parquet files.

Local files are read by Arrow, straight into its own memory. Where Arrow stumbles, JSON lines
are read once more, a line at a time, to say which line is at fault.
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
import pyarrow.json
import pyarrow.parquet

from vestige.data.corpus import Corpus
from vestige.data.loaders.delimited import check_columns as check_columns
from vestige.data.loaders.delimited import first_of_csv, read_csv
from vestige.data.loaders.registry import (
    CORPUS_FORMATS,
    TABLE,
    CorpusFormat,
    ReadOptions,
    read_files,
)
from vestige.data.text_file import ending, existing, fitting, lines, not_empty
from vestige.errors import DataError, reason
from vestige.memory import free_memory

_JSON = (".jsonl", ".ndjson", ".json")
_DELIMITED = (".csv", ".tsv")
SUFFIXES = (*_JSON, *_DELIMITED, ".parquet")
_ROWS = 1024  # of a Parquet file, read at once
_SHOWN = 100  # rows that show what columns hold
_BLOCK = 1 << 24  # a JSON object must fit into one block
_NULL_ROW, _OVERLAP = re.compile(rb"\n\s*null\b"), 4096


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
        text_column: holds the documents.
        user_column: says whose each document is.
        label_column: gives each document's class.
        source_column: holds what each document answers or translates.

    Raises:
        DataError: naming file, line or column, and the columns that there are.
    """
    path = existing(Path(path))
    wanted = named_columns(
        text=text_column, user=user_column, label=label_column, source=source_column
    )
    return corpus_of(_table(path, list(wanted.values())), wanted, str(path))


def rows(path: str | Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file whose name says its format, each with words for where it stands.

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


def table_files(source: str | Path) -> list[Path]:
    """The files of a file or folder that is read as a plain table; none of any other format."""
    path, options = Path(source), ReadOptions()
    earlier = (one for one in CORPUS_FORMATS.values() if one.stage < TABLE)
    if not _recognised(path) or any(one.recognised(str(source), options) for one in earlier):
        return []
    return fitting(path, SUFFIXES) if path.is_dir() else [path]


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
        batch = first_of_csv(path)
    else:
        with _parquet_errors(path), pyarrow.parquet.ParquetFile(path) as file:
            batch = next(file.iter_batches(batch_size=most), None)
            return [] if batch is None else batch.to_pylist()
    return [] if batch is None else batch.slice(0, most).to_pylist()


def first_row(source: str) -> dict[str, Any]:
    """The first object of JSON lines, in a file or a folder's first table; else nothing."""
    path = Path(source)
    if path.is_dir():
        path = next(iter(fitting(path, SUFFIXES)), path)
    if not path.is_file() or ending(path) not in (".jsonl", ".json"):
        return {}
    try:
        row = json.loads(next(lines(path), ""))
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


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


def _table(path: Path, columns: Sequence[str]) -> pa.Table:
    suffix = ending(path)
    if suffix in _JSON:
        return _read_json(path, columns)
    if suffix in _DELIMITED:
        return read_csv(path, columns)
    if suffix == ".parquet":
        return _read_parquet(path, columns)
    raise DataError(
        f"the name of {path} ends in no known table format",
        remedy=f"Use one of {', '.join(SUFFIXES)}, or pass --format.",
    )


def _read_json(path: Path, columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([(column, pa.large_string()) for column in columns])
    try:
        if _has_null_rows(path):
            return _read_json_slowly(path, columns)
        with pa.input_stream(str(path), compression="detect") as stream:
            table = pyarrow.json.read_json(
                stream,
                pyarrow.json.ReadOptions(block_size=_BLOCK),
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
        while block := stream.read(_BLOCK):
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
            table = _in_batches(file, columns, path)
        table.validate(full=True)
    return table


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(
            f"{path}: invalid Parquet: {_in_parquet(error)}",
            remedy="Download or write it again.",
        ) from error


def _in_batches(file: pyarrow.parquet.ParquetFile, columns: Sequence[str], path: Path) -> pa.Table:
    """Some columns, as long as memory holds them: a text that repeats takes no room in a file."""
    room, size, found = free_memory(), 0, list[pa.Table]()
    for batch in file.iter_batches(batch_size=_ROWS, columns=list(columns)):
        whole = {column: _plain(batch.column(column)) for column in columns}
        found.append(pa.table(whole))
        size += found[-1].nbytes
        if size > room:
            raise DataError(
                f"{path} has more than {room:,} bytes of text, too many for memory",
                remedy="Split the file.",
            )
    empty = {column: pa.array([], file.schema_arrow.field(column).type) for column in columns}
    return pa.concat_tables(found) if found else pa.table(empty)


def _plain(column: pa.Array) -> pa.Array:
    """A column without a dictionary, so that its size is that of its texts."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _in_parquet(error: Exception) -> str:
    """What Arrow says of a Parquet file, on one line and without what it may quote."""
    return re.sub(r"'[^']*'|\"[^\"]*\"", "…", str(error)).partition("\n")[0]


def named_columns(**columns: str | None) -> dict[str, str]:
    """The columns that are wanted, by what they hold."""
    return {name: column for name, column in columns.items() if column is not None}


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


def _read(source: str, options: ReadOptions) -> Corpus:
    def read(file: Path) -> Corpus:
        return read_table(
            file,
            text_column=options.text_column,
            user_column=options.user_column,
            source_column=options.source_column,
        )

    return read_files(source, SUFFIXES, read)


def _recognised(path: Path) -> bool:
    if path.is_dir():
        return bool(fitting(path, SUFFIXES))
    return path.exists() and ending(path) in SUFFIXES


CORPUS_FORMATS.add(
    "table",
    CorpusFormat(read=_read, recognised=lambda source, _: _recognised(Path(source)), stage=TABLE),
)
