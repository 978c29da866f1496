"""Do runs pass? Conditions on their verdicts and numbers, and a baseline of accepted leaks.

A limit is checked in addition to the verdict. A number passes only if its whole interval is within
the limit; it is undecided without an upper bound, or if the verdict of its run is undecided. Runs
of different models are undecided. The state of a condition is "fine", "undecided", "above", or
"known" (above, but accepted before). A baseline file lists what was accepted:

{"format": 2, "salt": "…", "accepted": {"RUN/QUANTITY": {"value": 2.0, "secrets": {"HASH": 1}}}}

Secrets, phrases and users are stored as salted scrypt hashes with counts (30 ms per guess). Long
ones cannot be recovered. Anyone with the file can recover short ones, such as a PIN, within an
hour. Only the owner can read the file.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from hashlib import scrypt
from math import isfinite, nan
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Literal

from pydantic import Field

from vestige.claims import LEAK, NO_LEAK, Claim
from vestige.data.files import Name, Schema, read_json
from vestige.data.writing import write_text
from vestige.errors import RunError
from vestige.reports.disclosure import printable
from vestige.reports.quantities import QUANTITIES, measured
from vestige.reports.report import guarded
from vestige.reports.verdicts import UNCHECKED, claim_of, is_unchecked, same_model, verdict_of
from vestige.reports.words import Row
from vestige.results import Run, to_json

VERDICT = "verdict"
"""The quantity of the condition that the verdict of a run is "no leak shown"."""

_SCRYPT_COST = 2**14
"""16 MiB and about 30 ms per guess."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Accepted(Schema):
    """An accepted condition.

    Attributes:
        value: the number, or the estimate of the claim; None if there is none.
        secrets: counts by hash; None if the rows of the run do not contain its secrets.
    """

    value: float | None
    secrets: dict[Hash, int] | None


class Baseline(Schema):
    """The content of a baseline file; keys are "RUN/QUANTITY"."""

    format: Literal[2]
    salt: Hash
    accepted: dict[Name, Accepted]


_LEAKED: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "UpdateDiff": ("phrase", lambda row: row.get("found") and row.get("kind") != "fragment"),
    "SecretExposure": ("phrase", lambda row: row.get("found") or row.get("in_part")),
    "SecretRank": ("phrase", lambda row: row.get("found") or row.get("in_part")),
    "SecretCompletion": ("phrase", lambda row: row.get("greedy")),
    "Completion": ("phrase", lambda row: row.get("greedy") and row.get("kind") == "canary"),
    "UserAudit": ("user", lambda row: row.get("called")),
    "TextAudit": ("text", lambda row: row.get("named")),
}
"""By kind of result: the column of the text, and a predicate for rows that are leaks."""


def read_baseline(path: Path) -> Baseline:
    """Read a baseline; RunError if the file is none."""
    return read_json(path, Baseline, error=RunError, remedy="Write it again with `write_baseline`.")


def write_baseline(path: Path, runs: Sequence[Run], rows: Sequence[Row]) -> None:
    """Write a baseline that accepts all conditions above a limit; only its owner can read it.

    The runs have different names.
    """
    salt, run_by_name = token_hex(16), {run.name: run for run in runs}
    accepted: dict[str, Any] = {}
    for row in rows:
        if row["state"] in ("above", "known"):
            run = run_by_name[row["run"]]
            value = _estimate(claim_of(run)) if row["quantity"] == VERDICT else row["value"]
            hashes = _leaked_hashes(run, salt)
            secrets = None if hashes is None else dict(sorted(hashes.items()))
            accepted[f"{run.name}/{row['quantity']}"] = {"value": value, "secrets": secrets}
    content = {"format": 2, "salt": salt, "accepted": dict(sorted(accepted.items()))}
    write_text(path, to_json(content) + "\n")


def _estimate(claim: Claim | None) -> float | None:
    """The estimate of a claim; None if it has none, or one that is not finite."""
    estimate = None if claim is None or claim.estimate is None else claim.estimate.value
    return estimate if estimate is not None and isfinite(estimate) else None


def _leaked_hashes(run: Run, salt: str) -> dict[str, int] | None:
    """Hashes of the leaked secrets of a run, with counts; None if its rows do not contain them."""
    if run.result not in _LEAKED:
        return None
    column, is_leak = _LEAKED[run.result]
    texts = [row.get(column) for row in run.rows if is_leak(row)]
    if not all(isinstance(text, str) for text in texts):
        return None
    return {_hash(text, salt): count for text, count in Counter(texts).items()}


@cache
def _hash(text: str, salt: str) -> str:
    return scrypt(text.encode(), salt=salt.encode(), n=_SCRYPT_COST, r=8, p=1, dklen=16).hex()


def limits_of(words: Sequence[str]) -> dict[str, float]:
    """Limits by quantity, from words such as "exposure=6".

    Raises:
        ValueError: a word is not NAME=NUMBER, or a name occurs twice.
    """
    limits: dict[str, float] = {}
    for word in words:
        name, _, number = word.partition("=")
        if name not in QUANTITIES:
            similar = get_close_matches(name, QUANTITIES, n=1)
            hint = f" Did you mean {similar[0]}?" if similar else ""
            names = ", ".join(QUANTITIES)
            raise ValueError(f"`fail_above` has an unknown quantity. Choose {names}.{hint}")
        try:
            limit = float(number)
        except ValueError:
            limit = nan
        if not isfinite(limit):
            raise ValueError(f"`fail_above` must be NAME=NUMBER, such as {name}=6")
        if name in limits:
            raise ValueError(f"`fail_above` has two limits for {name}")
        limits[name] = limit
    return limits


def conditions_of(
    runs: Sequence[Run], limits: Mapping[str, float], baseline: Baseline | None
) -> list[Row]:
    """Check that the runs are of one model, their verdicts, and all limits.

    Returns:
        One row per condition: run ("" for all), quantity, state, limit, value, and a sentence with
        the finding or the reason why it is undecided. A run without a verdict has no row unless a
        limit applies to it.

    Raises:
        RunError: a run is damaged.
    """
    rows: list[Row] = []
    for run in runs:
        with guarded(run):
            rows += _conditions_of_run(run, limits, baseline)
    limited = {row["quantity"] for row in rows}
    rows += [
        _row("", quantity, "undecided", f"No run measures {quantity}.", limit)
        for quantity, limit in limits.items()
        if quantity not in limited
    ]
    check = same_model(runs)
    if not rows or check is None:
        return rows
    state = "fine" if check.state == "passed" else "undecided"
    return [_row("", check.name, state, check.sentence), *rows]


def _row(
    run: str, quantity: str, state: str, sentence: str,
    limit: float | None = None, value: float | None = None,
) -> Row:  # fmt: skip
    return {"run": run, "quantity": quantity, "state": state, "limit": limit, "value": value,
            "sentence": sentence}  # fmt: skip


def _conditions_of_run(
    run: Run, limits: Mapping[str, float], baseline: Baseline | None
) -> list[Row]:
    """The conditions on the verdict of a run and on its numbers."""
    limited = [
        _by_limit(run, quantity, limit, baseline)
        for quantity, limit in limits.items()
        if run.result in QUANTITIES[quantity].of
    ]
    claim = claim_of(run)
    if claim is not None:
        # The estimate of an accepted leak may vary below a limit that passes.
        bounded = any(row["state"] in ("fine", "known") for row in limited)
        return [_by_verdict(run, claim, baseline, bounded=bounded), *limited]
    if is_unchecked(run):
        unchecked = [(VERDICT, None), *((row["quantity"], row["limit"]) for row in limited)]
        return [_row(run.name, name, "undecided", UNCHECKED, limit) for name, limit in unchecked]
    return limited


def _by_limit(run: Run, quantity: str, limit: float, baseline: Baseline | None) -> Row:
    measurement = measured(quantity, run)
    amount = measurement.amount(QUANTITIES[quantity].unit)
    amount += f" ({measurement.interval})" if measurement.interval else ""
    high = measurement.high if measurement.bounded else None
    if measurement.value is not None and measurement.value > limit:
        state, note = _compare_with_baseline(baseline, run, quantity, measurement.value)
        sentence = f"{amount}, limit {limit:g}.{note}"
    elif measurement.value is not None and high is not None and high <= limit:
        state, sentence = "fine", f"{amount}."
    else:
        reason = measurement.unknown or f"the interval extends beyond {limit:g}"
        state, sentence = "undecided", f"{amount}: {reason}."
    return _row(run.name, quantity, state, sentence, limit, measurement.value)


def _by_verdict(run: Run, claim: Claim, baseline: Baseline | None, *, bounded: bool) -> Row:
    sentence = f"{claim.verdict}. {verdict_of(claim).sentence}"
    if claim.verdict == NO_LEAK:
        return _row(run.name, VERDICT, "fine", sentence)
    if claim.verdict != LEAK:
        reasons = " ".join(map(printable, claim.reasons)) or sentence
        return _row(run.name, VERDICT, "undecided", reasons)
    state, note = _compare_with_baseline(baseline, run, VERDICT, _estimate(claim), bounded=bounded)
    return _row(run.name, VERDICT, state, sentence + note)


def _compare_with_baseline(
    baseline: Baseline | None, run: Run, quantity: str, value: float | None, *,
    bounded: bool = False,
) -> tuple[str, str]:  # fmt: skip
    """The state of a leak or of a number above its limit, and a note on the baseline.

    If a secret leaks more often than was accepted, the excess is new. Without secrets to compare,
    the value must not have risen.
    """
    accepted = None if baseline is None else baseline.accepted.get(f"{run.name}/{quantity}")
    if baseline is None or accepted is None:
        return "above", ""
    leaked = _leaked_hashes(run, baseline.salt)
    if accepted.secrets is not None and leaked is not None:
        new = sum(max(0, n - accepted.secrets.get(text, 0)) for text, n in leaked.items())
        return ("above", f" {new} not accepted before.") if new else ("known", " Accepted before.")
    if bounded:
        return "known", " Accepted before."
    not_risen = value is not None and accepted.value is not None and value <= accepted.value
    amount = "no number" if accepted.value is None else f"{accepted.value:.4g}"
    return "known" if not_risen else "above", f" Accepted before: {amount}."
