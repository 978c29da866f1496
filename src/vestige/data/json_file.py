"""JSON files checked against a schema when they are read.

Whoever can write a file decides what stands in it: a number too large to count with, an object
nested until the stack ends, a list where a text belongs. What `read_json` returns has been held to
a schema, and no code behind it asks again. Messages name the file and the field and never a value:
values may be the very phrases that somebody wants to keep.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vestige.data.regular_file import read_bytes
from vestige.errors import VestigeError

LARGEST_FILE: Final = 2**28
"""Bytes of JSON that are read: four times a manifest of a million canaries' places."""
DEEPEST: Final = 32
"""Objects and lists inside each other. Ours have at most six."""

Count = Annotated[int, Field(ge=0, le=2**53)]
"""A number of things, or a place among them: exact as a float, too."""
Seed = Annotated[int, Field(ge=0, lt=2**128)]
Name = Annotated[str, Field(min_length=1, max_length=10_000)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal."""


class Schema(BaseModel):
    """JSON object with exactly these fields and types.

    Types are taken strictly: "1" is no number, 1 no truth value, and numbers are finite.
    """

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class Excerpt(Schema):
    """JSON object with at least these fields."""

    model_config = ConfigDict(extra="ignore")


class Measurements(Excerpt):
    """Measurements of a training, which may be infinite."""

    model_config = ConfigDict(allow_inf_nan=True)


AnySchema = TypeVar("AnySchema", bound=Schema)


def read_json(
    path: Path,
    schema: type[AnySchema],
    *,
    error: type[VestigeError],
    remedy: str,
    finite: bool = True,
) -> AnySchema:
    """Read a JSON file and check it against a schema.

    Args:
        path: an ordinary file of UTF-8.
        schema: of its object.
        error: class to raise.
        remedy: for a file with a fault.
        finite: refuse NaN and infinities, which a training that went wrong may have written.

    Raises:
        VestigeError: of the type given, naming file and field; see `read_object`, or the object is
            not what the schema says.
    """
    content = read_object(path, error=error, remedy=remedy, finite=finite)
    return conform(content, schema, path, error=error, remedy=remedy)


def read_object(
    path: Path, *, error: type[VestigeError], remedy: str, finite: bool = True
) -> dict[str, Any]:
    """Read the object in a JSON file: finite numbers, bounded depth.

    Raises:
        VestigeError: of the type given; the file is missing, no ordinary file or too large; it is
            not UTF-8, not JSON or no object; it names a field twice, or holds a number that is not
            finite, half a character, or objects too deep inside each other.
    """
    content = read_bytes(path, limit=LARGEST_FILE, error=error, remedy=remedy)
    return parse_object(content, path, error=error, remedy=remedy, finite=finite)


def parse_object(
    content: bytes,
    where: object,
    *,
    error: type[VestigeError],
    remedy: str,
    finite: bool = True,
) -> dict[str, Any]:
    """Parse a JSON object, such as a line of a log; see `read_object`.

    Args:
        content: UTF-8.
        where: a file, or a file and a line, for messages.
        error: class to raise.
        remedy: for a fault.
        finite: refuse NaN and infinities.
    """
    try:
        constants = _no_number if finite else float
        found = json.loads(
            content.decode("utf-8"), object_pairs_hook=_without_twins, parse_constant=constants
        )
        _require_plain(found, finite=finite)
        if not isinstance(found, dict):
            raise ValueError(f"it is {_kind(found)}, not an object")
    except json.JSONDecodeError as problem:
        reason = f"{problem.msg} in line {problem.lineno}"
        raise error(f"{where} is not JSON: {reason}", remedy=remedy) from problem
    except UnicodeDecodeError as problem:
        raise error(
            f"{where} is not UTF-8: byte {problem.start + 1:,} cannot be read", remedy=remedy
        ) from problem
    except ValueError as problem:
        raise error(f"{where} cannot be used: {problem}", remedy=remedy) from problem
    except RecursionError as problem:
        raise error(f"{where} cannot be used: {_TOO_DEEP}", remedy=remedy) from problem
    return found


def conform(
    content: Mapping[str, Any],
    schema: type[AnySchema],
    where: object,
    *,
    error: type[VestigeError],
    remedy: str,
) -> AnySchema:
    """Check an object against a schema, as `read_json` does.

    Raises:
        VestigeError: of the type given, naming where and the first field that is not as it should
            be.
    """
    try:
        return schema.model_validate(content)
    except ValidationError as problem:
        # The cause would carry the values along, into a traceback or another process.
        first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
        more = problem.error_count() - 1
    told = _field(first["loc"], first["type"], first["msg"])
    rest = f" ({more:,} more)" if more else ""
    raise error(f"{where} has unexpected content: {told}{rest}", remedy=remedy)


_TOO_DEEP = f"objects and lists are nested more than {DEEPEST} deep"
_PLAINLY = {
    "missing": "it is missing",
    "model_type": "it should be an object",
    "dict_type": "it should be an object",
    "list_type": "it should be a list",
    "bool_type": "it should be true or false",
}


def _field(place: tuple[int | str, ...], kind: str, message: str) -> str:
    """Description of a faulty field; unknown names are not quoted."""
    if kind == "extra_forbidden":
        place, message = place[:-1], "it has an unknown field"
    message = _PLAINLY.get(kind, message)
    inner = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place]
    name = "".join(inner).removeprefix(".")
    reason = message.removeprefix("Value error, ").replace("Input", "it", 1)
    return f'"{name}": {reason}' if name else reason


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def _require_plain(value: Any, *, finite: bool) -> None:
    """Refuse numbers beyond float64, halves of surrogate pairs, and depth, a level at a time."""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item)
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
            elif isinstance(item, str):
                if not item.isascii() and any("\ud800" <= letter <= "\udfff" for letter in item):
                    raise ValueError("a text in it has half a surrogate pair")
            elif _is_vast(item) or (finite and isinstance(item, float) and not math.isfinite(item)):
                raise ValueError("a number in it is too large")
        level = inner
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _is_vast(number: Any) -> bool:
    """Whether a whole number has no float64 near it."""
    return isinstance(number, int) and number.bit_length() > 1023


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", type(None): "null", bool: "a truth value"}
    return names.get(type(value), "a number")
