"""Leakage of a model during its training: measurements, final verdict, and report."""

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

REPORT_LIMITS = (
    "The measured ε is a lower bound: the training may reveal more.",
    "The numbers are of this training alone. Repeat it with other seeds.",
)


@dataclass(frozen=True, kw_only=True)
class LeakageSnapshot:
    """The measurements after a step of the optimizer, as by `vestige exposure` and `extract`.

    Attributes:
        step: step of the optimizer.
        exposure: exposure of the canaries.
        completion: completion of the canaries.
        audit: lower bounds of epsilon; None without coin flips.
        seconds: time of the measurement.
    """

    step: int
    exposure: "CanaryExposure"
    completion: "Completion"
    audit: "CanaryAudit | None" = None
    seconds: float = 0.0

    @cached_property
    def numbers(self) -> dict[str, Measured]:
        """The numbers of `LIMITS`; their value is None if not measured."""
        epsilon = None if self.audit is None else self.audit.one_run.epsilon
        return {
            "exposure": QUANTITIES["exposure"].of["CanaryExposure"](self._exposure_figures),
            "completed": QUANTITIES["completed"].of["Completion"](self.completion.figures()),
            "epsilon": Measured(epsilon, epsilon, None),
        }

    @cached_property
    def _exposure_figures(self) -> Mapping[str, Any]:
        return self.exposure.figures()

    def logs(self) -> dict[str, float]:
        """Measured numbers for a tracker."""
        values = {name: measured.value for name, measured in self.numbers.items()}
        controls = self._exposure_figures["exposure_controls"]
        named = {"exposure": values["exposure"], "exposure_controls": controls, **values}
        named["seconds"] = self.seconds
        return {f"vestige/{name}": value for name, value in named.items() if value is not None}

    def above(self, limits: Mapping[str, float]) -> str:
        """The first number above its limit, in words; "" without one."""
        for name, limit in limits.items():
            measured = self.numbers[name]
            if measured.value is not None and measured.value > limit:
                return f"{name} {measured.amount(LIMITS[name].unit)}: more than {limit:g}"
        return ""

    @property
    def claim(self) -> Claim:
        """The verdict of exposure; other evidence can prevent "no leak shown".

        Raises:
            ValueError: the checks are missing, which only the last measurement has.
        """
        exposure = self.exposure.claim
        checks = (*exposure.checks, *self._other_evidence())
        return Claim("callback", exposure.test, checks, exposure.estimate)

    def _other_evidence(self) -> Iterator[Check]:
        epsilon = self.numbers["epsilon"]
        sentences = []
        if self.completion.verdict == claims.LEAK:
            completed = self.numbers["completed"].value
            sentences.append(f"{completed:,} planted canaries are completed verbatim.")
        if epsilon.value:
            sentences.append(f"Measured ε is at least {epsilon.value:.2g}.")
        for sentence in sentences:
            yield Check("other evidence", "failed", sentence, (claims.NO_LEAK,))


def training_leakage(
    snapshots: Sequence[LeakageSnapshot],
    *,
    limits: Mapping[str, float],
    diverged: int | None = None,
    record: Mapping[str, Any] | None = None,
) -> Result:
    """The result of a training: one row per measurement, and the verdict on the trained model.

    Args:
        snapshots: the measurements; the last one is that after the training.
        limits: limits above which the training fails, by the names of `LIMITS`.
        diverged: the first step with scores that are not finite; None without one.
        record: provenance of the result.
    """
    summary: dict[str, object] = {"diverged": diverged}
    for name, limit in LIMITS.items():
        if diverged is None:
            number = snapshots[-1].numbers[name]
            summary |= {name: number.value, f"{name}_low": number.low, f"{name}_high": number.high}
            summary[f"{name}_unit"] = limit.unit
        summary[f"{name}_limit"] = limits.get(name)
    summary["steps"] = max((snapshot.step for snapshot in snapshots), default=0)
    summary["seconds"] = sum(snapshot.seconds for snapshot in snapshots)
    return Result(
        kind="TrainingLeakage",
        summary=summary,
        rows=tuple(
            {"step": snapshot.step}
            | {name.removeprefix("vestige/"): value for name, value in snapshot.logs().items()}
            for snapshot in snapshots
        ),
        claim=snapshots[-1].claim if diverged is None else _diverged_claim(diverged),
        record=record or {},
    )


def _diverged_claim(step: int) -> Claim:
    sentence = f"The training diverged: at step {step:,} its scores are not finite."
    alive = Check("alive", "failed", sentence)
    different = Check("different", "could not run", "A model without scores has no difference.")
    return Claim("callback", None, (alive, different, claims.powerful(None)))


def training_leakage_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of `training_leakage`; it has no text."""
    summary = run.summary
    measured = [name for name in LIMITS if summary.get(name) is not None]
    last = Table(
        title="At the end of the training",
        columns=("measured", "value", "95% CI", "limit"),
        rows=tuple(
            (
                LIMITS[name].words,
                _amount_text(summary, name),
                _interval_text(summary, name),
                _number_text(summary, f"{name}_limit"),
            )
            for name in measured
        ),
        key="A dash: no interval or limit.",
    )
    steps = Table(
        title="During the training",
        columns=("step", *(LIMITS[name].words for name in measured)),
        rows=tuple(
            (f"{row['step']:,}", *(_number_text(row, name) for name in measured))
            for row in run.rows
        ),
        key="By step of the optimizer.",
    )
    facts = {name: summary.get(name) for name in ("steps", "seconds", "diverged")}
    return Report(
        title="What does the training reveal?",
        evidence=lines(training_leakage_sentence(summary)),
        blocks=(last, steps) if measured else (),
        facts=pairs(facts, show_secrets=show_secrets),
        limits=REPORT_LIMITS,
    )


def training_leakage_sentence(summary: Row) -> str:
    """The last measurements in a sentence."""
    if (step := summary.get("diverged")) is not None:
        return f"The training diverged at step {step:,}. Nothing was measured after it."
    numbers = [
        f"{limit.words} {_amount_text(summary, name)}"
        for name, limit in LIMITS.items()
        if summary.get(name) is not None
    ]
    return f"After {summary['steps']:,} steps: {'; '.join(numbers)}."


def _amount_text(summary: Row, name: str) -> str:
    return f"{_number_text(summary, name)} {summary.get(f'{name}_unit') or ''}".strip()


def _interval_text(summary: Row, name: str) -> str:
    low, high = summary.get(f"{name}_low"), summary.get(f"{name}_high")
    return NOTHING if low == high else interval(low, high)


def _number_text(row: Row, name: str) -> str:
    value = row.get(name)
    return NOTHING if value is None else f"{float(value):.4g}"
