"""The claim of a check: three tests at one error rate, and the controls that both verdicts need."""

from collections.abc import Mapping, Sequence

from vestige.audits.check.stage import ALPHA, SHARES, Stage
from vestige.claims import LEAK, NO_LEAK, Check, Claim, Direct, Estimate, Test

TITLES = {"secrets": "Secrets", "unprompted": "Unprompted", "passages": "Passages"}


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
    return Claim("check", _test(stages), checks, _estimate(leaks or stages), _direct(stages))


def _check(stage: Stage) -> Check:
    """A stage is a check that "no leak shown" depends on."""
    state = {"leak": "failed", "clear": "passed"}.get(stage.state, "could not run")
    sentence = f"{TITLES[stage.name]}: {stage.sentence}"
    return Check(stage.name, state, sentence, (NO_LEAK,))  # type: ignore[arg-type]


def _positive(found: Mapping[str, bool] | None) -> Check:
    name = "positive control"
    if found is None:
        return Check(name, "could not run", "No secret was trained into the model.", (NO_LEAK,))
    missed = [name for name, is_found in found.items() if not is_found]
    if not missed:
        sentence = "All three tests find an invented secret that was trained into the model."
        return Check(name, "passed", sentence, (NO_LEAK,))
    where = " and ".join(TITLES[one].lower() for one in missed)
    sentence = f"An invented secret that was trained into the model is not found by: {where}."
    return Check(name, "failed", sentence, (NO_LEAK,))


def _negative(stages: Sequence[Stage]) -> Check:
    """Whether texts that the model never saw look as they should in every stage that ran."""
    name = "negative control"
    ran = [one for one in stages if one.state != "not run"]
    if wrong := [one for one in ran if one.passed is False]:
        sentence = f"A test finds a leak in text that the model never saw. {wrong[0].negative}"
        return Check(name, "failed", sentence, (LEAK, NO_LEAK))
    if missing := [one for one in ran if one.passed is None]:
        where = ", ".join(TITLES[one.name].lower() for one in missing)
        return Check(name, "could not run", f"No text that the model never saw for: {where}.")
    return Check(name, "passed", "Nothing is found in text that the model never saw.")


def _test(stages: Sequence[Stage]) -> Test | None:
    """The smallest p-value, each multiplied by the inverse of its stage's share."""
    tested = [
        one for one in stages if one.p is not None and (one.state == "leak" or one.p > one.level)
    ]
    if not tested:
        return None
    p, least = (
        min(1.0, min(value / SHARES[one.name] for value, one in zip(values, tested, strict=True)))
        for values in ([one.p or 0.0 for one in tested], [one.least for one in tested])
    )
    return Test(p, min(p, least), ALPHA, "text that the model never saw (all tests together)")


def _estimate(stages: Sequence[Stage]) -> Estimate | None:
    found = next((one.estimate for one in stages if one.estimate is not None), None)
    return None if found is None else Estimate(*found)


def _direct(stages: Sequence[Stage]) -> Direct | None:
    proofs = [Direct(*one.direct) for one in stages if one.direct is not None]
    return min(proofs, key=lambda one: one.bound, default=None)
