"""Plans of searches: tokens, and seconds on models whose cost is known."""

import pytest
import torch

from tests.audits.update.worlds import word_table
from vestige.audits.update import plan
from vestige.audits.update.pair import Pair
from vestige.audits.update.plan import duration, plan_lines, seconds_of, size_for, timed, tokens_of
from vestige.audits.update.prompts import BEGINNING, Prompt
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Settings
from vestige.models.table import TableModel

WORDS = [f"word{i}" for i in range(38)]


class Clocked(TableModel):
    """A table that counts 5 ms per forward pass, 1 ms per row and 2 ms per distribution."""

    seconds = 0.0

    def advance(self, state, tokens):
        Clocked.seconds += 0.005 + 0.001 * len(tokens)
        return super().advance(state, tokens)

    def logits(self, state):
        Clocked.seconds += 0.002 * len(state)
        return super().logits(state)


@pytest.fixture
def pair(monkeypatch):
    """Clocked tables; the update changed every seventh row."""
    monkeypatch.setattr(plan, "_now", lambda device: Clocked.seconds)
    models = [word_table(0, WORDS, 0.1), word_table(0, WORDS, 0.1)]
    rows = torch.arange(0, len(WORDS), 7)
    models[1].log_table[rows] = word_table(1, WORDS, 0.1).log_table[rows]
    for model in models:
        model.__class__ = Clocked
    return Pair.of(*models, TokenScore("smoothed"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.25, 1])
@pytest.mark.parametrize("contexts", [(), ((5, 6, 7), (9, 3))])
def test_planned_tokens_and_seconds_are_about_right(pair, size, contexts):
    # Tables need no repair, so the plan is a little too large.
    starts = [Prompt(f"prompt {n}", tokens) for n, tokens in enumerate(contexts, 1)]
    settings, prompts = Settings().scaled(size), [Prompt(BEGINNING, (1,)), *starts]
    seconds = seconds_of(settings, pair, prompts, timed(pair))
    start = Clocked.seconds
    result = search(pair, settings, prompts)
    assert 1 / 2 < seconds / (Clocked.seconds - start) < 2
    assert 1 / 1.5 < tokens_of(settings, pair, prompts) / sum(result.tokens) < 1.5


def test_timing_changes_no_random_state_and_no_count_of_tokens(pair):
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    timed(pair)
    assert torch.rand(1) == expected
    assert pair.tokens_read == (0, 0)


def test_minutes_choose_the_largest_size_that_fits(pair):
    options = (Settings(), pair, [Prompt(BEGINNING, (1,))], timed(pair))
    default = seconds_of(*options)
    assert size_for(default / plan.MARGIN, *options) == 1
    assert size_for(1e-3, *options) == min(plan.SIZES)
    assert size_for(1e9, *options) == max(plan.SIZES)
    sizes = [size_for(default * factor, *options) for factor in (0.5, 1, 2, 4, 8)]
    assert sizes == sorted(sizes)


NULLS = {"searches": 20, "finished": 2}
ALONE = {"searches": 1, "finished": 0}


@pytest.mark.parametrize(
    ("seconds", "searches", "minutes", "line"),
    [
        (5.0, NULLS, None,
         "Plan: 20 searches (the update and 19 null), 2 finished earlier, 5,000 tokens each; "
         "about 2 min (5 s each)."),
        (5.0, ALONE, None, "Plan: 1 search, 5,000 tokens each; about 5 s."),
        (5.0, NULLS, 1e-3,
         "Even the smallest search takes longer than 0.001 min. It stops then; rerun to resume."),
        (60.0, NULLS, None, "To limit the time, pass --minutes 10. An interrupted run resumes."),
    ],
)  # fmt: skip
def test_a_plan_states_its_cost(seconds, searches, minutes, line):
    assert line == plan_lines(5_000, seconds, **searches, minutes=minutes)[-1]


def test_a_duration_in_words():
    assert [duration(s) for s in (0.2, 40, 200, 7_500)] == ["1 s", "40 s", "3 min", "2 h 05 min"]
