"""What was accepted before: a release then fails only for what is new.

{"format": 2, "salt": "…", "accepted": {"RUN/QUANTITY": {"value": 2.0, "secrets": {"HASH": 1}}}}

Secrets, phrases and users are stored as salted scrypt hashes with counts (30 ms per guess). Long
ones cannot be recovered. Anyone who has the file can recover short ones, such as a PIN, within an
hour. The file is private to its owner, as a run directory is.
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
"""Of scrypt: 16 MiB and about 30 ms per guess."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class _Accepted(Schema):
    """Schema of one accepted check."""

    value: float | None
    secrets: dict[Hash, int] | None


class _Baseline(Schema):
    """Schema of a baseline."""

    format: Literal[2]
    salt: Hash
    accepted: dict[Name, _Accepted]


@dataclass(frozen=True)
class Accepted:
    """One accepted check.

    Attributes:
        value: of the quantity, or of the claim's estimate; None where there is none.
        secrets: how often each was found, as text in memory and hashed in a file; None where the
            rows of a run do not contain them.
        salt: of the hashes; "" for text.
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
"""By kind of result: the column of the text, and whether a row was found."""


def read_baseline(path: Path) -> dict[str, Accepted]:
    """What a file accepts, by `checks.key_of`.

    Raises:
        RunError: it cannot be read, or is not a baseline.
    """
    found = read_json(
        path, _Baseline, error=RunError, remedy="Write it again with `write_baseline`."
    )
    return {
        key: Accepted(one.value, one.secrets, found.salt) for key, one in found.accepted.items()
    }


def write_baseline(path: Path, accepted: Mapping[str, Accepted]) -> None:
    """Write what is accepted from now on; the file is private to its owner."""
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
    """What a baseline would hold of a run."""
    return Accepted(value, _found(run))


def new_found(run: Run, before: Accepted) -> int | None:
    """How many secrets are found that were not accepted; None where only the value can tell.

    If a secret is found more often than was accepted, the excess is new.
    """
    found = _found(run)
    if before.secrets is None or found is None:
        return None
    known = before.secrets
    return sum(
        max(0, count - known.get(_hashed(text, before.salt), 0)) for text, count in found.items()
    )


def _found(run: Run) -> Counter[str] | None:
    """The secrets that a run found, with counts; None where its rows do not contain them."""
    if run.result not in _FOUND:
        return None
    column, holds = _FOUND[run.result]
    found = [row.get(column) for row in run.rows if holds(row)]
    texts = [text for text in found if isinstance(text, str)]
    return Counter(texts) if len(texts) == len(found) else None


@cache
def _hashed(text: str, salt: str) -> str:
    return scrypt(text.encode(), salt=salt.encode(), n=_COST, r=8, p=1, dklen=16).hex()
