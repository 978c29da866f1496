"""Leakage of a model during its training: the measurements, the verdict at the end, the report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from vestige import claims
from vestige.claims import Check, Claim
from vestige.reports.blocks import Table
from vestige.reports.quantities import QUANTITIES, Measured
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, interval, pairs
from vestige.results import Result, Run

if TYPE_CHECKING:
    from vestige.audits.exposure.canary_result import CanaryExposure
    from vestige.audits.exposure.epsilon import CanaryAudit
    from vestige.audits.extraction.canaries import Completion


class Limit(NamedTuple):
    """A number that `fail_above` and `stop_above` can limit: its unit, and its name in words."""

    unit: str
    words: str


LIMITS: Mapping[str, Limit] = {
    "exposure": Limit(QUANTITIES["exposure"].unit, "median exposure of planted canaries"),
    "completed": Limit(QUANTITIES["completed"].unit, "planted canaries completed"),
    "epsilon": Limit("", "measured ε, at least"),
}

REMARKS = (
    "The measured ε is a lower bound: the training may reveal more.",
    "The numbers are of this training alone. Repeat it with other seeds.",
)


@dataclass(frozen=True, kw_only=True)
class LeakageSnapshot:
    """What was measured after a step of the optimizer, as by `vestige exposure` and `extract`.

    `audit`: lower bounds of epsilon, with coin flips.
    """

    step: int
    found: "CanaryExposure"
    completion: "Completion"
    audit: "CanaryAudit | None" = None
    seconds: float = 0.0

    @cached_property
    def numbers(self) -> dict[str, Measured]:
        """By the names of `LIMITS`; without a value if not measured."""
        epsilon = None if self.audit is None else self.audit.one_run.epsilon
        return {
            "exposure": QUANTITIES["exposure"].of["CanaryExposure"](self._exposure),
            "completed": QUANTITIES["completed"].of["Completion"](self.completion.figures()),
            "epsilon": Measured(epsilon, epsilon, None),
        }

    @cached_property
    def _exposure(self) -> Mapping[str, Any]:
        return self.found.figures()

    def logs(self) -> dict[str, float]:
        """Numbers for a tracker; what was not measured is left out."""
        values = {name: one.value for name, one in self.numbers.items()}
        controls = self._exposure["exposure_controls"]
        named = {"exposure": values["exposure"], "exposure_controls": controls, **values}
        named["seconds"] = self.seconds
        return {f"vestige/{name}": value for name, value in named.items() if value is not None}

    def above(self, limits: Mapping[str, float]) -> str:
        """The first number above its limit, in words; "" if there is none."""
        for name, limit in limits.items():
            found = self.numbers[name]
            if found.value is not None and found.value > limit:
                return f"{name} {found.amount(LIMITS[name].unit)}: more than {limit:g}"
        return ""

    @property
    def claim(self) -> Claim:
        """The verdict: that of exposure, which other evidence can keep from "no leak shown".

        Raises:
            ValueError: the model was not checked, as it is only at the end of a training.
        """
        own = self.found.claim
        return Claim("callback", own.test, (*own.checks, *self._other_evidence()), own.estimate)

    def _other_evidence(self) -> Iterator[Check]:
        epsilon = self.numbers["epsilon"]
        sentences = []
        if self.completion.verdict == claims.LEAK:
            done = self.numbers["completed"].value
            sentences.append(f"{done:,} planted canaries are completed verbatim.")
        if epsilon.value:
            sentences.append(f"Measured ε is at least {epsilon.value:.2g}.")
        for sentence in sentences:
            yield Check("other evidence", "failed", sentence, (claims.NO_LEAK,))


def training_leakage(
    moments: Sequence[LeakageSnapshot],
    *,
    limits: Mapping[str, float],
    diverged: int | None = None,
    record: Mapping[str, Any] | None = None,
) -> Result:
    """The measurements of a training, one row each, with the verdict on the trained model.

    Args:
        moments: the last one at the end of the training.
        limits: above which the training was to fail, by the names of `LIMITS`.
        diverged: the step at which scores were no longer finite; None if they always were.
        record: of the result.
    """
    summary: dict[str, object] = {"diverged": diverged}
    for name, limit in LIMITS.items():
        if diverged is None:
            one = moments[-1].numbers[name]
            summary |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
            summary[f"{name}_unit"] = limit.unit
        summary[f"{name}_limit"] = limits.get(name)
    summary["steps"] = max((one.step for one in moments), default=0)
    summary["seconds"] = sum(one.seconds for one in moments)
    return Result(
        kind="TrainingLeakage",
        summary=summary,
        rows=tuple(
            {"step": one.step} | {n.removeprefix("vestige/"): v for n, v in one.logs().items()}
            for one in moments
        ),
        claim=moments[-1].claim if diverged is None else _of_diverged(diverged),
        record=record or {},
    )


def _of_diverged(step: int) -> Claim:
    broken = f"The training diverged: at step {step:,} its scores are not finite."
    alive = Check("alive", "failed", broken)
    different = Check("different", "could not run", "A model without scores has no difference.")
    return Claim("callback", None, (alive, different, claims.powerful(None)))


def training_leakage_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of `training_leakage`; it has no text."""
    summary = run.summary
    measured = [name for name in LIMITS if summary.get(name) is not None]
    words = [LIMITS[name].words for name in measured]
    last = Table(
        title="At the end of the training",
        columns=("measured", "value", "95% CI", "limit"),
        rows=tuple(
            (text, _amount(summary, n), _interval(summary, n), _number(summary, f"{n}_limit"))
            for n, text in zip(measured, words, strict=True)
        ),
        key="A dash: no interval or limit.",
    )
    steps = Table(
        title="During the training",
        columns=("step", *words),
        rows=tuple((f"{row['step']:,}", *(_number(row, n) for n in measured)) for row in run.rows),
        key="By step of the optimizer.",
    )
    facts = {name: summary.get(name) for name in ("steps", "seconds", "diverged")}
    return Report(
        title="What does the training reveal?",
        evidence=lines(describe_training_leakage(summary)),
        blocks=(last, steps) if measured else (),
        facts=pairs(facts, show_secrets=show_secrets),
        limits=REMARKS,
    )


def describe_training_leakage(summary: Row) -> str:
    """The measurements at the end, in a sentence."""
    if (step := summary.get("diverged")) is not None:
        return f"The training diverged at step {step:,}. Nothing was measured after it."
    found = [
        f"{limit.words} {_amount(summary, name)}"
        for name, limit in LIMITS.items()
        if summary.get(name) is not None
    ]
    return f"After {summary['steps']:,} steps: {'; '.join(found)}."


def _amount(summary: Row, name: str) -> str:
    return f"{_number(summary, name)} {summary.get(f'{name}_unit') or ''}".strip()


def _interval(summary: Row, name: str) -> str:
    low, high = summary.get(f"{name}_low"), summary.get(f"{name}_high")
    return NOTHING if low == high else interval(low, high)


def _number(row: Row, name: str) -> str:
    value = row.get(name)
    return NOTHING if value is None else f"{float(value):.4g}"
