"""What changed since earlier runs: each number then and now, and the difference with its interval.

Runs are matched by the name of their directory and by kind.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from vestige import results
from vestige.audits.release.same_settings import difference_in_settings
from vestige.errors import RunError
from vestige.metrics.differences import difference_by_margins
from vestige.metrics.intervals import Interval
from vestige.reports.disclosure import printable
from vestige.reports.quantities import QUANTITIES, Measured, measured
from vestige.reports.report import guarded, report_of
from vestige.reports.verdicts import verdict_word
from vestige.results import Run

Verdict = Literal["better", "worse", "no change shown", "not comparable", "new", "gone"]

WITHOUT_INTERVAL = ("completed", "perplexity")
"""Numbers of one training without an interval: another training may differ as much."""


@dataclass(frozen=True)
class Change:
    """One number of a run, then and now.

    Attributes:
        run: the name of its directory.
        question: of the run.
        quantity: a name of `QUANTITIES`; "" for a run without one.
        verdict: better or worse if the whole interval of the difference is on one side of 0; less
            is better. Gone if it is no longer measured.
        then: None if it is new.
        now: None if it is gone.
        difference: now minus then; None if they are not compared.
        low: end of the 95% interval of the difference; None if it is unknown.
        high: likewise.
        why: why there is no clearer verdict; "" where none is needed.
        verdicts: of the run, then and now; "" without one.
    """

    run: str
    question: str
    quantity: str
    verdict: Verdict
    then: Measured | None
    now: Measured | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""
    verdicts: tuple[str, str] = ("", "")

    @property
    def unit(self) -> str:
        """The unit of the quantity."""
        return QUANTITIES[self.quantity].unit if self.quantity else ""

    def summary(self) -> dict[str, object]:
        """Scalars by name."""
        found: dict[str, object] = {
            "run": self.run, "quantity": self.quantity or None, "verdict": self.verdict,
        }  # fmt: skip
        for name, one in (("then", self.then), ("now", self.now)):
            found[name] = None if one is None else one.value
            found[f"{name}_low"] = None if one is None else one.low
            found[f"{name}_high"] = None if one is None else one.high
        ends = {"difference": self.difference, "low": self.low, "high": self.high}
        words = dict(zip(("verdict_then", "verdict_now"), self.verdicts, strict=True))
        return {**found, **ends, "why": self.why, **words}


def changes(now: Sequence[Run], then: Sequence[Run]) -> list[Change]:
    """One change per number of each run: first of the runs of now, then those that are gone.

    Args:
        now: runs of this release.
        then: runs of an earlier one.

    Raises:
        RunError: two runs of one side have the same name and kind, or one is damaged.
    """
    ours, before = _by_key(now), _by_key(then)
    found = []
    for key, run in ours.items():
        if key not in before:
            found += _alone(run, "new")
            continue
        words = (verdict_word(before[key]), verdict_word(run))
        found += [replace(one, verdicts=words) for one in _matched(run, before[key])]
    for key, run in before.items():
        if key not in ours:
            found += _alone(run, "gone")
    return found


def earlier_runs(paths: Sequence[str | Path], now: Sequence[Run] = ()) -> list[Run]:
    """The runs of an earlier release.

    Args:
        paths: run directories, or folders that contain them.
        now: runs of this release. A folder with the name of one of them is taken as that run's
            folder, not as a folder of several.

    Raises:
        RunError: a folder contains no run, or a folder in it contains several.
    """
    names = {run.name for run in now}
    found = []
    for path in map(Path, paths):
        alone = (path / "run.json").exists() or path.resolve().name in names or not path.is_dir()
        found += [results.find(path)] if alone else _lying_in(path)
    return found


def _lying_in(folder: Path) -> list[Run]:
    """The run of each directory in a folder that is a run or contains one."""
    files = [file for depth in ("*", "*/*") for file in folder.glob(f"{depth}/run.json")]
    if not files:
        raise RunError(
            f"{folder} is not a run directory and holds none",
            remedy="Give --since run directories, or a folder that contains them.",
        )
    inside = sorted({file.relative_to(folder).parts[0] for file in files})
    return [results.find(folder / name) for name in inside]


def difference_of(now: Measured, then: Measured) -> tuple[float, float, float]:
    """Now minus then, with its interval; an end is infinite where one of the two is unknown."""
    value, before = now.value, then.value
    if value is None or before is None:
        raise ValueError("both must have a value")
    low, high = difference_by_margins(value, _ends(now), before, _ends(then))
    if math.isclose(value, before, rel_tol=1e-9, abs_tol=1e-12) and low == high:
        return 0.0, 0.0, 0.0
    return value - before, low, high


def _ends(found: Measured) -> Interval:
    low = -math.inf if found.low is None else found.low
    return Interval(low, math.inf if found.high is None else found.high)


def _by_key(runs: Sequence[Run]) -> dict[tuple[str, str], Run]:
    found: dict[tuple[str, str], Run] = {}
    for run in runs:
        key = (run.name, run.result)
        if key in found:
            raise RunError(
                f"two runs of one kind are named {printable(key[0])}",
                remedy="Rename one: --since matches runs by the names of their directories.",
            )
        found[key] = run
    return found


def _quantities(run: Run) -> dict[str, Measured]:
    with guarded(run):
        return {
            name: measured(name, run) for name, one in QUANTITIES.items() if run.result in one.of
        }


def _named(run: Run) -> tuple[str, str]:
    return printable(run.name), report_of(run, show_secrets=False).title


def _alone(run: Run, verdict: Literal["new", "gone"]) -> list[Change]:
    names = _named(run)
    found: dict[str, Measured | None] = {**_quantities(run)} or {"": None}
    if verdict == "new":
        return [Change(*names, name, verdict, None, one) for name, one in found.items()]
    return [Change(*names, name, verdict, one, None) for name, one in found.items()]


def _matched(now: Run, then: Run) -> list[Change]:
    name, question = _named(now)
    _named(then)  # raises if the earlier run is damaged
    ours, before = _quantities(now), _quantities(then)
    if not ours:
        why = "runs of this kind have no number that can be compared"
        return [Change(name, question, "", "not comparable", None, None, why=why)]
    why = difference_in_settings(now, then)
    return [_compared((name, question, key), ours[key], before[key], why) for key in ours]


def _compared(names: tuple[str, str, str], now: Measured, then: Measured, why: str) -> Change:
    for side, one in (("now", now), ("then", then)):
        if not why and one.value is None:
            why = f"not known {side}" + (f": {one.unknown}" if one.unknown else "")
    if why:
        return Change(*names, "not comparable", then, now, why=why)
    value, low, high = difference_of(now, then)
    verdict: Verdict = "worse" if low > 0 else "better" if high < 0 else "no change shown"
    if names[2] in WITHOUT_INTERVAL and low == high:
        why = "without an interval: another training may differ as much" if value else ""
        return Change(*names, "no change shown", then, now, value, why=why)
    if verdict == "no change shown":
        open_ = [f"{side}, {one.unknown}" for side, one in (("now", now), ("then", then))
                if one.unknown]  # fmt: skip
        why = "; ".join(open_)
    return Change(*names, verdict, then, now, value, _finite(low), _finite(high), why)


def _finite(end: float) -> float | None:
    return end if math.isfinite(end) else None
