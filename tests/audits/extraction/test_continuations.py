"""Reading a text through and the beam search, against every continuation written out."""

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


def log_prob(model: TableModel, prefix: tuple[int, ...], rest: tuple[int, ...]) -> float:
    """One look-up in the table at a time."""
    last, total = prefix[-1], 0.0
    for token in rest:
        total += float(model.log_table[last, token])
        last = token
    return total


@pytest.mark.parametrize("seed", range(3))
def test_reading_through_finds_the_likeliest_tokens_one_at_a_time(random_table, seed):
    model = random_table(seed)
    texts = torch.randint(5, (7, 4), generator=torch.Generator().manual_seed(seed))
    read = predict_tokens(model, texts.tolist())
    for text, (right, _, scores) in zip(texts.tolist(), read, strict=True):
        for index, token in enumerate(text):
            row = model.log_table[text[index - 1] if index else model.vocab_size]
            assert bool(right[index]) == (int(row.argmax()) == token)
            assert float(scores[index]) == pytest.approx(float(row[token]))


@pytest.mark.parametrize("seed", range(3))
def test_a_beam_as_wide_as_all_continuations_puts_them_in_order(random_table, seed):
    model = random_table(seed)
    words = range(1, 5)  # token 0 ends a text
    result = best_continuations(model, torch.tensor([[3], [1]]), 3, width=200)
    for start, tokens, scores in zip((3, 1), result.tokens, result.log_prob, strict=True):
        every = sorted(
            -log_prob(model, (start,), rest) for rest in itertools.product(words, repeat=3)
        )
        finite = scores.isfinite()
        assert (-scores[finite]).tolist() == pytest.approx(every, rel=1e-5)
        for rest, score in zip(tokens[finite].tolist(), scores[finite].tolist(), strict=True):
            assert score == pytest.approx(log_prob(model, (start,), tuple(rest)), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_beam_of_one_is_read_off_the_text_as_the_search_would_find_it(seed):
    """Of every text of a few tokens, in a model that likes to end."""
    table = np.random.default_rng(seed).dirichlet(np.ones(5), 6) * [4, 0.1, 1, 1, 1]
    table /= table.sum(1, keepdims=True)
    model = TableModel(table[0], table[1:])
    words = (0, 2, 3, 4)  # the end of a text among them
    texts = [ids for n in (4, 3) for ids in itertools.product(words, repeat=n)]
    read = complete_texts(model, texts, prefix=1, beam=1)
    for ids, one in zip(texts, read, strict=True):
        result = best_continuations(model, torch.tensor([ids[:1]]), len(ids) - 1, width=1)
        kept = tuple(result.tokens[0, 0].tolist()) == ids[1:]
        assert one["beam_place"] == (1 if kept else None)
    assert any(one["beam_place"] == 1 and not one["greedy"] for one in read)


def test_batches_and_slices_change_nothing(random_table, monkeypatch):
    model, prefixes = random_table(4), torch.tensor([[1, 2], [3, 4], [2, 2], [4, 1]])
    together = best_continuations(model, prefixes, 3, width=4)
    for row, prefix in enumerate(prefixes):
        alone = best_continuations(model, prefix[None], 3, width=4)
        assert torch.equal(together.tokens[row], alone.tokens[0])
        assert torch.equal(together.log_prob[row], alone.log_prob[0])
    monkeypatch.setattr("vestige.audits.extraction.continuations.LOGITS_PER_SLICE", 10)
    assert torch.equal(best_continuations(model, prefixes, 3, width=4).tokens, together.tokens)


def test_the_end_of_a_text_is_never_taken():
    # After w2 the text most likely ends.
    model = TableModel([0, 0, 1, 0], [[0, 0, 1, 0], [0, 0, 1, 0], [0.9, 0, 0, 0.1], [0, 0, 0, 1]])
    result = best_continuations(model, torch.tensor([[2]]), 2, width=1)
    assert result.tokens.tolist() == [[[3, 3]]]
    assert result.log_prob.item() == pytest.approx(math.log(0.1))


def test_scores_that_are_no_numbers_are_refused():
    model = TableModel([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]])
    model.log_table.fill_(math.nan)
    with pytest.raises(ModelError, match="diverged"):
        predict_tokens(model, [[1, 1]])


def test_equally_likely_words_are_in_the_order_of_ids_on_every_processor(other_bits):
    even = TableModel(torch.full((20,), 1 / 20), torch.full((20, 20), 1 / 20))
    for seed in range(6):
        model = other_bits(even, seed)
        result = best_continuations(model, torch.tensor([[3], [9]]), 2, width=4)
        assert result.tokens.tolist() == [[[1, 1], [1, 2], [1, 3], [1, 4]]] * 2
        read = predict_tokens(model, [[0, 0, 0], [1, 0, 2]])
        assert [one.likeliest.tolist() for one in read] == [[True] * 3, [False, True, False]]
