"""Reading through and the beam agree with every continuation written out."""

import itertools
import math

import pytest
import torch

from vestige.audits.extraction.continuations import best_continuations, read_through
from vestige.errors import ModelError
from vestige.models.table import TableModel


def log_prob(model: TableModel, prefix: tuple[int, ...], rest: tuple[int, ...]) -> float:
    """One look-up in the table at a time."""
    last, total = prefix[-1], 0.0
    for token in rest:
        total += float(model.log_table[last, token])
        last = token
    return total


@pytest.mark.parametrize("seed", range(5))
def test_reading_through_tells_the_likeliest_tokens_one_at_a_time(random_table, seed):
    model = random_table(seed)
    texts = torch.randint(5, (7, 4), generator=torch.Generator().manual_seed(seed))

    read = read_through(model, texts.tolist())

    for text, (right, _, scores) in zip(texts.tolist(), read, strict=True):
        for place, token in enumerate(text):
            row = model.log_table[text[place - 1] if place else model.vocab_size]
            assert bool(right[place]) == (int(row.argmax()) == token)
            assert float(scores[place]) == pytest.approx(float(row[token]))


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_as_wide_as_all_continuations_puts_them_in_order(random_table, seed):
    model = random_table(seed)
    words = range(1, 5)  # token 0 ends a text

    found = best_continuations(model, torch.tensor([[3], [1]]), 3, width=200)

    for start, tokens, scores in zip((3, 1), found.tokens, found.log_prob, strict=True):
        every = sorted(
            -log_prob(model, (start,), rest) for rest in itertools.product(words, repeat=3)
        )
        finite = scores.isfinite()
        assert (-scores[finite]).tolist() == pytest.approx(every, rel=1e-5)
        for rest, score in zip(tokens[finite].tolist(), scores[finite].tolist(), strict=True):
            assert score == pytest.approx(log_prob(model, (start,), tuple(rest)), rel=1e-5)


def test_texts_in_one_batch_do_not_touch_one_another(random_table):
    model = random_table(4)
    prefixes = torch.tensor([[1, 2], [3, 4], [2, 2], [4, 1]])

    together = best_continuations(model, prefixes, 3, width=4)

    for row, prefix in enumerate(prefixes):
        alone = best_continuations(model, prefix[None], 3, width=4)
        assert torch.equal(together.tokens[row], alone.tokens[0])
        assert torch.equal(together.log_prob[row], alone.log_prob[0])


def test_slices_change_nothing(random_table, monkeypatch):
    model, prefixes = random_table(5), torch.tensor([[1], [2], [3]])
    whole = best_continuations(model, prefixes, 3, width=3)
    monkeypatch.setattr("vestige.audits.extraction.continuations.CELLS_PER_SLICE", 10)
    assert torch.equal(best_continuations(model, prefixes, 3, width=3).tokens, whole.tokens)


def test_the_end_of_a_text_is_never_taken():
    # After w2 the text most likely ends.
    model = TableModel([0, 0, 1, 0], [[0, 0, 1, 0], [0, 0, 1, 0], [0.9, 0, 0, 0.1], [0, 0, 0, 1]])
    found = best_continuations(model, torch.tensor([[2]]), 2, width=1)
    assert found.tokens.tolist() == [[[3, 3]]]
    assert found.log_prob.item() == pytest.approx(math.log(0.1))


def test_a_model_of_no_numbers_is_refused():
    model = TableModel([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]])
    model.log_table.fill_(math.nan)
    with pytest.raises(ModelError, match="diverged"):
        read_through(model, [[1, 1]])


def test_equally_likely_words_stand_in_the_order_of_ids_on_every_processor(other_bits):
    even = TableModel(torch.full((20,), 1 / 20), torch.full((20, 20), 1 / 20))
    for seed in range(6):
        model = other_bits(even, seed)
        found = best_continuations(model, torch.tensor([[3], [9]]), 2, width=4)
        assert found.tokens.tolist() == [[[1, 1], [1, 2], [1, 3], [1, 4]]] * 2
        read = read_through(model, [[0, 0, 0], [1, 0, 2]])
        assert [one.likeliest.tolist() for one in read] == [
            [True, True, True],
            [False, True, False],
        ]
