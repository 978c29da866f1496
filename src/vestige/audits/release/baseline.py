"""What was accepted before: a release then fails only for what is new.

{"format": 2, "salt": "…", "accepted": {"RUN/QUANTITY": {"value": 2.0, "secrets": {"HASH": 1}}}}

Secrets, phrases and users are stored as salted scrypt hashes with counts (30 ms per guess). Long
ones cannot be recovered. Anyone who has the file can recover short ones, such as a PIN, within an
hour. The file is private to its owner, as a run folder is.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import scrypt
from math import isfinite
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Literal

from pydantic import Field

from vestige.claims import Claim
from vestige.data.atomic_write import write_text
from vestige.data.files import Name, Schema, read_json
from vestige.errors import RunError
from vestige.reports.verdicts import claim_of
from vestige.reports.words import Row
from vestige.results import Run, to_json

VERDICT = "verdict"
"""In place of a quantity: the condition that a run's verdict is no leak."""

_COST = 2**14
"""Of scrypt: 16 MiB and about 30 ms per guess."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Accepted(Schema):
    """One accepted condition.

    Attributes:
        value: of the quantity, or of the claim's estimate; None where there is none.
        secrets: how often each was found; None where the rows of a run do not contain them.
    """

    value: float | None
    secrets: dict[Hash, int] | None


class Baseline(Schema):
    """A file of what was accepted, by "RUN/QUANTITY"."""

    format: Literal[2]
    salt: Hash
    accepted: dict[Name, Accepted]


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


def read_baseline(path: Path) -> Baseline:
    """What a file accepts.

    Raises:
        RunError: it cannot be read, or is not a baseline.
    """
    return read_json(path, Baseline, error=RunError, remedy="Write it again with `write_baseline`.")


def write_baseline(path: Path, runs: Sequence[Run], rows: Sequence[Row]) -> None:
    """Write a file that accepts the leaks and the numbers above a limit among some conditions.

    Args:
        path: private to its owner.
        runs: by names that differ.
        rows: of `checks_of`.
    """
    salt, of_name = token_hex(16), {run.name: run for run in runs}
    accepted: dict[str, Any] = {}
    for row in rows:
        if row["state"] not in ("above", "known"):
            continue
        run = of_name[row["run"]]
        value = estimate_of(claim_of(run)) if row["quantity"] == VERDICT else row["value"]
        found = _found(run)
        hashes = None if found is None else {_hashed(one, salt): n for one, n in found.items()}
        secrets = None if hashes is None else dict(sorted(hashes.items()))
        accepted[f"{run.name}/{row['quantity']}"] = {"value": value, "secrets": secrets}
    content = {"format": 2, "salt": salt, "accepted": dict(sorted(accepted.items()))}
    write_text(path, to_json(content) + "\n")


def estimate_of(claim: Claim | None) -> float | None:
    """The estimate of a claim; None where there is none, or one that is not finite."""
    estimate = None if claim is None or claim.estimate is None else claim.estimate.value
    return estimate if estimate is not None and isfinite(estimate) else None


def new_found(run: Run, accepted: Mapping[str, int] | None, salt: str) -> int | None:
    """How many secrets are found that were not accepted; None where only the value can tell.

    If a secret is found more often than was accepted, the excess is new.
    """
    found = _found(run)
    if accepted is None or found is None:
        return None
    return sum(max(0, n - accepted.get(_hashed(one, salt), 0)) for one, n in found.items())


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
