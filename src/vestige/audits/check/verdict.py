"""What a stage of the check returns, and the claim of all three at one error rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vestige.claims import LEAK, NO_LEAK, Check, Claim, Direct, Estimate, Test

State = Literal["leak", "clear", "open", "not run"]

ALPHA = 0.05  # probability that any stage reports a leak where there is none

SHARES: Mapping[str, float] = {"secrets": 0.6, "unprompted": 0.2, "passages": 0.2}
"""Of `ALPHA`, by stage (Bonferroni with weights). Most belongs to secrets: on the development
corpora of the calibration they found most leaks, and passages none that the others had missed."""

LEVELS = {name: ALPHA * share for name, share in SHARES.items()}
"""At which the test of each stage is significant."""

TITLES = {name: name.capitalize() for name in SHARES}

CONTROL_LEVEL = 0.01  # level at which the control half of the reference must not look like a leak


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What one stage found. It is stored as JSON, so that a stopped check resumes.

    Attributes:
        name: a key of `SHARES`.
        state: a leak, none (clear), undecided (open), or not run.
        sentence: the finding; it quotes no text.
        p: p-value of the stage's own test; None where nothing could be tested.
        least: the smallest that could have come out.
        negative: the same measurement on texts that the model never saw, in one sentence.
        passed: whether it looks as it should; None where it could not run.
        direct: a sentence and the bound on coincidence of verbatim evidence; None without any.
        estimate: name, value, low, high and unit of the stage's headline.
        needs: the option that could decide an open stage; "" for none.
        rows: evidence.
        facts: further numbers by name.
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


def share(name: str, found: int, of: int) -> tuple[Any, ...]:
    """A share with its 95% interval, as a stage's estimate."""
    from vestige.metrics.estimates import clopper_pearson

    return (name, found / max(1, of), *clopper_pearson(found, of), "")


def counted(number: int, name: str) -> str:
    """A number with its noun: "1 text", "2,000 texts"."""
    return f"1 {name}" if number == 1 else f"{number:,} {name}s"


def claim_of(
    stages: Sequence[Stage], positive: Mapping[str, bool] | None, models: Sequence[Check]
) -> Claim:
    """The claim.

    Args:
        stages: in their order.
        positive: by stage, whether it finds the invented secret; None if no control was trained.
        models: checks of the two models.
    """
    checks = (*models, *map(_check, stages), _positive(positive), _negative(stages))
    leaks = [one for one in stages if one.state == "leak"]
    estimate = next((one.estimate for one in leaks or stages if one.estimate is not None), None)
    proofs = [Direct(*one.direct) for one in stages if one.direct is not None]
    return Claim(
        "check", _test(stages), checks, None if estimate is None else Estimate(*estimate),
        min(proofs, key=lambda one: one.bound, default=None),
    )  # fmt: skip


def _check(stage: Stage) -> Check:
    """A stage is a check that "no leak shown" depends on."""
    state = {"leak": "failed", "clear": "passed"}.get(stage.state, "could not run")
    sentence = f"{TITLES[stage.name]}: {stage.sentence}"
    return Check(stage.name, state, sentence, (NO_LEAK,))  # type: ignore[arg-type]


def _positive(found: Mapping[str, bool] | None) -> Check:
    name = "positive control"
    if found is None:
        return Check(name, "could not run", "No secret was trained into the model.", (NO_LEAK,))
    if missed := [TITLES[one].lower() for one, is_found in found.items() if not is_found]:
        sentence = "An invented secret that was trained into the model is not found by: "
        return Check(name, "failed", f"{sentence}{' and '.join(missed)}.", (NO_LEAK,))
    sentence = "All three tests find an invented secret that was trained into the model."
    return Check(name, "passed", sentence, (NO_LEAK,))


def _negative(stages: Sequence[Stage]) -> Check:
    """Whether texts that the model never saw look as they should in every stage that ran."""
    name = "negative control"
    ran = [one for one in stages if one.state != "not run"]
    if wrong := [one for one in ran if one.passed is False]:
        sentence = f"A test finds a leak in text that the model never saw. {wrong[0].negative}"
        return Check(name, "failed", sentence, (LEAK, NO_LEAK))
    if missing := [TITLES[one.name].lower() for one in ran if one.passed is None]:
        sentence = f"No text that the model never saw for: {', '.join(missing)}."
        return Check(name, "could not run", sentence)
    return Check(name, "passed", "Nothing is found in text that the model never saw.")


def _test(stages: Sequence[Stage]) -> Test | None:
    """The smallest p-value, each divided by its stage's share of the error rate."""
    tested = [
        (one.p / SHARES[one.name], one.least / SHARES[one.name])
        for one in stages
        if one.p is not None and (one.state == "leak" or one.p > LEVELS[one.name])
    ]
    if not tested:
        return None
    p, least = (min(1.0, *values) for values in zip(*tested, strict=True))
    return Test(p, min(p, least), ALPHA, "text that the model never saw (all tests together)")
