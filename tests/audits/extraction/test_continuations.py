"""Predictions of a text's tokens and beam search, against enumeration of all continuations."""

import itertools
import math

import numpy as np
import pytest
import torch

from vestige.audits.extraction.continuations import (
    best_continuations,
    complete_texts,
    predict_tokens,
)
from vestige.errors import ModelError
from vestige.models.table import TableModel


@pytest.mark.parametrize("seed", range(3))
def test_each_token_is_compared_with_the_most_probable_one(random_table, seed):
    model = random_table(seed)
    texts = torch.randint(5, (7, 4), generator=torch.Generator().manual_seed(seed)).tolist()
    predictions = predict_tokens(model, texts)
    for text, (correct, _, log_probs) in zip(texts, predictions, strict=True):
        for index, token in enumerate(text):
            row = model.log_table[text[index - 1] if index else model.vocab_size]
            assert bool(correct[index]) == (int(row.argmax()) == token)
            assert float(log_probs[index]) == pytest.approx(float(row[token]))


@pytest.mark.parametrize("seed", range(3))
def test_a_beam_wider_than_all_continuations_sorts_them(random_table, seed):
    model = random_table(seed)

    def log_prob(tokens):
        return sum(float(model.log_table[pair]) for pair in itertools.pairwise(tokens))

    result = best_continuations(model, torch.tensor([[3], [1]]), 3, width=200)
    for start, tokens, scores in zip((3, 1), result.tokens, result.log_prob, strict=True):
        continuations = itertools.product(range(1, 5), repeat=3)  # token 0 ends a text
        expected = sorted((log_prob((start, *rest)) for rest in continuations), reverse=True)
        finite = scores.isfinite()
        assert scores[finite].tolist() == pytest.approx(expected, rel=1e-5)
        for rest, score in zip(tokens[finite].tolist(), scores[finite].tolist(), strict=True):
            assert score == pytest.approx(log_prob((start, *rest)), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_beam_of_one_token_needs_no_search(seed):
    """All texts of 3 or 4 tokens, in a model in which texts often end early."""
    table = np.random.default_rng(seed).dirichlet(np.ones(5), 6) * [4, 0.1, 1, 1, 1]
    table /= table.sum(1, keepdims=True)
    model = TableModel(table[0], table[1:])
    tokens = (0, 2, 3, 4)  # 0 ends a text
    texts = [ids for n in (4, 3) for ids in itertools.product(tokens, repeat=n)]
    rows = complete_texts(model, texts, prefix=1, beam=1)
    for ids, row in zip(texts, rows, strict=True):
        result = best_continuations(model, torch.tensor([ids[:1]]), len(ids) - 1, width=1)
        in_beam = tuple(result.tokens[0, 0].tolist()) == ids[1:]
        assert row["beam_place"] == (1 if in_beam else None)
    assert any(row["beam_place"] == 1 and not row["greedy"] for row in rows)


def test_batches_and_slices_change_no_result(random_table, monkeypatch):
    model, prefixes = random_table(4), torch.tensor([[1, 2], [3, 4], [2, 2], [4, 1]])
    together = best_continuations(model, prefixes, 3, width=4)
    for row, prefix in enumerate(prefixes):
        alone = best_continuations(model, prefix[None], 3, width=4)
        assert torch.equal(together.tokens[row], alone.tokens[0])
        assert torch.equal(together.log_prob[row], alone.log_prob[0])
    monkeypatch.setattr("vestige.audits.extraction.continuations.LOGITS_PER_SLICE", 10)
    assert torch.equal(best_continuations(model, prefixes, 3, width=4).tokens, together.tokens)


def test_nan_scores_are_refused():
    model = TableModel([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]])
    model.log_table.fill_(math.nan)
    with pytest.raises(ModelError, match="diverged"):
        predict_tokens(model, [[1, 1]])


def test_equally_probable_tokens_are_sorted_by_id_on_every_processor(other_bits):
    uniform = TableModel(torch.full((20,), 1 / 20), torch.full((20, 20), 1 / 20))
    for seed in range(6):
        model = other_bits(uniform, seed)
        result = best_continuations(model, torch.tensor([[3], [9]]), 2, width=4)
        assert result.tokens.tolist() == [[[1, 1], [1, 2], [1, 3], [1, 4]]] * 2
        predictions = predict_tokens(model, [[0, 0, 0], [1, 0, 2]])
        likeliest = [prediction.likeliest.tolist() for prediction in predictions]
        assert likeliest == [[True] * 3, [False, True, False]]
