import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vestige.audits.update.scores import NAMES, TokenScore

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


@pytest.mark.parametrize("name", NAMES)
def test_log_probabilities_serve_as_logits(name):
    before, after = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))
    score = TokenScore(name)
    shifted = score.gains(before + 3, after - 2)
    torch.testing.assert_close(shifted, score.gains(before.log_softmax(1), after.log_softmax(1)))


@pytest.mark.parametrize("name", ["differential", "smoothed"])
@given(logits)
def test_no_gain_exceeds_the_bound(name, values):
    score = TokenScore(name, delta=0.01)
    sure = torch.full((1, len(values)), -1000.0)
    sure[0, 0] = 0
    assert score.gains(torch.tensor([values]), sure).max() <= score.bound + 1e-6


def test_a_token_that_both_models_rule_out_has_not_changed():
    never = torch.tensor([[0.0, -torch.inf]])
    for name in NAMES:
        assert TokenScore(name).gains(never, never).tolist() == [[0.0, 0.0]]


def test_a_rise_from_impossible_is_infinite_in_relation():
    gain = TokenScore("relative").gains(torch.tensor([[0.0, -torch.inf]]), torch.zeros(1, 2))
    assert gain[0, 1] == torch.inf


def test_inputs_are_left_as_they_are():
    before, after = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(1))
    kept = before.clone(), after.clone()
    for name in NAMES:
        TokenScore(name).gains(before, after)
    assert torch.equal(before, kept[0])
    assert torch.equal(after, kept[1])


@pytest.mark.parametrize("name", NAMES)
def test_surprise_is_taken_from_the_gain(name):
    before, after = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(2))
    score = TokenScore(name)
    expected = score.gains(before, after) + 0.4 * after.log_softmax(1)
    torch.testing.assert_close(replace(score, surprise=0.4).gains(before, after), expected)
    torch.testing.assert_close(
        replace(score, surprise=0.0).gains(before, after), expected - 0.4 * after.log_softmax(1)
    )


def test_an_unknown_score_is_refused():
    with pytest.raises(ValueError, match="score must be one of"):
        TokenScore("absolute")
    with pytest.raises(ValueError, match="delta must be positive"):
        TokenScore("smoothed", delta=0)
