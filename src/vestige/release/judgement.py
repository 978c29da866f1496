"""Whether runs pass: their verdicts, limits on their numbers, and what was accepted before.

Each run is judged by its verdict, and by each limit on what it measures: a limit never replaces the
verdict. A number is fine only where its whole interval is; a number without an upper bound, or of a
run whose verdict is undecided, is undecided. Runs of different models are undecided together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from vestige.claims import LEAK, NO_LEAK, Claim
from vestige.errors import RunError
from vestige.release.baseline import Accepted, accepted_of, new_found
from vestige.reports.disclosure import printable
from vestige.reports.quantities import QUANTITIES, Measured, measured
from vestige.reports.report import guarded
from vestige.reports.same_model import same_model
from vestige.reports.verdicts import UNCHECKED, claim_of, is_unchecked, verdict_of
from vestige.results import Run

State = Literal["fine", "known", "undecided", "above"]

VERDICT = "verdict"
"""Names the check of a run's verdict."""


@dataclass(frozen=True)
class Check:
    """One question to one run, or to all.

    Attributes:
        run: the name of its directory; "" of all runs.
        quantity: a name of `QUANTITIES`, "verdict", or "one model".
        state: above a limit or a leak is "known" where the baseline accepts it.
        limit: None of a verdict.
        measured: None of a verdict.
        sentence: what was found, and why it is undecided.
        accepted: what a baseline would hold of it; None where it has nothing to accept.
    """

    run: str
    quantity: str
    state: State
    limit: float | None
    measured: Measured | None
    sentence: str
    accepted: Accepted | None = None


def judge(
    runs: Sequence[Run], limits: Mapping[str, float], baseline: Mapping[str, Accepted] | None
) -> list[Check]:
    """Whether the runs are of one model, their verdicts, and every limit on every run.

    Args:
        runs: of different names.
        limits: by names of `QUANTITIES`.
        baseline: what was accepted before, by `key_of`; None for nothing.

    Raises:
        RunError: two directories have one name, a run is damaged, or none has a verdict or a
            quantity with a limit.
    """
    names = [run.name for run in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RunError(
            f"two run directories are called {printable(twice[0])}",
            remedy="Rename one: a gate and its baseline tell runs apart by the names of their "
            "directories.",
        )
    known = baseline or {}
    checks: list[Check] = []
    for run in runs:
        with guarded(run):
            checks += _judged(run, limits, known)
    asked = {check.quantity for check in checks}
    checks += [
        Check("", quantity, "undecided", limit, None, f"no run measures {quantity}")
        for quantity, limit in limits.items()
        if quantity not in asked
    ]
    if not checks:
        raise RunError(
            "none of these runs has a verdict",
            remedy="Name a limit for what they measure (`fail_above`), such as perplexity of a "
            "training, or give runs of audits.",
        )
    return [*_of_all(runs), *checks]


def absent_of(runs: Sequence[Run], baseline: Mapping[str, Accepted]) -> tuple[str, ...]:
    """What a baseline accepts of runs that are not among these, by `key_of`, to be shown."""
    names = {run.name for run in runs}
    return tuple(printable(key) for key in baseline if key.rpartition("/")[0] not in names)


def key_of(run: str, quantity: str) -> str:
    """What a check is called in a baseline."""
    return f"{run}/{quantity}"


def _of_all(runs: Sequence[Run]) -> list[Check]:
    """Whether all runs measured one model; nothing of one run."""
    check = same_model(runs)
    if check is None:
        return []
    state: State = "fine" if check.state == "passed" else "undecided"
    return [Check("", check.name, state, None, None, check.sentence)]


def _judged(run: Run, limits: Mapping[str, float], known: Mapping[str, Accepted]) -> list[Check]:
    """The verdict of a run, and the limits on what it measures."""
    limited = [
        _limited(run, quantity, limit, known.get(key_of(run.name, quantity)))
        for quantity, limit in limits.items()
        if run.result in QUANTITIES[quantity].of
    ]
    claim = claim_of(run)
    if claim is not None:
        before = known.get(key_of(run.name, VERDICT))
        bounded = any(check.state in ("fine", "known") for check in limited)
        return [_by_verdict(run, claim, before, bounded=bounded), *limited]
    if is_unchecked(run):
        asked = {VERDICT: None, **{check.quantity: check.limit for check in limited}}
        return [
            Check(run.name, name, "undecided", limit, None, UNCHECKED)
            for name, limit in asked.items()
        ]
    return limited


def _by_verdict(run: Run, claim: Claim, before: Accepted | None, *, bounded: bool) -> Check:
    """The verdict of a run.

    Args:
        before: what the baseline accepts of it.
        bounded: a limit holds the number of this run, so that an accepted leak may vary below it.
    """
    told = f"{claim.verdict}. {verdict_of(claim).sentence}"
    if claim.verdict == NO_LEAK:
        return Check(run.name, VERDICT, "fine", None, None, told)
    if claim.verdict != LEAK:
        why = " ".join(map(printable, claim.reasons)) or told
        return Check(run.name, VERDICT, "undecided", None, None, why)
    estimate = None if claim.estimate is None else claim.estimate.value
    value = estimate if estimate is not None and isfinite(estimate) else None
    accepted = accepted_of(run, value)
    if before is None:
        return Check(run.name, VERDICT, "above", None, None, told, accepted)
    new = new_found(run, before)
    if new is not None:
        state: State = "above" if new else "known"
        told = f"{told} {new} not accepted before." if new else f"{told} Accepted before."
        return Check(run.name, VERDICT, state, None, None, told, accepted)
    known = bounded or _no_more(value, before)
    more = "Accepted before." if known else f"Accepted before: {_shown(before.value)}."
    return Check(
        run.name, VERDICT, "known" if known else "above", None, None, f"{told} {more}", accepted
    )


def _limited(run: Run, quantity: str, limit: float, before: Accepted | None) -> Check:
    found = measured(quantity, run)
    told = found.amount(QUANTITIES[quantity].unit)
    told += f" ({found.interval})" if found.interval else ""
    if found.value is None or found.value <= limit:
        most = found.high if found.value is not None and found.bounded else None
        if most is not None and most <= limit:
            return Check(run.name, quantity, "fine", limit, found, told)
        why = found.unknown or f"the interval extends beyond {limit:g}"
        return Check(run.name, quantity, "undecided", limit, found, f"{told}: {why}")
    accepted = accepted_of(run, found.value)
    told = f"{told}: more than {limit:g}"
    if before is None:
        return Check(run.name, quantity, "above", limit, found, told, accepted)
    new = new_found(run, before)
    if new is None:
        known = _no_more(found.value, before)
        told += f", {_shown(before.value)} accepted before"
    else:
        known = new == 0
        told += f", {new} not accepted before"
    return Check(run.name, quantity, "known" if known else "above", limit, found, told, accepted)


def _no_more(value: float | None, before: Accepted) -> bool:
    return value is not None and before.value is not None and value <= before.value


def _shown(value: float | None) -> str:
    return "no number" if value is None else f"{value:.4g}"
