"""Whether runs pass: by their verdicts, by limits on their numbers, and by what was accepted.

A limit is checked in addition to the verdict. A number passes only if its whole interval is within
the limit; it is undecided without an upper bound, or if the verdict of its run is undecided. Runs
of different models are undecided together.

The state of a condition is "fine", "undecided", "above", or "known": above, and accepted before.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import isfinite, nan
from typing import Any

from vestige.audits.release.baseline import VERDICT, Baseline, estimate_of, new_found
from vestige.claims import LEAK, NO_LEAK, Claim
from vestige.reports.disclosure import printable
from vestige.reports.quantities import QUANTITIES, measured
from vestige.reports.report import guarded
from vestige.reports.verdicts import UNCHECKED, claim_of, is_unchecked, same_model, verdict_of
from vestige.reports.words import Row
from vestige.results import Run


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


def checks_of(
    runs: Sequence[Run], limits: Mapping[str, float], baseline: Baseline | None
) -> list[Row]:
    """Whether the runs are of one model, their verdicts, and every limit on every run.

    Args:
        runs: in the order of the page.
        limits: by names of `QUANTITIES`.
        baseline: what was accepted before.

    Returns:
        One row per condition; none for runs without a verdict and without a limit on what they
        measure.

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
    run: str,
    quantity: str,
    state: str,
    sentence: str,
    limit: float | None = None,
    value: float | None = None,
) -> dict[str, Any]:
    """One condition of one run, or of all (""), with what was found or why it is undecided."""
    return {
        "run": run,
        "quantity": quantity,
        "state": state,
        "limit": limit,
        "value": value,
        "sentence": sentence,
    }


def _of_run(run: Run, limits: Mapping[str, float], baseline: Baseline | None) -> list[Row]:
    """The verdict of a run, and the limits on what it measures."""
    limited = [
        _by_limit(run, quantity, limit, baseline)
        for quantity, limit in limits.items()
        if run.result in QUANTITIES[quantity].of
    ]
    claim = claim_of(run)
    if claim is not None:
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
    """The condition of a verdict; below a limit that holds (`bounded`) an accepted leak varies."""
    sentence = f"{claim.verdict}. {verdict_of(claim).sentence}"
    if claim.verdict == NO_LEAK:
        return _row(run.name, VERDICT, "fine", sentence)
    if claim.verdict != LEAK:
        why = " ".join(map(printable, claim.reasons)) or sentence
        return _row(run.name, VERDICT, "undecided", why)
    state, more = _against(baseline, run, VERDICT, estimate_of(claim), bounded=bounded)
    return _row(run.name, VERDICT, state, sentence + more)


def _against(
    baseline: Baseline | None,
    run: Run,
    quantity: str,
    value: float | None,
    *,
    bounded: bool = False,
) -> tuple[str, str]:
    """The state of a leak or of a number above its limit, and what the baseline says of it."""
    before = None if baseline is None else baseline.accepted.get(f"{run.name}/{quantity}")
    if baseline is None or before is None:
        return "above", ""
    new = new_found(run, before.secrets, baseline.salt)
    if new is not None:
        return ("above", f" {new} not accepted before.") if new else ("known", " Accepted before.")
    if bounded:
        return "known", " Accepted before."
    no_more = value is not None and before.value is not None and value <= before.value
    shown = "no number" if before.value is None else f"{before.value:.4g}"
    return "known" if no_more else "above", f" Accepted before: {shown}."
