"""A claim has the verdict that its test and checks support, and needs all required checks."""

import json
from itertools import product

import pytest

from vestige.claims import LEAK, NO_LEAK, REQUIRED, UNDECIDED, Check, Claim, Direct, Test

STATES = ("passed", "failed", "could not run")
NO_LEAK_ONLY = ("read", "powerful")
"""Checks that a leak does not need."""
TESTS = (
    None,
    Test(0.001, 0.001, 0.05, "x"),
    Test(0.5, 0.001, 0.05, "x"),
    Test(0.5, 0.2, 0.05, "x"),
)


def checks(verb, states):
    return tuple(
        Check(
            name,
            state,
            f"{name} {state}.",
            (NO_LEAK,) if name in NO_LEAK_ONLY else (LEAK, NO_LEAK),
        )
        for name, state in zip(REQUIRED[verb], states, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("verb", REQUIRED)
def test_every_combination_of_checks_has_the_verdict_it_supports(verb):
    for states in product(STATES, repeat=len(REQUIRED[verb])):
        blocking = {
            state
            for name, state in zip(REQUIRED[verb], states, strict=True)
            if name not in NO_LEAK_ONLY
        }
        for test in TESTS:
            claim = Claim(verb, test, checks(verb, states))
            if test is None or not test.possible:
                assert claim.verdict == UNDECIDED
            elif test.significant:
                assert claim.verdict == (UNDECIDED if "failed" in blocking else LEAK)
            else:
                assert claim.verdict == (NO_LEAK if set(states) == {"passed"} else UNDECIDED)


def test_reasons_of_an_undecided_claim_list_failures_first():
    claim = Claim("diff", TESTS[2], checks("diff", ("could not run", "failed", "passed")))
    assert claim.reasons == ("different failed.", "alive could not run.")
    assert [check.name for check in claim.failed] == ["different", "alive"]


def test_a_check_that_could_not_run_does_not_block_a_leak():
    assert Claim("diff", TESTS[1], checks("diff", ("could not run",) * 3)).verdict == LEAK


def test_a_claim_needs_all_required_checks():
    with pytest.raises(ValueError, match="needs checks: comparable, independent"):
        Claim("extract texts", TESTS[2], checks("extract texts", ("passed",) * 5)[:2])
    with pytest.raises(ValueError, match="no checks are listed for guess"):
        Claim("guess", None, ())


@pytest.mark.parametrize("test", TESTS)
def test_a_loaded_claim_equals_the_saved_one(test):
    claim = Claim("diff", test, checks("diff", ("passed", "failed", "passed")))
    assert Claim.from_summary(json.loads(json.dumps(claim.summary()))) == claim


def test_an_edited_verdict_is_refused():
    claim = Claim("diff", TESTS[2], checks("diff", ("failed", "passed", "passed")))
    with pytest.raises(ValueError, match="allow the verdict “undecided” only"):
        Claim.from_summary({**claim.summary(), "verdict": NO_LEAK})


@pytest.mark.parametrize(
    "damage",
    [
        lambda claim: claim.pop("checks"),
        lambda claim: claim["checks"].pop(),
        lambda claim: claim["checks"][0].update(state="fine"),
        lambda claim: claim["checks"][0].update(blocks=["undecided"]),
        lambda claim: claim["test"].update(p=2.0),
        lambda claim: claim["test"].update(alpha=0.0),
        lambda claim: claim.update(verb="guess"),
        lambda claim: claim.update(test=[1]),
    ],
)
def test_a_damaged_claim_is_refused(damage):
    claim = Claim("diff", TESTS[2], checks("diff", ("passed",) * 3))
    saved = json.loads(json.dumps(claim.summary()))
    damage(saved["claim"])
    with pytest.raises(ValueError):  # noqa: PT011
        Claim.from_summary(saved)


def test_direct_evidence_is_a_leak_if_coincidence_is_improbable():
    failed = checks("diff", ("failed",) * 3)
    assert Claim("diff", None, failed, direct=Direct("x", 1e-4)).verdict == LEAK
    assert Claim("diff", None, failed, direct=Direct("x", 0.01)).verdict == UNDECIDED
