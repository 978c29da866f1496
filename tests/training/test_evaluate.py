"""Perplexity and accuracy against the definition, one token at a time."""

import math
from itertools import pairwise

import pytest
import torch

from vestige.data.encoded import EncodedCorpus
from vestige.errors import TrainingError
from vestige.models.table import TableModel
from vestige.training.evaluate import evaluate


def naive(model, tokens: list[int], starts: set[int]) -> tuple[float, float]:
    """exp(-mean log p) and the share of first choices; the context begins anew at `starts`."""
    total, right, state = 0.0, 0, None
    for place, (token, following) in enumerate(pairwise(tokens)):
        if place in starts:
            state = model.start(1, anywhere=True)
        state = model.advance(state, torch.tensor([token]))
        log_probs = model.log_probs(state)[0]
        total -= float(log_probs[following])
        right += int(log_probs.argmax()) == following
    return math.exp(total / (len(tokens) - 1)), right / (len(tokens) - 1)


@pytest.mark.parametrize(
    ("architecture", "rows", "length", "starts"),
    [
        ("lstm", 1, 7, {0}),
        ("lstm", 1, 1000, {0}),
        ("lstm", 4, 7, {0, 25, 50, 75}),
        ("transformer", 1, 10, set(range(0, 98, 10))),
        ("transformer", 4, 8, {r + o for r in (0, 25, 50, 75) for o in (0, 8, 16, 24)}),
    ],
)
def test_it_is_the_definition(make_model, make_text, architecture, rows, length, starts):
    model, text = make_model(architecture).eval(), make_text(99)
    found = evaluate(model, text, batch_size=rows, sequence_length=length)
    perplexity, accuracy = naive(model, text.tokens.tolist(), starts)
    assert found.perplexity == pytest.approx(perplexity, rel=1e-5)
    assert found.accuracy == pytest.approx(accuracy)
    assert found.tokens == 98


def test_a_uniform_model_is_as_perplexed_as_it_has_words(make_model, make_text):
    v = 12
    uniform = TableModel(
        torch.full((v,), 1 / v), torch.full((v, v), 1 / v), make_model().vocabulary
    )
    assert evaluate(uniform, make_text(50)).perplexity == pytest.approx(v)


def test_a_model_that_is_sure_and_wrong_is_infinitely_perplexed(make_model, make_text):
    after = torch.zeros(12, 12)
    after[:, 0] = 1
    sure = TableModel(after[0], after, make_model().vocabulary)
    assert evaluate(sure, make_text(50)).perplexity == math.inf


def test_it_leaves_the_mode_of_the_model_and_drops_nothing_out(make_model, make_text):
    model, text = make_model(), make_text(50)
    training = evaluate(model.train(), text)
    assert model.training
    assert evaluate(model.eval(), text) == training
    assert not model.training


def test_one_token_leaves_nothing_to_predict(make_model, make_text):
    text = make_text(1)
    with pytest.raises(TrainingError, match=r"nothing to predict.*more text"):
        evaluate(make_model(), EncodedCorpus(text.tokens[:1], text.offsets))
