"""Asking two models for less than all of their answers gives the same answers."""

from dataclasses import replace

import pytest
import torch

from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import NAMES, TokenScore


def every_context(pair: Pair):
    return pair.enter(torch.arange(pair.vocab_size)[:, None])


@pytest.mark.parametrize("surprise", [0.0, 0.4])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.9, 0.999, 1.0])
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
