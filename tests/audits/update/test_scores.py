"""Scores of tokens against their formulas, and cells of a table above a floor."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import NAMES, TokenScore

FORMULAS = {
    "differential": lambda p, q, delta: q - p,
    "relative": lambda p, q, delta: (q - p) / p,
    "smoothed": lambda p, q, delta: math.log((q + delta) / (p + delta)),
}


def logits(size=None):
    """Logits of 2 to 6 tokens, or of `size` tokens."""
    least, most = (2, 6) if size is None else (size, size)
    return st.lists(st.floats(-20, 20, width=32), min_size=least, max_size=most)


def softmax(values):
    weights = [math.exp(value - max(values)) for value in values]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_every_score_follows_its_formula(name, data):
    before = data.draw(logits())
    after = data.draw(logits(len(before)))
    pairs = zip(softmax(before), softmax(after), strict=True)
    expected = [FORMULAS[name](p, q, 0.02) for p, q in pairs]
    gain = TokenScore(name, delta=0.02).gains(torch.tensor([before]), torch.tensor([after]))
    np.testing.assert_allclose(gain[0].double(), expected, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["differential", "smoothed"])
@given(logits())
def test_no_gain_exceeds_the_bound(name, values):
    score = TokenScore(name, delta=0.01)
    certain = torch.full((1, len(values)), -1000.0)
    certain[0, 0] = 0
    assert score.gains(torch.tensor([values]), certain).max() <= score.bound + 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_surprise_is_added_and_gains_do_not_depend_on_shifted_logits(name):
    before, after = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(2))
    inputs = before.clone(), after.clone()
    score = TokenScore(name)
    gains = score.gains(before, after)
    surprised = replace(score, surprise=0.4).gains(before, after)
    torch.testing.assert_close(surprised, gains + 0.4 * after.log_softmax(1))
    torch.testing.assert_close(score.gains(before + 3, after - 2), gains)
    torch.testing.assert_close(score.gains(before.log_softmax(1), after.log_softmax(1)), gains)
    assert torch.equal(before, inputs[0])
    assert torch.equal(after, inputs[1])


def test_relative_gains_of_impossible_tokens_are_zero_or_infinite():
    impossible = torch.tensor([[0.0, -torch.inf]])
    for name in NAMES:
        assert TokenScore(name).gains(impossible, impossible).tolist() == [[0.0, 0.0]]
    assert TokenScore("relative").gains(impossible, torch.zeros(1, 2))[0, 1] == torch.inf


@pytest.mark.parametrize(
    ("score", "message"),
    [({"name": "absolute"}, "score must be one of"), ({"delta": 0}, "delta must be positive")],
)
def test_an_unknown_score_and_a_zero_delta_are_refused(score, message):
    with pytest.raises(ValueError, match=message):
        TokenScore(**{"name": "smoothed", **score})


# Cells of the table of all contexts that score above a floor.


def every_context(pair):
    return pair.start_anywhere(torch.arange(pair.vocab_size)[:, None])


@pytest.mark.parametrize("surprise", [0.0, 0.4])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quantile", [0.0, 0.9, 1.0])
def test_cells_above_a_floor_equal_those_of_the_complete_table(
    random_table, name, surprise, quantile
):
    score = TokenScore(name, surprise=surprise)
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


def test_the_earlier_model_is_queried_only_for_rows_that_can_pass(random_table, monkeypatch):
    pair = Pair.of(random_table(2, 30), random_table(3, 30), TokenScore("differential"))
    state, queried = every_context(pair), []
    logits = pair.before.model.logits
    monkeypatch.setattr(
        pair.before.model, "logits", lambda rows: queried.append(len(rows)) or logits(rows)
    )
    highest = state.after.logits().softmax(1).amax(1)
    assert len(pair.gains_above(state, highest)[0]) == 0
    assert queried == []
    highest[7] -= 1e-3
    pair.gains_above(state, highest)
    assert queried == [1]
    assert pair.tokens_read == (1, 30)
