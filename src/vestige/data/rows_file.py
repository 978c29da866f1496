"""Rows of a Parquet file as plain dictionaries, bounded by memory.

A Parquet file says in its footer how much it holds; a few kilobytes can stand for a terabyte. So
the footer is asked first, and only plain types are read: truth values, numbers, texts, and lists
and objects of these.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vestige.data.regular_file import require_regular
from vestige.errors import VestigeError

MOST_VALUES = 2**27
"""Cells of a table that are read; a result has a few thousand."""
MOST_BYTES = 2**31
"""Bytes of a table in memory, as its footer says them."""
_DEEPEST = 8


def read_rows(path: Path, *, error: type[VestigeError], remedy: str) -> list[dict[str, Any]]:
    """The rows of a table.

    Raises:
        VestigeError: of the type given; the file is missing, no ordinary file, damaged or too
            large, or has a column of another type.
    """
    require_regular(path, error=error, remedy=remedy)
    try:
        with pq.ParquetFile(path) as file:
            _require_bounded(file)
            for field in file.schema_arrow:
                _require_plain(field.type, _DEEPEST)
            table = file.read()
            if table.num_rows != file.metadata.num_rows:
                raise ValueError("its footer states another number of rows")
            if len(set(table.column_names)) < table.num_columns:
                raise ValueError("two of its columns have one name")
            rows: list[dict[str, Any]] = table.to_pylist()
            return rows
    except (OSError, pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
        raise error(f"{path} cannot be read: {problem}", remedy=remedy) from problem


def _require_bounded(file: pq.ParquetFile) -> None:
    facts = file.metadata
    groups = [facts.row_group(place) for place in range(facts.num_row_groups)]
    size = sum(max(0, group.total_byte_size) for group in groups)
    if facts.num_rows * max(1, facts.num_columns) > MOST_VALUES or size > MOST_BYTES:
        raise ValueError(
            f"it has {facts.num_rows:,} rows of {facts.num_columns:,} columns, {size:,} bytes: "
            "too large for a result"
        )


def _require_plain(kind: pa.DataType, depth: int) -> None:
    if depth and pa.types.is_list(kind):
        _require_plain(kind.value_type, depth - 1)
    elif depth and pa.types.is_struct(kind):
        for inner in kind:
            _require_plain(inner.type, depth - 1)
    elif not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_null(kind)
    ):
        raise ValueError(f"a column of it has the type {str(kind)[:60]}")
