"""Tables: JSON lines, CSV and Parquet files, and data sets of the Hugging Face hub.

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
from vestige.data.files import within_memory
from vestige.data.formats.reading import (
    CORPUS_FORMATS,
    TABLE,
    TABLES,
    CorpusFormat,
    ReadOptions,
    by_ending,
    by_name,
    ending,
    existing_file,
    first_line,
    lines,
    require_documents,
    source_files,
)
from vestige.errors import DataError, reason

Row = dict[str, Any]

_JSON, _DELIMITED = (".jsonl", ".ndjson", ".json"), (".csv", ".tsv")
BLOCK = 1 << 24
"""Bytes that are parsed at once; a JSON object or a row of a CSV file must fit."""
_PARQUET_ROWS = 1024  # read at once
_NULL_ROW, _OVERLAP = re.compile(rb"\n\s*null\b"), 4096
_RAGGED_ROW = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_COLUMN_NAME = re.compile(r"[^\W\d][\w.:/-]{0,39}")
_HUB_NAME = re.compile(r"(?P<name>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<config>[^:]+))?(?::(?P<split>.+))?")


def read_table(
    path: str | Path,
    *,
    text_column: str = "text",
    user_column: str | None = None,
    label_column: str | None = None,
    source_column: str | None = None,
) -> Corpus:
    """The documents of one table, gzip too; its name says the format.

    Rows with blank text or a blank source are left out; a row without a user belongs to the
    user "".

    Args:
        path: a `.jsonl`, `.json` (an object a line), `.csv`, `.tsv` or `.parquet` file.
        text_column, user_column, label_column, source_column: columns of the corpus.
    """
    path = existing_file(path)
    columns = _corpus_columns(
        text=text_column, user=user_column, label=label_column, source=source_column
    )
    table = _read_columns(path, list(dict.fromkeys(columns.values())))
    return _corpus_from(table, columns, str(path))


def _read_tables(source: str, options: ReadOptions) -> Corpus:
    parts = [
        read_table(
            file,
            text_column=options.text_column,
            user_column=options.user_column,
            source_column=options.source_column,
        )
        for file in source_files(Path(source), TABLES)
    ]
    return Corpus.concatenate(parts)


CORPUS_FORMATS.add(
    "table", CorpusFormat(read=_read_tables, detect=by_ending(TABLES, TABLES), stage=TABLE)
)


def located_rows(path: str | Path, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """The rows of a table, each with its location for messages."""
    path = existing_file(path)
    if ending(path) in _JSON:
        for where, row in _json_rows(path):
            _check_columns(columns, list(row), where)
            yield where, row
        return
    below = " below the header" if ending(path) in _DELIMITED else ""
    number = 0
    for batch in _read_columns(path, columns).to_batches(max_chunksize=1000):
        for row in batch.to_pylist():
            number += 1
            yield f"{path}, row {number}{below}", row


def first_rows(path: str | Path, most: int = 100) -> list[Row]:
    """At most `most` first rows with all their columns; no more of the file is read."""
    path = existing_file(path)
    if ending(path) in _JSON:
        return [row for _, row in islice(_json_rows(path), most)]
    batches = _csv_batches(path) if ending(path) in _DELIMITED else _parquet_batches(path, most)
    return [row for batch in islice(batches, 1) for row in batch.slice(0, most).to_pylist()]


# Corpora from columns


def _corpus_columns(**columns: str | None) -> dict[str, str]:
    """The table's column for each column that the corpus will have."""
    return {name: column for name, column in columns.items() if column is not None}


def _corpus_from(table: pa.Table, columns: dict[str, str], source: str) -> Corpus:
    _check_columns(list(columns.values()), table.column_names, source)
    texts = {name: _as_text(table[column], column, source) for name, column in columns.items()}
    if nulls := texts["text"].null_count:
        row = pc.index(pc.is_null(texts["text"]), True).as_py() + 1
        raise DataError(
            f'{source}: {nulls} rows have no "{columns["text"]}"; the first is row {row}',
            remedy="Fill them in or remove them, or pass another --text column.",
        )
    rows = pa.table({name: pc.fill_null(values, "") for name, values in texts.items()})
    for name in {"text", "source"} & texts.keys():
        rows = rows.filter(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(rows[name])), 0))
    return require_documents(Corpus(rows), source)


def _as_text(values: pa.ChunkedArray, column: str, source: str) -> pa.ChunkedArray:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.type not in (pa.string(), pa.large_string(), pa.string_view(), pa.null()):
        raise DataError(
            f'{source}: column "{column}" has type {values.type}, not text',
            remedy="Choose another column, or convert this one to strings.",
        )
    return values.cast(pa.large_string())


def _check_columns(wanted: Sequence[str], present: Sequence[str], source: str) -> None:
    missing = [column for column in wanted if column not in present]
    if missing:
        raise DataError(
            f'{source} has no column "{missing[0]}"',
            remedy=f"Pass one of its columns: {', '.join(present) or 'none'}.",
        )


def _read_columns(path: Path, columns: Sequence[str]) -> pa.Table:
    suffix = ending(path)
    if suffix in _JSON:
        return _read_json(path, columns)
    if suffix in _DELIMITED:
        parts = list(_csv_batches(path, columns))
        types = [(column, pa.large_string()) for column in columns]
        return pa.Table.from_batches(parts, parts[0].schema if parts else pa.schema(types))
    if suffix == ".parquet":
        with _parquet_errors(path), pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
        _check_columns(columns, schema.names, str(path))
        # Without dictionaries, so that the size counts each copy of a repeated text.
        batches = (
            _without_dictionaries(batch) for batch in _parquet_batches(path, _PARQUET_ROWS, columns)
        )
        with _parquet_errors(path):
            parts = list(within_memory(batches, lambda batch: int(batch.nbytes), path))
            empty = pa.schema([schema.field(column) for column in columns]).empty_table()
            table = pa.concat_tables(parts) if parts else empty
            table.validate(full=True)
        return table
    raise DataError(
        f"the name of {path} ends in no known table format",
        remedy=f"Use one of {', '.join(TABLES)}, or pass --format.",
    )


# JSON lines


def _read_json(path: Path, columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([(column, pa.large_string()) for column in columns])
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        if _has_null_rows(path):
            return _read_json_by_line(path, columns)
        with pa.input_stream(str(path), compression="detect") as stream:
            block = pyarrow.json.ReadOptions(block_size=BLOCK)
            table = pyarrow.json.read_json(stream, block, parse)
        table.validate(full=True)
        complete = all(table[column].null_count < len(table) for column in columns)
    except (OSError, pa.ArrowInvalid):
        complete = False
    # Arrow names no line and reads a missing column as nulls: read again to find the fault.
    return table if complete else _read_json_by_line(path, columns)


def _has_null_rows(path: Path) -> bool:
    """Whether a line may be just null: Arrow crashes on a block that begins with one."""
    previous_end = b"\n"
    with pa.input_stream(str(path), compression="detect") as stream:
        while block := stream.read(BLOCK):
            if _NULL_ROW.search(previous_end + block):
                return True
            previous_end = block[-_OVERLAP:]
    return False


def _read_json_by_line(path: Path, columns: Sequence[str]) -> pa.Table:
    values: dict[str, list[str | None]] = {column: [] for column in columns}
    present: set[str] = set()
    for where, row in _json_rows(path):
        present.update(row)
        for column in columns:
            value = row.get(column)
            if not isinstance(value, str | None):
                raise DataError(
                    f'{where}: "{column}" is {type(value).__name__}, not text',
                    remedy="Choose another column, or convert its values to text.",
                )
            values[column].append(value)
    if present:  # an empty file is reported later
        _check_columns(columns, sorted(present), str(path))
    return pa.table({c: pa.array(v, pa.large_string()) for c, v in values.items()})


def _json_rows(path: Path) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        remedy = "Fix or remove the line; every line must be one JSON object (`jq -c '.[]'`)."
        try:
            row = json.loads(line)
            json.dumps(row, ensure_ascii=False).encode()  # refuses lone surrogates
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: invalid JSON: {reason(error)}", remedy=remedy) from error
        if not isinstance(row, dict):
            raise DataError(
                f"{where}: {type(row).__name__} instead of a JSON object", remedy=remedy
            )
        yield where, row


# Parquet


def _parquet_batches(
    path: Path, size: int, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    with _parquet_errors(path), pyarrow.parquet.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=size, columns=columns and list(columns))


def _without_dictionaries(batch: pa.RecordBatch) -> pa.Table:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, values in columns.items():
        if pa.types.is_dictionary(values.type):
            columns[name] = values.dictionary_decode()
    return pa.table(columns)


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        message = re.sub(r"'[^']*'|\"[^\"]*\"", "…", str(error))  # a quotation may be text
        raise DataError(
            f"{path}: invalid Parquet: {message.partition(chr(10))[0]}",
            remedy="Download or write it again.",
        ) from error


# CSV


def _csv_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Columns of a CSV file (None: all) as text."""
    # With threads, Arrow does not report the number of a faulty row.
    read = pyarrow.csv.ReadOptions(block_size=BLOCK, use_threads=False)
    try:
        parse = _parse_options(path)
        with pa.input_stream(str(path), compression="detect") as stream:
            header = list(pyarrow.csv.open_csv(stream, read, parse).schema.names)
        _check_header(header, columns or header, path)
        types = dict.fromkeys(columns or header, pa.large_string())
        convert = pyarrow.csv.ConvertOptions(include_columns=columns, column_types=types)
        with pa.input_stream(str(path), compression="detect") as stream:
            yield from pyarrow.csv.open_csv(stream, read, parse, convert)
    except (OSError, pa.ArrowInvalid) as error:
        for _ in lines(path):  # names the line of a fault in the encoding or the compression
            pass
        ragged = _RAGGED_ROW.search(str(error))
        problem = "Arrow cannot parse it"
        if ragged is not None:
            problem = f"row {ragged[1]} has {ragged[3]} fields; line 1 has {ragged[2]}"
        raise DataError(
            f"{path}: invalid CSV: {problem}",
            remedy="Fix the row; quote text with delimiters or line ends.",
        ) from error


def _parse_options(path: Path) -> pyarrow.csv.ParseOptions:
    header = first_line(path)
    if not header.strip():
        raise DataError(f"{path} has no header line", remedy="Write the column names on line 1.")
    delimiter = "\t" if ".tsv" in path.suffixes else max(",;\t|", key=header.count)
    return pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def _check_header(header: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    """Refuse a CSV file without the columns; a first line of text is not quoted."""
    if set(wanted) <= set(header) or all(map(_COLUMN_NAME.fullmatch, header)):
        _check_columns(wanted, header, str(path))
        return
    missing = next(column for column in wanted if column not in header)
    raise DataError(
        f'{path} has no column "{missing}"; line 1 has {len(header)} other fields',
        remedy="Write the column names on line 1, or pass one of them.",
    )


# The Hugging Face hub


def read_hub(name: str, options: ReadOptions) -> Corpus:
    """A data set of the Hugging Face hub, or one that `datasets` saved to disk.

    Args:
        name: "owner/name", optionally with "@configuration" and ":split" (":train" otherwise),
            or the folder of a saved data set.
        options: columns, and the number of rows to fetch.
    """
    columns = _corpus_columns(
        text=options.text_column, user=options.user_column, source=options.source_column
    )
    data = _load_data_set(name, options.limit)
    wanted = list(dict.fromkeys(columns.values()))
    _check_columns(wanted, data.column_names, name)
    return _corpus_from(data.select_columns(wanted).with_format("arrow")[:], columns, name)


def _load_data_set(name: str, limit: int | None) -> Any:
    import datasets  # takes seconds

    match = _HUB_NAME.fullmatch(name)
    try:
        if Path(name).is_dir():
            data = datasets.load_from_disk(name)
            data = data["train"] if isinstance(data, datasets.DatasetDict) else data
            return data if limit is None else data.select(range(min(limit, len(data))))
        if match is None:
            raise ValueError('the name is not of the form "owner/name@configuration:split"')
        split = match["split"] or "train"
        if limit is not None:
            split = f"{split}[:{limit}]"
        return datasets.load_dataset(match["name"], match["config"], split=split)
    except Exception as error:  # anything from the network, the hub or the files
        raise DataError(
            f"{name} is no file here, and no data set that can be fetched: "
            f"{str(error).splitlines()[0] if str(error) else error!r}",
            remedy="Check the path, the name of the data set, its split and the network.",
        ) from error


_is_data_set = by_name(
    inside=("state.json", "dataset_dict.json"),
    source_name=r"[\w-][\w.-]*/[\w.-]+(@[^:/]+)?(:.+)?",
)
CORPUS_FORMATS.add("hub", CorpusFormat(read=read_hub, detect=_is_data_set))
