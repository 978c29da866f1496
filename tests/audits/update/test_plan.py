"""Plans of searches: tokens, and seconds on models whose cost is known."""

import pytest
import torch

from tests.cli.conftest import table_model
from vestige.audits.update import plan
from vestige.audits.update.pair import Pair
from vestige.audits.update.plan import duration, plan_lines, seconds_of, size_for, timed, tokens_of
from vestige.audits.update.prompts import BEGINNING, Prompt
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Settings
from vestige.models.table import TableModel

WORDS = [f"word{i}" for i in range(38)]


class Clock:
    """Seconds that models take, and nothing else does."""

    def __init__(self):
        self.seconds = 0.0


class Clocked(TableModel):
    """A table that takes 5 ms a forward pass and 1 ms a row, and 2 ms a distribution."""

    clock: Clock

    def advance(self, state, tokens):
        self.clock.seconds += 0.005 + 0.001 * len(tokens)
        return super().advance(state, tokens)

    def logits(self, state):
        self.clock.seconds += 0.002 * len(state)
        return super().logits(state)


@pytest.fixture
def clocked(monkeypatch):
    clock = Clock()

    def made(seed):
        model = table_model(WORDS, seed)
        model.__class__, model.clock = Clocked, clock
        return model

    before, after = made(0), made(0)
    rows = torch.arange(0, len(WORDS), 7)  # the update changed a part of the table
    after.log_table[rows] = table_model(WORDS, 1).log_table[rows]
    monkeypatch.setattr(plan, "_now", lambda device: clock.seconds)
    return clock, before, after


def starts(*contexts):
    prompts = [Prompt(f"prompt {n}", tokens) for n, tokens in enumerate(contexts, 1)]
    return [Prompt(BEGINNING, (1,)), *prompts]


def smoothed(before, after):
    return Pair.of(before, after, TokenScore("smoothed"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.25, 1])
@pytest.mark.parametrize("contexts", [(), ((5, 6, 7), (9, 3))])
def test_tokens_are_planned_within_half_and_seconds_within_twice(clocked, size, contexts):
    # a table of random words has nothing to repair, which the plan of a real pair expects
    clock, before, after = clocked
    pair, settings, prompts = smoothed(before, after), Settings().scaled(size), starts(*contexts)
    seconds = seconds_of(settings, pair, prompts, timed(pair))
    clock.seconds = 0.0
    found = search(pair, settings, prompts)
    assert 1 / 2 < seconds / clock.seconds < 2
    assert 1 / 1.5 < tokens_of(settings, pair, prompts) / sum(found.tokens) < 1.5


def test_minutes_choose_the_largest_size_that_fits(clocked):
    _, before, after = clocked
    searched = (Settings(), smoothed(before, after), starts())
    steps = timed(searched[1])
    usual = seconds_of(*searched, steps)
    assert size_for(usual / plan.MARGIN, *searched, steps) == 1
    assert size_for(1e-3, *searched, steps) == min(plan.SIZES)
    assert size_for(1e9, *searched, steps) == max(plan.SIZES)
    sizes = [size_for(usual * times, *searched, steps) for times in (0.5, 1, 2, 4, 8)]
    assert sizes == sorted(sizes)


def test_a_plan_says_what_it_will_cost():
    def lines(seconds, minutes=None, searches=20, finished=2):
        return plan_lines(5_000, seconds, searches=searches, finished=finished, minutes=minutes)

    assert lines(5.0) == [
        "Plan: 20 searches (the update and 19 null), 2 finished earlier, 5,000 tokens each; "
        "about 2 min (5 s each)."
    ]
    assert lines(5.0, searches=1, finished=0) == ["Plan: 1 search, 5,000 tokens each; about 5 s."]
    assert "longer than 0.001 min" in lines(5.0, minutes=1e-3)[1]
    assert "pass --minutes 10" in lines(60.0)[1]


def test_a_length_of_time_in_words():
    assert [duration(s) for s in (0.2, 40, 200, 7_500)] == ["1 s", "40 s", "3 min", "2 h 05 min"]


def test_planning_leaves_the_search_as_it_is(clocked):
    _, before, after = clocked
    torch.manual_seed(0)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    pair = smoothed(before, after)
    timed(pair)
    assert torch.rand(1) == drawn
    assert pair.tokens_read == (0, 0)
