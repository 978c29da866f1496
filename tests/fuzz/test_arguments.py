"""A verb completes or refuses any arguments in one message, and damages no files."""

from random import Random

import pytest
from hypothesis import given

from tests.fuzz.arguments import command_lines, sound, verbs
from tests.fuzz.cases import LONG, Case
from tests.fuzz.oracles import complaints
from tests.fuzz.trials import BUDGET, check, each_of
from tests.fuzz.world import COMMANDS


def lines():
    """Sound lines that did not make the world; all but a random one per verb are long tests."""
    for verb in verbs():
        commands = COMMANDS.values()
        others = [words for words in sound(verb) if " ".join(words[:-2]) not in commands]
        sampled = Random(verb).choice(others) if others else None
        for words in others if verb not in LONG else ():
            marks = () if words is sampled else pytest.mark.long
            yield pytest.param(words, marks=marks, id=" ".join(words)[:80])


@pytest.mark.slow
@pytest.mark.parametrize("words", [*lines()])
def test_lines_without_changes_are_sound(bench, words):
    attempt = bench.attempt(Case(words), to_end=True)
    assert attempt.outcome.code in (0, 1, 3), (words, attempt.outcome)
    assert complaints(attempt) == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", verbs())
def test_a_verb_completes_or_refuses_hostile_arguments(bench, verb):
    @each_of(BUDGET // 2 // len(verbs()) // (10 if verb in LONG else 1))
    @given(command_lines(verb))
    def hostile(case):
        check(bench, case)

    hostile()
