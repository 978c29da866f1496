"""Values as plain Python, JSON and Arrow can hold them."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any


def plain(value: object) -> Any:
    """Value as plain Python: mappings, lists, numbers and strings that UTF-8 can hold.

    NumPy scalars and arrays become numbers and lists, tuples lists, paths strings.

    Example:
        >>> plain({"rank": (1, 2), 3: b"runs"[:0]})
        {'rank': [1, 2], '3': []}
    """
    if isinstance(value, str):
        # Half a surrogate pair can stand in a model's text, but in no file.
        return value.encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return plain(str(value))


def to_json(value: object) -> str:
    """Strict JSON: NaN and infinities, which JSON does not have, become null.

    Example:
        >>> print(to_json({"threshold": float("inf")}))
        {
          "threshold": null
        }
    """
    return json.dumps(_finite(plain(value)), indent=2, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def storable(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with floats in place of whole numbers beyond 64 bits, column by column."""
    rows = list(rows)
    beyond = {
        name
        for row in rows
        for name, value in row.items()
        if isinstance(value, int) and not -(2**63) <= value < 2**63
    }
    for row in rows:
        row.update({n: float(row[n]) for n in beyond if isinstance(row.get(n), int)})
    return rows
