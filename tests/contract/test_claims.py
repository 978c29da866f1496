"""The contract of every verb: a verdict is given only where its conditions hold.

`make long` asks everything. `make test` asks a verb once where there is a leak, once where there is
none, and once of a model that can show nothing, which a seed draws.
"""

from random import Random

import pytest

import vestige
from tests.contract.claims import DEAD, MUST_CLEAR, MUST_LEAK, NOT_CLEARED, OPEN, cells
from tests.contract.world import World
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.errors import VestigeError

SLOW = {
    "diff", "check", "compare", "callback", "PrivateTrainer", "unlearning --retrained",
    "membership --base",
}  # fmt: skip
"""Whose cells take many seconds, or are variants of others."""
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
"""Results, limits for them, and what `report` may say of each, with the limits and without."""

NAMES = {verb: list(own) for verb, own in cells(None).items()}  # nothing is asked yet


def sample(seed: int = 0) -> list[tuple[str, str]]:
    """The cells of `make test`."""
    draw, chosen = Random(seed), [*QUICK_OF_SLOW]
    for verb in sorted(NAMES.keys() - SLOW):
        chosen += [(verb, name) for name in ("leak", "clean", draw.choice(DEAD))]
    return chosen


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("contract") / "world")


@pytest.fixture(scope="module")
def table(world):
    return cells(world)


def judged(table, world, verb, condition):
    """What the verb says, and what `report` says of its result; a refusal in a line is no claim."""
    cell = table[verb][condition]
    found, refusal = UNDECIDED, ""
    try:
        found = cell.ask()
    except (VestigeError, ValueError) as error:
        refusal = str(error).strip()
    assert "\n" not in refusal
    assert getattr(found, "verdict", found) in cell.allowed
    if (verb, condition) in GATED and found is not UNDECIDED:
        limits, allowed = GATED[verb, condition]
        folder = found.save(world.folder / "runs" / f"{verb} {condition}".replace(" ", "-"))
        for given in {(), limits}:
            code = vestige.report([folder], fail_above=list(given)).exit_code
            assert {0: NO_LEAK, 1: LEAK, 3: UNDECIDED}[code] in allowed, given


def everything():
    return [(verb, name) for verb, names in NAMES.items() for name in names]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("verb", "condition"), sample())
def test_a_sample_says_no_more_than_its_conditions_allow(table, world, verb, condition):
    judged(table, world, verb, condition)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("verb", "condition"), sorted({*everything()} - {*sample()}))
def test_no_verb_says_more_than_its_conditions_allow(table, world, verb, condition):
    judged(table, world, verb, condition)
