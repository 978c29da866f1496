"""Whether runs pass: their verdicts, limits on their numbers, and what was accepted before.

Each run is judged by its verdict, and by each limit on what it measures: a limit never replaces the
verdict. A number passes only if its whole interval is within the limit. A number is undecided
without an upper bound, or if the verdict of its run is undecided. Runs of different models are
undecided together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from vestige.audits.release.baseline import Accepted, accepted_of, new_found
from vestige.claims import LEAK, NO_LEAK, Claim
from vestige.reports.disclosure import printable
from vestige.reports.quantities import QUANTITIES, Measured, measured
from vestige.reports.report import guarded
from vestige.reports.verdicts import UNCHECKED, claim_of, is_unchecked, same_model, verdict_of
from vestige.results import Run

State = Literal["fine", "known", "undecided", "above"]

VERDICT = "verdict"
"""Name of the check of a run's verdict."""


@dataclass(frozen=True)
class Check:
    """One condition of one run, or of all.

    Attributes:
        run: the name of its directory; "" for all runs.
        quantity: a name of `QUANTITIES`, "verdict", or "one model".
        state: a leak or a number above its limit is "known" where the baseline accepts it.
        limit: None for a verdict.
        measured: None for a verdict.
        sentence: what was found, and why it is undecided.
        accepted: what a baseline would hold of it; None where there is nothing to accept.
    """

    run: str
    quantity: str
    state: State
    limit: float | None
    measured: Measured | None
    sentence: str
    accepted: Accepted | None = None

    @property
    def name(self) -> str:
        """The condition: the quantity with its limit."""
        return self.quantity if self.limit is None else f"{self.quantity} <= {self.limit:g}"


def checks_of(
    runs: Sequence[Run], limits: Mapping[str, float], baseline: Mapping[str, Accepted]
) -> list[Check]:
    """Whether the runs are of one model, their verdicts, and every limit on every run.

    Args:
        runs: in the order of the page.
        limits: by names of `QUANTITIES`.
        baseline: what was accepted before, by `key_of`.

    Returns:
        None for runs without a verdict and without a limit on what they measure.

    Raises:
        RunError: a run is damaged.
    """
    checks: list[Check] = []
    for run in runs:
        with guarded(run):
            checks += _of_run(run, limits, baseline)
    limited = {check.quantity for check in checks}
    checks += [
        Check("", quantity, "undecided", limit, None, f"No run measures {quantity}.")
        for quantity, limit in limits.items()
        if quantity not in limited
    ]
    return [*_of_all(runs), *checks] if checks else []


def absent_of(runs: Sequence[Run], baseline: Mapping[str, Accepted]) -> tuple[str, ...]:
    """What a baseline accepts of runs that are not among these, by `key_of`."""
    names = {run.name for run in runs}
    return tuple(printable(key) for key in baseline if key.rpartition("/")[0] not in names)


def key_of(run: str, quantity: str) -> str:
    """The name of a check in a baseline."""
    return f"{run}/{quantity}"


def _of_all(runs: Sequence[Run]) -> list[Check]:
    """Whether all runs measured one model; nothing for one run."""
    check = same_model(runs)
    if check is None:
        return []
    state: State = "fine" if check.state == "passed" else "undecided"
    return [Check("", check.name, state, None, None, check.sentence)]


def _of_run(run: Run, limits: Mapping[str, float], known: Mapping[str, Accepted]) -> list[Check]:
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
        names = {VERDICT: None, **{check.quantity: check.limit for check in limited}}
        return [
            Check(run.name, name, "undecided", limit, None, UNCHECKED)
            for name, limit in names.items()
        ]
    return limited


def _by_verdict(run: Run, claim: Claim, before: Accepted | None, *, bounded: bool) -> Check:
    """The verdict of a run.

    Args:
        run: with this verdict.
        claim: of the run.
        before: what the baseline accepts of it.
        bounded: a limit on the run's number holds: an accepted leak may vary below it.
    """
    sentence = f"{claim.verdict}. {verdict_of(claim).sentence}"
    if claim.verdict == NO_LEAK:
        return Check(run.name, VERDICT, "fine", None, None, sentence)
    if claim.verdict != LEAK:
        why = " ".join(map(printable, claim.reasons)) or sentence
        return Check(run.name, VERDICT, "undecided", None, None, why)
    estimate = None if claim.estimate is None else claim.estimate.value
    value = estimate if estimate is not None and isfinite(estimate) else None
    state, more = _compared(run, value, before, bounded=bounded)
    accepted = accepted_of(run, value)
    return Check(run.name, VERDICT, state, None, None, f"{sentence}{more}", accepted)


def _compared(
    run: Run, value: float | None, before: Accepted | None, *, bounded: bool = False
) -> tuple[State, str]:
    """The state of a leak or of a number above its limit, and what the baseline says of it."""
    if before is None:
        return "above", ""
    new = new_found(run, before)
    if new is not None:
        return ("above", f" {new} not accepted before.") if new else ("known", " Accepted before.")
    if bounded:
        return "known", " Accepted before."
    no_more = value is not None and before.value is not None and value <= before.value
    shown = "no number" if before.value is None else f"{before.value:.4g}"
    return "known" if no_more else "above", f" Accepted before: {shown}."


def _limited(run: Run, quantity: str, limit: float, before: Accepted | None) -> Check:
    found = measured(quantity, run)
    amount = found.amount(QUANTITIES[quantity].unit)
    amount += f" ({found.interval})" if found.interval else ""
    if found.value is None or found.value <= limit:
        most = found.high if found.value is not None and found.bounded else None
        if most is not None and most <= limit:
            return Check(run.name, quantity, "fine", limit, found, f"{amount}.")
        why = found.unknown or f"the interval extends beyond {limit:g}"
        return Check(run.name, quantity, "undecided", limit, found, f"{amount}: {why}.")
    state, more = _compared(run, found.value, before)
    sentence = f"{amount}, limit {limit:g}.{more}"
    accepted = accepted_of(run, found.value)
    return Check(run.name, quantity, state, limit, found, sentence, accepted)
