"""Chats in tables: turns in one column, or a prompt and its answer in columns of their own."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vestige.data.loaders.tables import rows
from vestige.errors import DataError

TURNS = ("messages", "conversations")
"""Usual columns with a list of turns."""

PAIRS = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("instruction", "input", "output"),
    ("instruction", "output"),
    ("instruction", "response"),
)
"""Usual columns with a prompt and its answer."""

_ROLES = {"human": "user", "gpt": "assistant"}
"""ShareGPT's names of roles."""

Chat = list[dict[str, str]]
"""Turns with "role" and "content", as chat templates read them."""


def chats(path: Path, column: str) -> Iterator[Chat]:
    """The chats in a column of a table: turns with role and content, or with from and value.

    Raises:
        DataError: naming file, line or row, and the column, where it is no list of turns.
    """
    for where, row in rows(path, [column]):
        try:
            yield [_turn(one) for one in row[column] or ()]
        except (TypeError, ValueError, AttributeError):
            raise DataError(
                f'{where}: "{column}" is not a list of turns with role and content',
                remedy='Write each turn as {"role": "user", "content": "..."}, or pass --text.',
            ) from None


def _turn(given: Mapping[str, Any]) -> dict[str, str]:
    role = given.get("role") or given.get("from")
    content = given.get("content") or given.get("value") or ""
    if not isinstance(content, str):  # parts, of which images have no text
        content = "".join(one.get("text") or "" for one in content)
    if not isinstance(role, str):
        raise TypeError
    return {"role": _ROLES.get(role, role), "content": content}


def joined(path: Path, columns: Sequence[str]) -> Iterator[str]:
    """The texts of several columns of each row, a line end between them.

    Raises:
        DataError: naming file, line or row, and a column that is missing or no text.
    """
    for where, row in rows(path, columns):
        for name in columns:
            if not isinstance(row[name], str | None):
                raise DataError(
                    f'{where}: "{name}" is {type(row[name]).__name__}, not text',
                    remedy="Convert its values to strings, or pass another --text column.",
                )
        yield "\n".join(row[name] for name in columns if row[name])
