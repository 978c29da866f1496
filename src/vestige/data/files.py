"""Records that anyone may have written, read with bounds: JSON, short lists, Parquet rows.

Pipes and devices are refused before they are opened, and large files before they are read. JSON is
checked against a pydantic model, Parquet against the size that its footer states. Messages name the
file and the field, never a value, since a value may be a secret.

Most readers take `error`, the class to raise, and `remedy`, what the user can do.
"""

import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from vestige.errors import DataError, VestigeError
from vestige.memory import free_memory

LARGEST: Final = 2**28  # bytes of JSON or of a list: four times a manifest of a million canaries
DEEPEST: Final = 32  # levels of nested JSON; our own files have at most six
MOST_VALUES, MOST_BYTES, DEEPEST_COLUMN = 2**27, 2**31, 8
"""Bounds of a result table: cells, bytes in memory, levels of nested lists in a column."""

Count = Annotated[int, Field(ge=0, le=2**53)]  # a float can hold it exactly, too
Seed = Annotated[int, Field(ge=0, lt=2**128)]
Name = Annotated[str, Field(min_length=1, max_length=10_000)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Schema(BaseModel):
    """JSON object with exactly these fields and strict types. Numbers are finite."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class Excerpt(Schema):
    """JSON object with at least these fields."""

    model_config = ConfigDict(extra="ignore")


class Measurements(Excerpt):
    """As `Excerpt`, with numbers that may be infinite."""

    model_config = ConfigDict(allow_inf_nan=True)


AnySchema = TypeVar("AnySchema", bound=Schema)
T = TypeVar("T")


class Fault(Exception):
    """A fault in a line or row. Its message quotes no text."""

    def at(self, where: object, remedy: str) -> DataError:
        """The error with the location."""
        return DataError(f"{where}: {self}", remedy=remedy)


# Bytes and short lists


def require_regular(path: Path, *, error: type[VestigeError], remedy: str) -> int:
    """Require an ordinary file, or a link to one; returns its size in bytes."""
    try:
        status = os.stat(path)
    except FileNotFoundError as problem:
        raise error(f"{path} is missing", remedy=remedy) from problem
    except (OSError, ValueError) as problem:  # a null byte in the name
        raise unreadable(path, problem, error, remedy) from problem
    if not stat.S_ISREG(status.st_mode):
        kind = _FILE_KINDS.get(stat.S_IFMT(status.st_mode), "no ordinary file")
        raise error(f"{path} is {kind}, not a file", remedy=remedy)
    return status.st_size


def read_bytes(path: Path, *, limit: int, error: type[VestigeError], remedy: str) -> bytes:
    """The content of an ordinary file of at most `limit` bytes."""
    if (size := require_regular(path, error=error, remedy=remedy)) > limit:
        raise error(f"{path} has {size:,} bytes; at most {limit:,} are expected", remedy=remedy)
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as problem:
        raise unreadable(path, problem, error, remedy) from problem


def unreadable(
    path: Path, problem: Exception, error: type[VestigeError], remedy: str
) -> VestigeError:
    """Error about a file that the system cannot read."""
    reason = getattr(problem, "strerror", None) or problem
    return error(f"{path} cannot be read: {reason}", remedy=remedy)


def read_lines(file: Path, *, item: str) -> list[str]:
    """The lines of a short UTF-8 file; `item` names the content of a line, such as "phrase"."""
    remedy = f"Pass a UTF-8 file with one {item} per line."
    content = read_bytes(file, limit=LARGEST, error=DataError, remedy=remedy)
    try:
        return content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: not UTF-8 at byte {error.start}: {error.reason}",
            remedy=f"Convert it with iconv. {remedy}",
        ) from error


def within_memory(parts: Iterable[T], size: Callable[[T], int], path: Path) -> Iterator[T]:
    """The parts of a file, which may unpack to any size; DataError if they exceed the memory."""
    available, used = free_memory(), 0
    for part in parts:
        used += size(part)
        if used > available:
            raise DataError(
                f"{path} has more than {available:,} bytes of text, too many for memory",
                remedy="Split the file.",
            )
        yield part


# JSON


def read_json(
    path: Path,
    schema: type[AnySchema],
    *,
    error: type[VestigeError],
    remedy: str,
    finite: bool = True,
) -> AnySchema:
    """Read a JSON object and check it against a schema; see `read_object`."""
    content = read_object(path, error=error, remedy=remedy, finite=finite)
    return conform(content, schema, path, error=error, remedy=remedy)


def read_object(
    path: Path, *, error: type[VestigeError], remedy: str, finite: bool = True
) -> dict[str, Any]:
    """Read a JSON object: different names, bounded depth, numbers of float64.

    `finite` refuses NaN and infinities, which a failed training may have written.
    """
    content = read_bytes(path, limit=LARGEST, error=error, remedy=remedy)
    return parse_object(content, path, error=error, remedy=remedy, finite=finite)


def parse_object(
    content: bytes, where: object, *, error: type[VestigeError], remedy: str, finite: bool = True
) -> dict[str, Any]:
    """Parse a JSON object as `read_object` does; `where` names file and line in messages."""

    def parse_constant(text: str) -> float:
        if finite:
            raise ValueError(f"{text} is not a JSON number")
        return float(text)

    try:
        value = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_require_unique_names,
            parse_constant=parse_constant,
        )
        _require_plain(value, finite=finite)
        if isinstance(value, dict):
            return value
        kind = _JSON_KINDS.get(type(value), "a number")
        fault = f"cannot be used: it is {kind}, not an object"
    except json.JSONDecodeError as problem:
        fault = f"is not JSON: {problem.msg} in line {problem.lineno}"
    except UnicodeDecodeError as problem:
        fault = f"is not UTF-8: byte {problem.start + 1:,} cannot be read"
    except ValueError as problem:
        fault = f"cannot be used: {problem}"
    except RecursionError:
        fault = f"cannot be used: {_TOO_DEEP}"
    raise error(f"{where} {fault}", remedy=remedy)


def conform(
    content: Mapping[str, Any],
    schema: type[T],
    where: object,
    *,
    error: type[VestigeError],
    remedy: str,
) -> T:
    """Check an object against a schema or dataclass; the error names the first invalid field."""
    try:
        checker = TypeAdapter(schema)
        if is_dataclass(schema):  # for which strict Python mode takes no mappings
            return checker.validate_json(json.dumps(content))
        return checker.validate_python(content)
    except ValidationError as problem:
        # Raised below: as a cause, it would carry the values into a traceback.
        first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
        more = problem.error_count() - 1
    fault = _describe_field(first["loc"], first["type"], first["msg"])
    others = f" ({more:,} more)" if more else ""
    raise error(f"{where} has unexpected content: {fault}{others}", remedy=remedy)


def to_json(value: object) -> str:
    """Strict JSON. NaN and infinities become null.

    Example:
        >>> print(to_json({"threshold": float("inf")}))
        {
          "threshold": null
        }
    """
    return json.dumps(plain(value, finite=True), indent=2, ensure_ascii=False, allow_nan=False)


def plain(value: object, *, finite: bool = False) -> Any:
    """Value as mappings, lists, UTF-8 strings and numbers; `finite` turns infinities into None.

    Example:
        >>> plain({"rank": (1, 2), 3: b"runs"[:0]})
        {'rank': [1, 2], '3': []}
    """
    if isinstance(value, str):  # a model's text can have half a surrogate pair
        return value.encode("utf-8", "replace").decode()
    if finite and isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item, finite=finite) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist(), finite=finite)
    if isinstance(value, Iterable):
        return [plain(item, finite=finite) for item in value]
    return plain(str(value))


# Parquet


def read_rows(path: Path, *, error: type[VestigeError], remedy: str) -> list[dict[str, Any]]:
    """The rows of a Parquet file: numbers, texts, truth values, and lists and objects of these.

    A few kilobytes of Parquet can hold a terabyte, so the footer is read first.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    require_regular(path, error=error, remedy=remedy)
    try:
        with pq.ParquetFile(path) as file:
            footer = file.metadata
            groups = map(footer.row_group, range(footer.num_row_groups))
            size = sum(max(0, group.total_byte_size) for group in groups)
            if footer.num_rows * max(1, footer.num_columns) > MOST_VALUES or size > MOST_BYTES:
                shape = f"{footer.num_rows:,} rows of {footer.num_columns:,} columns"
                raise ValueError(f"it has {shape}, {size:,} bytes: too large for a result")
            for field in file.schema_arrow:
                _require_plain_column(field.type, DEEPEST_COLUMN)
            table = file.read()
            if table.num_rows != footer.num_rows:
                raise ValueError("its footer states another number of rows")
            if len(set(table.column_names)) < table.num_columns:
                raise ValueError("two of its columns have the same name")
            rows: list[dict[str, Any]] = table.to_pylist()
            return rows
    except (OSError, pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
        raise error(f"{path} cannot be read: {problem}", remedy=remedy) from problem


_FILE_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
_FILE_KINDS |= dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device")
_TOO_DEEP = f"objects and lists are nested more than {DEEPEST} deep"
_PLAIN_MESSAGES = {
    "missing": "it is missing",
    **dict.fromkeys(("model_type", "dict_type", "dataclass_type"), "it should be an object"),
    **dict.fromkeys(("list_type", "tuple_type"), "it should be a list"),
    "bool_type": "it should be true or false",
}
_JSON_KINDS = {list: "a list", str: "a text", type(None): "null", bool: "a truth value"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_COLUMNS = ("integer", "floating", "boolean", "string", "large_string", "null")


def _describe_field(location: tuple[int | str, ...], kind: str, message: str) -> str:
    """Description of a faulty field. Unknown names are not quoted."""
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        location, message = location[:-1], "it has an unknown field"
    message = _PLAIN_MESSAGES.get(kind, message)
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in location]
    name = "".join(steps).removeprefix(".")
    reason = message.removeprefix("Value error, ").replace("Input", "it", 1)
    return f'"{name}": {reason}' if name else reason


def _require_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return content


def _require_plain(value: Any, *, finite: bool) -> None:
    """Refuse numbers beyond float64, halves of surrogate pairs, and deep nesting."""
    level = [value]
    for _ in range(DEEPEST):
        next_level: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                next_level.extend(item)
                next_level.extend(item.values())
            elif isinstance(item, list):
                next_level.extend(item)
            elif isinstance(item, str):
                if not item.isascii() and _SURROGATE.search(item):
                    raise ValueError("a text in it has half a surrogate pair")
            elif (isinstance(item, int) and item.bit_length() > 1023) or (
                finite and isinstance(item, float) and not math.isfinite(item)
            ):
                raise ValueError("a number in it is too large")
        level = next_level
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _require_plain_column(kind: Any, depth: int) -> None:
    from pyarrow import types

    if depth and (types.is_list(kind) or types.is_struct(kind)):
        for index in range(kind.num_fields):
            _require_plain_column(kind.field(index).type, depth - 1)
    elif not any(getattr(types, f"is_{name}")(kind) for name in _PLAIN_COLUMNS):
        raise ValueError(f"one of its columns has the type {str(kind)[:60]}")
