"""Plans of searches: operations by their formula, seconds on models whose cost is known."""

import pytest
import torch

from tests.cli.conftest import table_model
from vestige.attacks.update.forward_tokens import Passes
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.seed_and_extend import Effort, SeedAndExtend
from vestige.attacks.update.token_scores import token_score
from vestige.attacks.update.update_diff import update_diff
from vestige.data.vocabulary import WordVocabulary
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.table import TableModel
from vestige.models.transformer import CausalTransformer, TransformerConfig
from vestige.workflows import update_planner
from vestige.workflows.update_plan import ModelCost, spoken
from vestige.workflows.update_planner import Planner, sized

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
    monkeypatch.setattr(update_planner, "_now", lambda device: clock.seconds)
    return clock, before, after


@pytest.mark.parametrize("size", [0.25, 1])
@pytest.mark.parametrize("contexts", [(), ((5, 6, 7), (9, 3))])
def test_tokens_are_planned_within_half_and_seconds_within_twice(clocked, size, contexts):
    # a table of random words has nothing to repair, which the plan of a real pair expects
    clock, before, after = clocked
    score = token_score("smoothed")
    planner = Planner(ModelPair(before, after, score), contexts)
    search = sized(SeedAndExtend(), size)
    plan = planner.plan(search, searches=1, left=1, names=(), size=size)
    clock.seconds = 0.0
    effort = Effort(contexts=dict.fromkeys(contexts, "a prompt"))
    found = update_diff(before, after, search=search, score=score, effort=effort)
    assert 1 / 2 < plan.seconds / clock.seconds < 2
    assert 1 / 1.5 < plan.work.total / found.searched.forward_tokens < 1.5


def test_minutes_choose_the_largest_size_that_fits(clocked):
    _, before, after = clocked
    planner = Planner(ModelPair(before, after, token_score("smoothed")), ())
    usual = planner.seconds(SeedAndExtend().planned(planner.pair))
    assert planner.size_for(SeedAndExtend(), usual / update_planner.MARGIN) == 1
    assert planner.size_for(SeedAndExtend(), 1e-3) == min(update_planner.SIZES)
    assert planner.size_for(SeedAndExtend(), 1e9) == max(update_planner.SIZES)
    sizes = [planner.size_for(SeedAndExtend(), usual * times) for times in (0.5, 1, 2, 4, 8)]
    assert sizes == sorted(sizes)


def vocabulary():
    return WordVocabulary(("<unk>", "<eos>", *WORDS))


def test_a_token_costs_two_operations_a_parameter():
    model = LSTMLanguageModel(
        vocabulary(), LSTMConfig(layers=2, embedding_size=8, hidden_size=8, tied=False)
    )
    cost = ModelCost.of(model)
    assert cost.body == 2 * (4 * 8 * (8 + 8) + 2 * 4 * 8) + 40  # gates with biases, the head's bias
    assert (cost.head, cost.attention) == (40 * 8, 0)
    passes = Passes(proposal="samples", kind="decode", rows=3, count=5, behind=7, asked=2)
    assert cost.operations(passes) == 5 * (3 * 2 * cost.body + 2 * 2 * cost.head)
    assert cost.operations(passes, share=0.5) == cost.operations(passes) / 2


def test_attention_costs_four_widths_a_layer_for_each_token_behind():
    shape = TransformerConfig(layers=2, heads=2, hidden_size=8, feed_forward=16, max_length=12)
    cost = ModelCost.of(CausalTransformer(vocabulary(), shape))
    assert cost.attention == 4 * 2 * 8
    near, far = (
        cost.operations(Passes(proposal="samples", kind="decode", rows=1, behind=behind))
        for behind in (0, 10)
    )
    assert far - near == 10 * cost.attention


def test_a_plan_says_what_it_will_cost(clocked):
    _, before, after = clocked
    planner = Planner(ModelPair(before, after, token_score("smoothed")), ())
    plan = planner.plan(SeedAndExtend(), searches=20, left=18, names=["prompt 1"], size=1.0)
    first, behind, *_ = plan.lines(None)
    assert first.startswith("Plan: 20 searches (the update and 19 null), 2 done before, of ")
    assert f"{plan.work.total:,} forward tokens" in first
    assert behind == "It begins behind: the beginning of a document, prompt 1."
    assert any("more than 0.001 min" in line for line in plan.lines(1e-3))


def test_a_length_of_time_in_words():
    assert [spoken(s) for s in (0.2, 40, 200, 7_500)] == ["1 s", "40 s", "3 min", "2 h 05 min"]


def test_planning_leaves_the_search_as_it_is(clocked):
    _, before, after = clocked
    torch.manual_seed(0)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    planner = Planner(ModelPair(before, after, token_score("smoothed")), ())
    planner.plan(SeedAndExtend(), searches=1, left=1, names=(), size=1.0)
    assert torch.rand(1) == drawn
    assert planner.pair.cost.total == 0
