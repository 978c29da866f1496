"""What was accepted before, so that a gate fails for what is new alone.

{"format": 1, "salt": "…", "accepted": {"RUN/QUANTITY": {"value": 2.0, "phrases": ["…"]}}}

Found phrases stand in it as salted scrypt hashes, 30 ms a guess: long phrases cannot be read back,
and short ones, such as a PIN, can by who has the file and an hour. It is private to its owner, as a
run directory is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import scrypt
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Literal

from pydantic import Field

from vestige.data.atomic_write import write_text
from vestige.data.json_file import Name, Schema, read_json
from vestige.errors import RunError
from vestige.results import Run, to_json

FORMAT = 1
_COST = 2**14
"""Of scrypt: 16 MiB and some 30 ms a guess."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class _Accepted(Schema):
    """Schema of what was accepted of a check."""

    value: float
    phrases: list[Hash] | None


class _Baseline(Schema):
    """Schema of a baseline."""

    format: Literal[1]
    salt: Hash
    accepted: dict[Name, _Accepted]


@dataclass(frozen=True)
class Accepted:
    """What was accepted of a check.

    Attributes:
        value: of the quantity; 1 of a verdict.
        phrases: those that were found, in the clear in memory and hashed in a file; None where a
            run finds none by their words.
        salt: of the hashes; "" in the clear.
    """

    value: float
    phrases: frozenset[str] | None = None
    salt: str = ""


def read_baseline(path: Path) -> dict[str, Accepted]:
    """What a file accepts, by the keys of checks.

    Raises:
        RunError: it cannot be read, or is no baseline.
    """
    found = read_json(
        path, _Baseline, error=RunError, remedy="Write it again with `write_baseline`."
    )
    return {
        key: Accepted(
            one.value, None if one.phrases is None else frozenset(one.phrases), found.salt
        )
        for key, one in found.accepted.items()
    }


def write_baseline(path: Path, accepted: Mapping[str, Accepted]) -> None:
    """Write what is accepted from now on: private to its owner, whole or not at all."""
    salt = token_hex(16)
    hashed = {
        key: {
            "value": one.value,
            "phrases": None
            if one.phrases is None
            else sorted(_hashed(phrase, salt) for phrase in one.phrases),
        }
        for key, one in sorted(accepted.items())
    }
    write_text(path, to_json({"format": FORMAT, "salt": salt, "accepted": hashed}) + "\n")


def accepted_of(run: Run, value: float) -> Accepted:
    """What would be accepted of a run that is above."""
    return Accepted(value, None if run.result != "UpdateDiff" else frozenset(_found(run)))


def new_found(run: Run, before: Accepted) -> int | None:
    """How many found phrases are none of those accepted; None where it goes by the value."""
    if before.phrases is None or run.result != "UpdateDiff":
        return None
    return sum(_hashed(phrase, before.salt) not in before.phrases for phrase in set(_found(run)))


def _found(run: Run) -> Iterable[str]:
    return (row["phrase"] for row in run.rows if row.get("found") and row.get("kind") == "phrase")


@cache
def _hashed(phrase: str, salt: str) -> str:
    return scrypt(phrase.encode(), salt=salt.encode(), n=_COST, r=8, p=1, dklen=16).hex()
