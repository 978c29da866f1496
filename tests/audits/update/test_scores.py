"""Scores of tokens, of phrases and of null models against their formulas and against chance."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vestige.audits.update.nulls import LEVEL, NEEDED, NullScores, joint_p_value
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import NAMES, TokenScore

# One token: the gain of its probability.


logits = st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=6)


def softmax(values):
    weights = [math.exp(v - max(values)) for v in values]
    return [w / sum(weights) for w in weights]


def naive(name, p, q, delta):
    return {
        "differential": q - p,
        "relative": (q - p) / p,
        "smoothed": math.log((q + delta) / (p + delta)),
    }[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_every_score_follows_its_formula(name, data):
    before = data.draw(logits)
    size = len(before)
    after = data.draw(st.lists(st.floats(-20, 20, width=32), min_size=size, max_size=size))
    pairs = zip(softmax(before), softmax(after), strict=True)
    expected = [naive(name, p, q, 0.02) for p, q in pairs]
    gain = TokenScore(name, delta=0.02).gains(torch.tensor([before]), torch.tensor([after]))
    np.testing.assert_allclose(gain[0].double(), expected, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["differential", "smoothed"])
@given(logits)
def test_no_gain_exceeds_the_bound(name, values):
    score = TokenScore(name, delta=0.01)
    sure = torch.full((1, len(values)), -1000.0)
    sure[0, 0] = 0
    assert score.gains(torch.tensor([values]), sure).max() <= score.bound + 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_surprise_is_taken_from_the_gain(name):
    before, after = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(2))
    score = TokenScore(name)
    expected = score.gains(before, after) + 0.4 * after.log_softmax(1)
    torch.testing.assert_close(replace(score, surprise=0.4).gains(before, after), expected)
    torch.testing.assert_close(
        replace(score, surprise=0.0).gains(before, after), expected - 0.4 * after.log_softmax(1)
    )


@pytest.mark.parametrize("name", NAMES)
def test_log_probabilities_serve_as_logits_and_inputs_are_left_as_they_are(name):
    before, after = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))
    kept = before.clone(), after.clone()
    score = TokenScore(name)
    gains = score.gains(before, after)
    torch.testing.assert_close(score.gains(before + 3, after - 2), gains)
    torch.testing.assert_close(score.gains(before.log_softmax(1), after.log_softmax(1)), gains)
    assert torch.equal(before, kept[0])
    assert torch.equal(after, kept[1])


def test_impossible_tokens_have_not_changed_or_rise_infinitely_in_relation():
    never = torch.tensor([[0.0, -torch.inf]])
    for name in NAMES:
        assert TokenScore(name).gains(never, never).tolist() == [[0.0, 0.0]]
    assert TokenScore("relative").gains(never, torch.zeros(1, 2))[0, 1] == torch.inf
    with pytest.raises(ValueError, match="score must be one of"):
        TokenScore("absolute")
    with pytest.raises(ValueError, match="delta must be positive"):
        TokenScore("smoothed", delta=0)


# Two models: asking for less than all of their answers gives the same answers.


def every_context(pair: Pair):
    return pair.enter(torch.arange(pair.vocab_size)[:, None])


@pytest.mark.parametrize("surprise", [0.0, 0.4])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quantile", [0.0, 0.9, 1.0])
def test_the_cells_above_a_floor_are_those_of_the_whole_table(
    random_table, name, surprise, quantile
):
    score = replace(TokenScore(name), surprise=surprise)
    pair = Pair.of(random_table(0, 30), random_table(1, 30), score)
    state = every_context(pair)
    gains = pair.gains(state)
    floor = torch.full((30,), float(gains.flatten().quantile(quantile)))
    floor[::3] = -torch.inf
    floor[1] = torch.inf
    row, token, gain = pair.gains_above(state, floor)
    expected = (gains > floor[:, None]).nonzero().tolist()
    assert sorted(zip(row.tolist(), token.tolist(), strict=True)) == sorted(map(tuple, expected))
    torch.testing.assert_close(gain, gains[row, token])


def test_the_earlier_model_is_not_asked_where_no_cell_can_pass(random_table, monkeypatch):
    pair = Pair.of(random_table(2, 30), random_table(3, 30), TokenScore("differential"))
    state = every_context(pair)
    asked = []
    before = pair.before.model
    logits = before.logits
    monkeypatch.setattr(before, "logits", lambda s: asked.append(len(s)) or logits(s))
    most = state.after.logits().softmax(1).amax(1)
    assert len(pair.gains_above(state, most)[0]) == 0
    assert asked == []
    one = most.clone()
    one[7] -= 1e-3
    pair.gains_above(state, one)
    assert asked == [1]
    assert pair.tokens_read == (1, 30)


# Null models: what their searches say of a score, by counting and against chance itself.


SCORES = st.sampled_from([0.5, 1.0, 1.5, 2.0, math.inf])  # few values, so that ties are common


SEARCHES = st.lists(st.lists(SCORES, max_size=4), min_size=1, max_size=25)


TAILS = {
    "half-normal": lambda random, n: np.abs(random.standard_normal(n)),
    "exponential": lambda random, n: random.exponential(size=n),
    "lognormal": lambda random, n: random.lognormal(size=n),
    "Weibull 0.6": lambda random, n: random.weibull(0.6, size=n),
    "Pareto 3": lambda random, n: random.pareto(3, size=n),
    "none or few": lambda random, n: random.random(random.integers(0, 3)),
    "ties": lambda random, n: random.integers(0, 4, n).astype(float),
}


@given(SEARCHES, SCORES)
def test_an_e_value_is_counted_and_what_is_found_exceeds_the_threshold(searches, score):
    nulls = NullScores.of(searches)
    phrases = sum(other >= score for search in searches for other in search)
    assert nulls.e_value(score) == (1 + phrases) / (1 + len(searches))
    assert nulls.reached(score) == sum(max(s, default=-1) >= score for s in searches)
    if len(searches) < NEEDED:
        assert (nulls.threshold, nulls.found(score)) == (None, None)
    else:
        assert nulls.found(score) == (score > nulls.threshold) == (nulls.e_value(score) <= LEVEL)


@pytest.mark.slow
@given(st.lists(st.lists(SCORES, max_size=4), min_size=20, max_size=41))
def test_of_exchangeable_searches_at_most_one_in_twenty_finds_anything(searches):
    """Each in turn is the update and the others are its nulls: no draw can break the level."""
    found = 0
    for place, update in enumerate(searches):
        nulls = NullScores.of(searches[:place] + searches[place + 1 :])
        found += any(nulls.found(score) for score in update)
    assert found <= LEVEL * len(searches)


@pytest.mark.slow
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("nulls", [4, 19])
@pytest.mark.parametrize("phrases", [20, 100])
def test_another_search_is_best_as_often_as_is_stated(tail, nulls, phrases):
    random, trials = np.random.default_rng([nulls, phrases]), 400
    best = found = 0
    for _ in range(trials):
        *others, update = (TAILS[tail](random, phrases) for _ in range(nulls + 1))
        scores = NullScores.of(others)
        best += any(scores.e_value(score) <= scores.least for score in update)
        found += any(bool(scores.found(score)) for score in update)
    level = 1 / (nulls + 1)
    assert best / trials < level + 4 * math.sqrt(level * (1 - level) / trials)
    assert found / trials < LEVEL + 4 * math.sqrt(LEVEL * (1 - LEVEL) / trials)


@pytest.mark.parametrize("nulls", [1, 18, 19])
def test_null_searches_without_a_phrase_make_a_phrase_found_only_if_there_are_nineteen(nulls):
    scores = NullScores.of([[]] * nulls)
    enough = nulls == NEEDED
    assert (scores.found(100.0), scores.best) == (True if enough else None, None)
    assert scores.threshold == (-math.inf if enough else None)
    assert scores.e_value(100.0) == 1 / (nulls + 1)


def test_no_search_and_no_number_are_refused():
    with pytest.raises(ValueError, match="searches must hold one null search"):
        NullScores.of([])
    with pytest.raises(ValueError, match="got NaN"):
        NullScores.of([[1.0, math.nan]])


@pytest.mark.slow
@pytest.mark.parametrize("scores", [1, 4, 30])
def test_a_joint_p_value_holds_its_level_however_many_scores_there_are(scores):
    """Scores of different scales that depend on each other; each model in turn is the update."""
    random, p_values = np.random.default_rng(scores), []
    for _ in range(40):
        common = random.standard_normal((20, 1))
        table = (common + random.standard_t(3, (20, scores))) * random.lognormal(size=scores)
        for place in range(20):
            p_values.append(joint_p_value(table[place], np.delete(table, place, axis=0)))
    assert np.mean([p <= LEVEL for p in p_values]) <= LEVEL
    table[0, -1] += 100 * table[:, -1].std()
    assert joint_p_value(table[0], table[1:]) == LEVEL
