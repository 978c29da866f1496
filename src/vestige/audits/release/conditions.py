"""Whether runs pass: by their verdicts, by limits on their numbers, and by what was accepted.

A limit is checked in addition to the verdict. A number passes only if its whole interval is within
the limit; it is undecided without an upper bound, or if the verdict of its run is undecided. Runs
of different models are undecided together. The state of a condition is "fine", "undecided",
"above", or "known": above, and accepted before. A baseline is a file of what was accepted:

{"format": 2, "salt": "…", "accepted": {"RUN/QUANTITY": {"value": 2.0, "secrets": {"HASH": 1}}}}

Secrets, phrases and users are stored as salted scrypt hashes with counts (30 ms per guess). Long
ones cannot be recovered. Anyone who has the file can recover short ones, such as a PIN, within an
hour. The file is private to its owner, as a run folder is.
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
"""In place of a quantity: the condition that a run's verdict is no leak."""

_COST = 2**14
"""Of scrypt: 16 MiB and about 30 ms per guess."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Accepted(Schema):
    """One accepted condition: the number, or that of the claim's estimate, and the secrets found.

    None where there is no number, and where the rows of a run do not contain its secrets.
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
    """What a file accepts; RunError if it is not a baseline."""
    return read_json(path, Baseline, error=RunError, remedy="Write it again with `write_baseline`.")


def write_baseline(path: Path, runs: Sequence[Run], rows: Sequence[Row]) -> None:
    """Write a file that accepts the leaks and the numbers above a limit among conditions of runs
    with different names. It is private to its owner."""
    salt, of_name = token_hex(16), {run.name: run for run in runs}
    accepted: dict[str, Any] = {}
    for row in rows:
        if row["state"] in ("above", "known"):
            run = of_name[row["run"]]
            value = _estimate(claim_of(run)) if row["quantity"] == VERDICT else row["value"]
            found = _found(run, salt)
            secrets = None if found is None else dict(sorted(found.items()))
            accepted[f"{run.name}/{row['quantity']}"] = {"value": value, "secrets": secrets}
    content = {"format": 2, "salt": salt, "accepted": dict(sorted(accepted.items()))}
    write_text(path, to_json(content) + "\n")


def _estimate(claim: Claim | None) -> float | None:
    """The estimate of a claim; None where there is none, or one that is not finite."""
    estimate = None if claim is None or claim.estimate is None else claim.estimate.value
    return estimate if estimate is not None and isfinite(estimate) else None


def _found(run: Run, salt: str) -> dict[str, int] | None:
    """Hashes of the secrets that a run found, with counts; None where its rows lack them."""
    if run.result not in _FOUND:
        return None
    column, holds = _FOUND[run.result]
    texts = [row.get(column) for row in run.rows if holds(row)]
    if not all(isinstance(text, str) for text in texts):
        return None
    return {_hashed(text, salt): number for text, number in Counter(texts).items()}


@cache
def _hashed(text: str, salt: str) -> str:
    return scrypt(text.encode(), salt=salt.encode(), n=_COST, r=8, p=1, dklen=16).hex()


def limits_of(words: Sequence[str]) -> dict[str, float]:
    """Limits by quantity, from words such as "exposure=6".

    Raises:
        ValueError: one is not NAME=NUMBER, or a name is given twice.
    """
    found: dict[str, float] = {}
    for word in words:
        name, _, number = word.partition("=")
        if name not in QUANTITIES:
            near = get_close_matches(name, QUANTITIES, n=1)
            also = f" Did you mean {near[0]}?" if near else ""
            names = ", ".join(QUANTITIES)
            raise ValueError(f"`fail_above` has an unknown quantity. Choose {names}.{also}")
        try:
            limit = float(number)
        except ValueError:
            limit = nan
        if not isfinite(limit):
            raise ValueError(f"`fail_above` must be NAME=NUMBER, such as {name}=6")
        if name in found:
            raise ValueError(f"`fail_above` has two limits for {name}")
        found[name] = limit
    return found


def conditions_of(
    runs: Sequence[Run], limits: Mapping[str, float], baseline: Baseline | None
) -> list[Row]:
    """Whether the runs are of one model, their verdicts, and every limit on every run.

    Returns:
        One row per condition: run ("" for all), quantity, state, limit, value, and a sentence with
        what was found or why it is undecided. None for runs without a verdict and without a limit
        on what they measure.

    Raises:
        RunError: a run is damaged.
    """
    rows: list[Row] = []
    for run in runs:
        with guarded(run):
            rows += _of_run(run, limits, baseline)
    limited = {row["quantity"] for row in rows}
    rows += [
        _row("", quantity, "undecided", f"No run measures {quantity}.", limit)
        for quantity, limit in limits.items()
        if quantity not in limited
    ]
    one = same_model(runs)
    if not rows or one is None:
        return rows
    state = "fine" if one.state == "passed" else "undecided"
    return [_row("", one.name, state, one.sentence), *rows]


def _row(
    run: str, quantity: str, state: str, sentence: str,
    limit: float | None = None, value: float | None = None,
) -> Row:  # fmt: skip
    return {"run": run, "quantity": quantity, "state": state, "limit": limit, "value": value,
            "sentence": sentence}  # fmt: skip


def _of_run(run: Run, limits: Mapping[str, float], baseline: Baseline | None) -> list[Row]:
    """The verdict of a run, and the limits on what it measures."""
    limited = [
        _by_limit(run, quantity, limit, baseline)
        for quantity, limit in limits.items()
        if run.result in QUANTITIES[quantity].of
    ]
    claim = claim_of(run)
    if claim is not None:
        # below a limit that holds an accepted leak varies
        bounded = any(row["state"] in ("fine", "known") for row in limited)
        return [_by_verdict(run, claim, baseline, bounded=bounded), *limited]
    if is_unchecked(run):
        unchecked = [(VERDICT, None), *((row["quantity"], row["limit"]) for row in limited)]
        return [_row(run.name, name, "undecided", UNCHECKED, limit) for name, limit in unchecked]
    return limited


def _by_limit(run: Run, quantity: str, limit: float, baseline: Baseline | None) -> Row:
    found = measured(quantity, run)
    amount = found.amount(QUANTITIES[quantity].unit)
    amount += f" ({found.interval})" if found.interval else ""
    most = found.high if found.bounded else None
    if found.value is not None and found.value > limit:
        state, more = _against(baseline, run, quantity, found.value)
        sentence = f"{amount}, limit {limit:g}.{more}"
    elif found.value is not None and most is not None and most <= limit:
        state, sentence = "fine", f"{amount}."
    else:
        why = found.unknown or f"the interval extends beyond {limit:g}"
        state, sentence = "undecided", f"{amount}: {why}."
    return _row(run.name, quantity, state, sentence, limit, found.value)


def _by_verdict(run: Run, claim: Claim, baseline: Baseline | None, *, bounded: bool) -> Row:
    sentence = f"{claim.verdict}. {verdict_of(claim).sentence}"
    if claim.verdict == NO_LEAK:
        return _row(run.name, VERDICT, "fine", sentence)
    if claim.verdict != LEAK:
        why = " ".join(map(printable, claim.reasons)) or sentence
        return _row(run.name, VERDICT, "undecided", why)
    state, more = _against(baseline, run, VERDICT, _estimate(claim), bounded=bounded)
    return _row(run.name, VERDICT, state, sentence + more)


def _against(
    baseline: Baseline | None, run: Run, quantity: str, value: float | None, *,
    bounded: bool = False,
) -> tuple[str, str]:  # fmt: skip
    """The state of a leak or of a number above its limit, and what the baseline says of it.

    If a secret is found more often than was accepted, the excess is new. Where only the value can
    tell, it must not have risen.
    """
    before = None if baseline is None else baseline.accepted.get(f"{run.name}/{quantity}")
    if baseline is None or before is None:
        return "above", ""
    known, found = before.secrets, _found(run, baseline.salt)
    if known is not None and found is not None:
        new = sum(max(0, number - known.get(one, 0)) for one, number in found.items())
        return ("above", f" {new} not accepted before.") if new else ("known", " Accepted before.")
    if bounded:
        return "known", " Accepted before."
    no_more = value is not None and before.value is not None and value <= before.value
    shown = "no number" if before.value is None else f"{before.value:.4g}"
    return "known" if no_more else "above", f" Accepted before: {shown}."
