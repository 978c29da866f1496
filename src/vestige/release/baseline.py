"""What was accepted before, so that a gate fails only for what is new.

{"format": 2, "salt": "…", "accepted": {"RUN/QUANTITY": {"value": 2.0, "secrets": {"HASH": 1}}}}

Secrets, phrases and users that were found are salted scrypt hashes with counts (30 ms a guess).
Long ones cannot be recovered; short ones, such as a PIN, can within an hour by anyone who has the
file. It is private to its owner, as a run directory is.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import scrypt
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Literal

from pydantic import Field

from vestige.data.atomic_write import write_text
from vestige.data.json_file import Name, Schema, read_json
from vestige.errors import RunError
from vestige.results import Run, to_json

FORMAT = 2
_COST = 2**14
"""Of scrypt: 16 MiB and some 30 ms a guess."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class _Accepted(Schema):
    """Schema of what was accepted of a check."""

    value: float | None
    secrets: dict[Hash, int] | None


class _Baseline(Schema):
    """Schema of a baseline."""

    format: Literal[2]
    salt: Hash
    accepted: dict[Name, _Accepted]


@dataclass(frozen=True)
class Accepted:
    """What was accepted of a check.

    Attributes:
        value: of the quantity, or of the claim's estimate; None where there is none.
        secrets: how often each was found, in clear text in memory and hashed in a file; None where
            a run does not say by their text what it found.
        salt: of the hashes; "" in clear text.
    """

    value: float | None
    secrets: Mapping[str, int] | None = None
    salt: str = ""


_FOUND: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "UpdateDiff": ("phrase", lambda row: row.get("found") and row.get("kind") != "fragment"),
    "SecretExposure": ("phrase", lambda row: row.get("found") or row.get("in_part")),
    "SecretRank": ("phrase", lambda row: row.get("found") or row.get("in_part")),
    "SecretCompletion": ("phrase", lambda row: row.get("greedy")),
    "Completion": ("phrase", lambda row: row.get("greedy") and row.get("kind") == "canary"),
    "UserAudit": ("user", lambda row: row.get("called")),
    "TextAudit": ("text", lambda row: row.get("named")),
}
"""The column of the text, and whether a row was found, by the name of the result's class."""


def read_baseline(path: Path) -> dict[str, Accepted]:
    """What a file accepts, by the keys of checks.

    Raises:
        RunError: it cannot be read, or is no baseline.
    """
    found = read_json(
        path, _Baseline, error=RunError, remedy="Write it again with `write_baseline`."
    )
    return {
        key: Accepted(one.value, one.secrets, found.salt) for key, one in found.accepted.items()
    }


def write_baseline(path: Path, accepted: Mapping[str, Accepted]) -> None:
    """Write what is accepted from now on: private to its owner, whole or not at all."""
    salt = token_hex(16)
    hashed = {
        key: {
            "value": one.value,
            "secrets": None
            if one.secrets is None
            else dict(sorted((_hashed(text, salt), count) for text, count in one.secrets.items())),
        }
        for key, one in sorted(accepted.items())
    }
    write_text(path, to_json({"format": FORMAT, "salt": salt, "accepted": hashed}) + "\n")


def accepted_of(run: Run, value: float | None) -> Accepted:
    """What would be accepted of a run that is above."""
    return Accepted(value, _found(run))


def new_found(run: Run, before: Accepted) -> int | None:
    """How many of the secrets that were found are not accepted; None where it depends on the value.

    A secret that is found more often than was accepted is new as often as it exceeds that.
    """
    found = _found(run)
    if before.secrets is None or found is None:
        return None
    known = before.secrets
    return sum(
        max(0, count - known.get(_hashed(text, before.salt), 0)) for text, count in found.items()
    )


def _found(run: Run) -> Counter[str] | None:
    """The secrets that a run found, with their counts; None where its rows do not name them."""
    if run.result not in _FOUND:
        return None
    column, holds = _FOUND[run.result]
    found = [row.get(column) for row in run.rows if holds(row)]
    texts = [text for text in found if isinstance(text, str)]
    return Counter(texts) if len(texts) == len(found) else None


@cache
def _hashed(text: str, salt: str) -> str:
    return scrypt(text.encode(), salt=salt.encode(), n=_COST, r=8, p=1, dklen=16).hex()
