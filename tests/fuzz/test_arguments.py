"""Whatever a verb is given, it does it or refuses it in one message, and breaks nothing."""

from random import Random

import pytest
from hypothesis import given

from tests.fuzz.arguments import command_lines, sound, verbs
from tests.fuzz.cases import LONG, Case
from tests.fuzz.oracles import complaints
from tests.fuzz.trials import BUDGET, check, each_of
from tests.fuzz.world import MADE


def lines():
    """Sound lines, but for those that made the world; those of one seed are tried each time."""
    for verb in verbs():
        own = [words for words in sound(verb) if " ".join(words[:-2]) not in MADE.values()]
        short = Random(verb).choice(own) if own else None
        for words in own if verb not in LONG else ():
            marks = () if words is short else pytest.mark.long
            yield pytest.param(words, marks=marks, id=" ".join(words)[:80])


@pytest.mark.slow
@pytest.mark.parametrize("words", [*lines()])
def test_what_the_fuzzer_changes_was_sound(bench, words):
    tried = bench.attempt(Case(words), whole=True)
    assert tried.outcome.code in (0, 1, 3), (words, tried.outcome)
    assert complaints(tried) == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", verbs())
def test_arguments_are_done_or_refused(bench, verb):
    @each_of(BUDGET // 2 // len(verbs()) // (10 if verb in LONG else 1))
    @given(command_lines(verb))
    def hostile(case):
        check(bench, case)

    hostile()
