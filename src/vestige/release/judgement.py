"""Whether runs stay below limits: fine, above, or not to be told; and what was known before.

A run is fine only where the whole of its interval is: an estimate below a limit whose interval
goes beyond it could not tell, and neither could a run that measured nothing of what is asked. A run
of which no limit speaks is judged by its verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vestige.errors import RunError
from vestige.release.baseline import Accepted, accepted_of, new_found
from vestige.reports.components.disclosure import printable
from vestige.reports.quantities import QUANTITIES, Measured
from vestige.reports.verdicts import VERDICTS
from vestige.results import Run

State = Literal["fine", "known", "could not tell", "above"]

VERDICT = "verdict"
"""Names the check of a run of which no limit speaks."""


@dataclass(frozen=True)
class Check:
    """One question to one run.

    Attributes:
        run: the name of its directory; "" where no run measures what is asked.
        quantity: a name of `QUANTITIES`, or "verdict".
        state: above the limit and known before is "known".
        limit: None of a verdict.
        measured: None of a verdict.
        sentence: what was found, and where it could not be told what is missing.
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
    """Every limit on every run that measures it, and the verdicts of the others.

    Args:
        runs: of different names.
        limits: by names of `QUANTITIES`.
        baseline: what was accepted before, by `key_of`; None for nothing.

    Raises:
        RunError: two directories have one name, or nothing was asked of any.
    """
    names = [run.name for run in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RunError(
            f"two run directories are called {twice[0]}",
            remedy="Rename one: a gate and its baseline tell runs apart by the names of their "
            "directories.",
        )
    known, checks, spoken = baseline or {}, [], set()
    for quantity, limit in limits.items():
        asked = [
            (name, run)
            for name, run in zip(names, runs, strict=True)
            if run.result in QUANTITIES[quantity].of
        ]
        spoken |= {name for name, _ in asked}
        checks += [_limited(name, run, quantity, limit, known) for name, run in asked]
        if not asked:
            checks.append(
                Check(
                    "",
                    quantity,
                    "could not tell",
                    limit,
                    None,
                    f"no run measures {quantity}, {QUANTITIES[quantity].about}",
                )
            )
    checks += [
        _by_verdict(name, run, known)
        for name, run in zip(names, runs, strict=True)
        if name not in spoken and run.result in VERDICTS
    ]
    if not checks:
        raise RunError(
            "none of these runs has a verdict",
            remedy="Name a limit for what they measure (`fail_above`), such as perplexity of a "
            "training, or give runs of audits.",
        )
    return checks


def absent_of(runs: Sequence[Run], baseline: Mapping[str, Accepted]) -> tuple[str, ...]:
    """What a baseline accepts of runs that are not among these, by `key_of`, to be shown."""
    names = {run.name for run in runs}
    return tuple(printable(key) for key in baseline if key.rpartition("/")[0] not in names)


def key_of(run: str, quantity: str) -> str:
    """What a check is called in a baseline."""
    return f"{run}/{quantity}"


def _limited(
    name: str, run: Run, quantity: str, limit: float, known: Mapping[str, Accepted]
) -> Check:
    kind = QUANTITIES[quantity]
    found = kind.of[run.result](run.summary)
    told = found.amount(kind.unit) + (f" ({found.interval})" if found.interval else "")
    if found.value is None or found.value <= limit:
        open_ = found.high is None or found.high > limit
        more = f": {found.unknown}" if found.unknown else ""
        if found.value is not None and open_ and not more:
            more = f": the interval goes beyond {limit:g}"
        state: State = "could not tell" if open_ else "fine"
        return Check(name, quantity, state, limit, found, told + more * open_)
    accepted = accepted_of(run, found.value)
    before = known.get(key_of(name, quantity))
    if before is None:
        return Check(
            name, quantity, "above", limit, found, f"{told}: more than {limit:g}", accepted
        )
    new = new_found(run, before)
    if new is None and found.value <= before.value:
        more = f", no more than the {before.value:g} known before"
        return Check(name, quantity, "known", limit, found, told + more, accepted)
    if new is not None and new <= limit:
        more = f", {new} of them new"
        return Check(name, quantity, "known", limit, found, told + more, accepted)
    more = f", {new} of them new" if new is not None else f", {before.value:g} known before"
    return Check(name, quantity, "above", limit, found, told + more, accepted)


def _by_verdict(name: str, run: Run, known: Mapping[str, Accepted]) -> Check:
    word = run.summary.get(VERDICT)
    meaning = VERDICTS[run.result].get(str(word))
    if meaning is None:
        raise RunError(
            f"{run.directory / 'summary.json'} holds no verdict that a {run.result} has",
            remedy="Repeat the run: it was written by an older version, or changed.",
        )
    if meaning == "none":
        return Check(name, VERDICT, "fine", None, None, str(word))
    if meaning == "open":
        return Check(name, VERDICT, "could not tell", None, None, str(word))
    before = known.get(key_of(name, VERDICT))
    new = None if before is None else new_found(run, before)
    accepted = accepted_of(run, 1.0)
    if before is None or new:
        more = f", {new} new" if new else ""
        return Check(name, VERDICT, "above", None, None, f"{word}{more}", accepted)
    return Check(name, VERDICT, "known", None, None, f"{word}, known before", accepted)
