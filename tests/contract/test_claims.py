"""A verb gives a verdict only where its conditions hold.

`make long` tries all conditions, `make test` three for each verb: a leak, no leak, and a model that
can show nothing, sampled by a seed.
"""

from random import Random

import pytest

import vestige
from tests.contract.claims import DEAD, MUST_CLEAR, MUST_LEAK, NOT_CLEARED, OPEN, cells
from tests.contract.world import World
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.errors import VestigeError

SLOW = {
    "diff", "check", "compare", "callback", "unlearning --retrained", "membership --base",
}  # fmt: skip
"""Verbs whose cells take many seconds or are variants of others."""
QUICK_OF_SLOW = [("check", "unchanged"), ("check", "broken")]

GATED = {
    ("extract texts", "zero"): (("memorized=5",), OPEN),
    ("extract texts", "random"): (("memorized=5",), OPEN),
    ("extract texts", "unchanged"): (("memorized=5",), OPEN),
    ("extract texts", "leak"): (("memorized=5",), MUST_LEAK),
    ("extract texts", "clean"): ((), MUST_CLEAR),
    ("extract texts", "beyond the context"): ((), NOT_CLEARED),
    ("membership", "zero"): (("used=3",), OPEN),
    ("membership", "random"): (("used=3",), OPEN),
    ("membership", "unchanged"): (("used=3",), OPEN),
    ("membership", "leak"): (("used=3",), MUST_LEAK),
    ("membership", "clean"): ((), MUST_CLEAR),
    ("membership", "beyond the context"): ((), NOT_CLEARED),
    ("unlearning", "zero"): (("left=0.2",), OPEN),
    ("unlearning", "random"): (("left=0.2",), OPEN),
    ("unlearning", "leak"): (("left=0.9",), MUST_LEAK),
    ("exposure", "zero"): (("exposure=3",), OPEN),
    ("exposure", "random"): (("exposure=3",), OPEN),
    ("exposure", "leak"): (("exposure=3",), MUST_LEAK),
    ("extract canaries", "zero"): (("completed=0",), OPEN),
    ("exposure secrets", "zero"): ((), OPEN),
    ("extract secrets", "zero"): ((), OPEN),
    ("diff", "same model"): (("found=0",), OPEN),
    ("diff", "zero"): (("found=0",), OPEN),
    ("diff --secrets", "leak"): ((), NOT_CLEARED),
    ("membership users", "zero"): (("members=0",), OPEN),
}
"""Limits for results, and the verdicts that `report` may give with and without the limits."""


def sample(seed: int = 0) -> set[tuple[str, str]]:
    """The cells of `make test`."""
    generator, names = Random(seed), {*QUICK_OF_SLOW}
    for verb in sorted(cells(None).keys() - SLOW):
        names |= {(verb, name) for name in ("leak", "clean", generator.choice(DEAD))}
    return names


def conditions():
    """All cells; those outside the sample are long tests."""
    sampled = sample()
    for verb, names in cells(None).items():
        for name in names:
            mark = pytest.mark.slow if (verb, name) in sampled else pytest.mark.long
            yield pytest.param(verb, name, marks=mark)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return cells(World(tmp_path_factory.mktemp("contract") / "world"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("verb", "condition"), [*conditions()])
def test_a_verdict_is_given_only_under_its_conditions(table, tmp_path, verb, condition):
    """The verdicts of a verb and of `report`; a refusal of one line counts as undecided."""
    cell, refusal = table[verb][condition], ""
    try:
        result = cell.call()
    except (VestigeError, ValueError) as error:
        result, refusal = UNDECIDED, str(error).strip()
    assert "\n" not in refusal
    assert getattr(result, "verdict", result) in cell.allowed
    if (verb, condition) in GATED and result is not UNDECIDED:
        limits, allowed = GATED[verb, condition]
        folder = result.save(tmp_path / "run")
        for fail_above in {(), limits}:
            code = vestige.report([folder], fail_above=list(fail_above)).exit_code
            assert {0: NO_LEAK, 1: LEAK, 3: UNDECIDED}[code] in allowed, fail_above
