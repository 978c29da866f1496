"""Whatever a verb is given, it does it or refuses it in one message, and breaks nothing."""

import pytest
from hypothesis import given

from tests.fuzz.arguments import command_lines, sound, verbs
from tests.fuzz.cases import LONG, Case
from tests.fuzz.oracles import complaints
from tests.fuzz.trials import BUDGET, check, each_of
from tests.fuzz.world import MADE


@pytest.mark.parametrize("verb", [verb for verb in verbs() if verb != "demo"])
def test_what_the_fuzzer_changes_was_sound(bench, verb):
    for words in sound(verb):
        if " ".join(words[:-2]) in MADE.values():
            continue  # the world was made by it
        tried = bench.attempt(Case(words), whole=True)
        assert tried.outcome.code in (0, 1, 3), (words, tried.outcome)
        assert complaints(tried) == []


@pytest.mark.parametrize("verb", verbs())
def test_arguments_are_done_or_refused(bench, verb):
    @each_of(BUDGET // 2 // len(verbs()) // (10 if verb in LONG else 1))
    @given(command_lines(verb))
    def hostile(case):
        check(bench, case)

    hostile()
