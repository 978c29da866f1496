"""The result of a stage, and the claim of all three stages at one error rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vestige.claims import LEAK, NO_LEAK, Check, Claim, Direct, Estimate, Test

State = Literal["leak", "clear", "open", "not run"]

ALPHA = 0.05  # probability that any stage reports a leak where there is none

SHARES: Mapping[str, float] = {"secrets": 0.6, "unprompted": 0.2, "passages": 0.2}
"""Share of `ALPHA` by stage (weighted Bonferroni). On the development corpora of the calibration,
the secrets stage found most leaks, and the passages stage none that the others had missed."""

LEVELS = {name: ALPHA * share for name, share in SHARES.items()}
"""Significance level by stage."""

TITLES = {name: name.capitalize() for name in SHARES}

CONTROL_LEVEL = 0.01  # a negative control with a smaller p-value fails


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The result of one stage. It is stored as JSON, so that a stopped check resumes.

    Attributes:
        name: a key of `SHARES`.
        state: a leak, no leak (clear), undecided (open), or not run.
        sentence: the finding; it quotes no text.
        p: p-value of the stage's test; None if nothing could be tested.
        least: smallest p-value that the test can return.
        negative: result of the negative control (texts that the model never saw), one sentence.
        passed: whether the negative control passed; None if it could not run.
        direct: verbatim evidence: a sentence, and a bound on the probability of coincidence.
        estimate: name, value, low, high and unit of the main number.
        needs: the option that could decide an open stage; "" for none.
        rows: rows of the result's table.
        facts: entries of the result's summary.
    """

    name: str
    state: State
    sentence: str
    p: float | None = None
    least: float = 1.0
    negative: str = ""
    passed: bool | None = None
    direct: Sequence[Any] | None = None
    estimate: Sequence[Any] | None = None
    needs: str = ""
    rows: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def share(name: str, count: int, total: int) -> tuple[Any, ...]:
    """A share with its 95% interval, as the estimate of a stage."""
    from vestige.metrics.estimates import clopper_pearson

    return (name, count / max(1, total), *clopper_pearson(count, total), "")


def counted(number: int, name: str) -> str:
    """A number with its noun: "1 text", "2,000 texts"."""
    return f"1 {name}" if number == 1 else f"{number:,} {name}s"


def claim_of(
    stages: Sequence[Stage], positive: Mapping[str, bool] | None, model_checks: Sequence[Check]
) -> Claim:
    """The claim of a whole check.

    Args:
        stages: in the order in which they ran.
        positive: by stage, whether it finds the invented secret; None if no control was trained.
        model_checks: checks of the two models.
    """
    checks = (
        *model_checks, *map(_stage_check, stages), _positive_check(positive),
        _negative_check(stages),
    )  # fmt: skip
    leaks = [stage for stage in stages if stage.state == "leak"]
    estimates = [stage.estimate for stage in leaks or stages if stage.estimate is not None]
    evidence = [Direct(*stage.direct) for stage in stages if stage.direct is not None]
    return Claim(
        "check", _test(stages), checks, Estimate(*estimates[0]) if estimates else None,
        min(evidence, key=lambda direct: direct.bound, default=None),
    )  # fmt: skip


def _stage_check(stage: Stage) -> Check:
    """A stage is a check that "no leak shown" depends on."""
    state = {"leak": "failed", "clear": "passed"}.get(stage.state, "could not run")
    sentence = f"{TITLES[stage.name]}: {stage.sentence}"
    return Check(stage.name, state, sentence, (NO_LEAK,))  # type: ignore[arg-type]


def _positive_check(positive: Mapping[str, bool] | None) -> Check:
    name = "positive control"
    if positive is None:
        return Check(name, "could not run", "No secret was trained into the model.", (NO_LEAK,))
    if missed := [TITLES[stage].lower() for stage, found in positive.items() if not found]:
        sentence = "An invented secret that was trained into the model is not found by: "
        return Check(name, "failed", f"{sentence}{' and '.join(missed)}.", (NO_LEAK,))
    sentence = "All three tests find an invented secret that was trained into the model."
    return Check(name, "passed", sentence, (NO_LEAK,))


def _negative_check(stages: Sequence[Stage]) -> Check:
    """Whether no stage finds a leak in text that the model never saw."""
    name = "negative control"
    ran = [stage for stage in stages if stage.state != "not run"]
    if failed := [stage for stage in ran if stage.passed is False]:
        sentence = f"A test finds a leak in text that the model never saw. {failed[0].negative}"
        return Check(name, "failed", sentence, (LEAK, NO_LEAK))
    if missing := [TITLES[stage.name].lower() for stage in ran if stage.passed is None]:
        sentence = f"No text that the model never saw for: {', '.join(missing)}."
        return Check(name, "could not run", sentence)
    return Check(name, "passed", "Nothing is found in text that the model never saw.")


def _test(stages: Sequence[Stage]) -> Test | None:
    """The smallest p-value, each divided by its stage's share of the error rate."""
    weighted = [
        (stage.p / SHARES[stage.name], stage.least / SHARES[stage.name])
        for stage in stages
        if stage.p is not None and (stage.state == "leak" or stage.p > LEVELS[stage.name])
    ]
    if not weighted:
        return None
    p, least = (min(1.0, *values) for values in zip(*weighted, strict=True))
    return Test(p, min(p, least), ALPHA, "text that the model never saw (all tests together)")
