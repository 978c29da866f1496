"""Handmade claims for handmade results."""

from dataclasses import replace
from typing import Any

from vestige.claims import LEAK, NO_LEAK, REQUIRED, UNDECIDED, Check, Claim, Estimate, Test

ONE_WAY = ("read", "powerful")
"""Checks whose failure blocks "no leak shown" alone."""


def made_checks(verb: str, *, failing: tuple[str, ...] = (), open_: tuple[str, ...] = ()):
    """The checks that a verb requires; all pass except the named ones."""

    def state(name: str) -> str:
        return "failed" if name in failing else "could not run" if name in open_ else "passed"

    return tuple(
        Check(
            name, state(name), f"The check “{name}” of {verb} {state(name)}.",
            (NO_LEAK,) if name in ONE_WAY else (LEAK, NO_LEAK),
        )
        for name in REQUIRED[verb]
    )  # fmt: skip


def made_claim(verb: str, verdict: str = NO_LEAK, **more: Any) -> Claim:
    """A claim of a verb with a verdict; `more` replaces its fields.

    It is undecided because of its check "powerful" if the verb has one.
    """
    failing = ("powerful",) if verdict == UNDECIDED and "powerful" in REQUIRED[verb] else ()
    if verdict == UNDECIDED and not failing:
        failing = REQUIRED[verb][:1]
    fields = {
        "test": Test(0.001 if verdict == LEAK else 0.4, 0.0005, 0.05, "the controls"),
        "checks": made_checks(verb, failing=failing),
        "estimate": Estimate("exposure", 7.5, 6.9, 8.1, "bits"),
    }
    claim = Claim(verb, **{**fields, **more})
    assert claim.verdict == verdict
    return claim


def with_claim(result: Any, claim: Claim) -> Any:
    """A result of the same class whose summary has this claim."""
    original = type(result)

    def summary(self: Any) -> dict[str, object]:
        return {**original.summary(self), **claim.summary()}

    changed = type(original.__name__, (original,), {"summary": summary, "claim": claim})
    copy = object.__new__(changed)
    copy.__dict__.update(result.__dict__)
    return copy


def on_run(run: Any, claim: Claim) -> Any:
    """A run of `results.run_of` with this claim."""
    from vestige.data.files import plain

    return replace(run, summary={**run.summary, **plain(claim.summary())})


def without_claim(run: Any) -> Any:
    """A run as written by an older version."""
    summary = {key: value for key, value in run.summary.items() if key != "claim"}
    return replace(run, summary={**summary, "verdict": "an old word"})
