"""The verdicts in the guides are those of their commands in the practice folder."""

import pytest

from tests.docs.documents import REPOSITORY
from tests.docs.screens import make_practice, printed
from tests.docs.steps import STEPS

SCREENS = [
    (name.partition(":")[0], step.screen)
    for name, blocks in STEPS.items()
    for block in blocks
    for step in block
    if step.screen
]
VERDICTS = ("LEAK", "NO LEAK SHOWN", "UNDECIDED")


@pytest.fixture(scope="module")
def practice(tmp_path_factory):
    return make_practice(tmp_path_factory.mktemp("screens") / "practice")


def verdict(lines) -> str:
    """The verdict at the beginning of a screen, or ""."""
    text = "\n".join(lines)
    return next((name for name in VERDICTS if text.startswith(name)), "")


def test_the_guides_show_all_verdicts():
    assert set(VERDICTS) <= {verdict(screen) for _, screen in SCREENS}


@pytest.mark.long
@pytest.mark.parametrize("page", sorted({page for page, _ in SCREENS}))
def test_commands_reach_the_printed_verdicts(page, practice):
    for step, output in printed(REPOSITORY / page, practice):
        if step.screen:
            assert verdict(output.splitlines()) == verdict(step.screen), step.text
