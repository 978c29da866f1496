"""Damaged content of files: strange values for every field of some JSON, and changed bytes."""

import copy
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from vestige.data.canaries.planting import checksum
from vestige.errors import VestigeError

STRANGE: dict[str, Any] = {
    "null": None,
    "true": True,
    "a text": "strange",
    "no text": "",
    "control characters": "\x1b[31m\u202e",
    "a list": [],
    "a list of lists": [[[]]],
    "an object": {},
    "an object in an object": {"a": {"b": None}},
    "zero": 0,
    "negative": -1,
    "a half": 0.5,
    "huge": 10**18,
    "beyond 64 bits": 10**30,
    "beyond float64": 10**400,
    "a large float": 1e308,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "minus infinite": -float("inf"),
}
FEW = 3  # items of a list that are changed one by one


def damaged(content: Any) -> Iterator[tuple[str, Any]]:
    """(damage, copy of the content with it) for every field: strange values, missing, extra.

    Only the first items of a list are changed.
    """
    for path in _paths(content):
        name = "/".join(map(str, path)) or "the content"
        old = _at(content, path)
        for kind, value in STRANGE.items():
            if value is not old:
                yield f"{name}: {kind}", _with(content, path, value)
        if isinstance(old, list) and old:
            yield f"{name}: one fewer", _with(content, path, old[:-1])
            yield f"{name}: one more", _with(content, path, [*old, copy.deepcopy(old[-1])])
        if isinstance(old, dict):
            yield f"{name}: a field added", _with(content, path, {**old, "strange": 1})
            for key in old:
                rest = {other: old[other] for other in old if other != key}
                yield f"{name}/{key}: missing", _with(content, path, rest)


def _paths(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(content, dict):
        for key in content:
            yield from _paths(content[key], (*path, key))
    elif isinstance(content, list):
        for index, item in enumerate(content[:FEW]):
            yield from _paths(item, (*path, index))


def _at(content: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        content = content[key]
    return content


def _with(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return copy.deepcopy(value)
    changed = copy.deepcopy(content)
    _at(changed, path[:-1])[path[-1]] = copy.deepcopy(value)
    return changed


def refusal(what: str, use: Callable[[], object]) -> str | None:
    """The message that refuses damaged input, or None; any other exception fails the test."""
    try:
        use()
    except (VestigeError, ValueError, OSError) as error:
        return str(error)
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error
    return None


def damage_store(path: Path, key: str = "") -> int:
    """Change a byte of every value whose key begins with `key`; the number of values."""
    with closing(sqlite3.connect(path)) as db, db:
        rows = db.execute("SELECT name, value FROM work").fetchall()
        rows = [(name, value) for name, value in rows if name.startswith(key.encode())]
        for name, value in rows:
            changed = bytearray(value)
            changed[len(changed) // 2] ^= 0xFF
            db.execute("UPDATE work SET value = ? WHERE name = ?", (bytes(changed), name))
    return len(rows)


def resealed(content: Any) -> str:
    """The content of a manifest as JSON with valid checksums."""
    if isinstance(content, dict):
        entries = content.get("canaries")
        if isinstance(entries, list):
            content["canaries"] = [
                {**entry, "sha256": checksum(entry)} if isinstance(entry, dict) else entry
                for entry in entries
            ]
            content["sha256"] = checksum({**content, "canaries": entries})
    return json.dumps(content)
