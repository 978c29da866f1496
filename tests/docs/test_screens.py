"""The verdicts that the guides print are those that their commands reach on the practice folder."""

import os

import pytest

from tests.docs.documents import REPOSITORY
from tests.docs.screens import make_practice, printed
from tests.docs.steps import STEPS

PAGES = sorted(
    {
        name.partition(":")[0]
        for name, blocks in STEPS.items()
        for b in blocks
        for s in b
        if s.screen
    }
)
VERDICTS = ("LEAK", "NO LEAK SHOWN", "UNDECIDED")


@pytest.fixture(scope="module")
def practice(tmp_path_factory):
    return make_practice(tmp_path_factory.mktemp("screens") / "practice")


def verdict(lines) -> str:
    """The verdict that a screen begins with; "" without one."""
    first = os.linesep.join(lines)
    return next((one for one in VERDICTS if first.startswith(one)), "")


def test_the_guides_show_every_verdict():
    screens = [s.screen for blocks in STEPS.values() for b in blocks for s in b if s.screen]
    assert set(VERDICTS) <= {verdict(screen) for screen in screens}


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_a_command_reaches_the_verdict_that_is_printed(page, practice):
    for step, output in printed(REPOSITORY / page, practice):
        if step.screen:
            assert verdict(output.splitlines()) == verdict(step.screen), step.text
