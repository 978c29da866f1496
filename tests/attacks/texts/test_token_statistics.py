"""Token statistics against the table that a model is, token by token."""

import numpy as np
import pytest

from vestige.attacks.texts import token_statistics as module
from vestige.attacks.texts.statistics_of_parts import first_tokens, joined
from vestige.attacks.texts.token_statistics import token_statistics
from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel

WORDS = tuple("abcdefgh")
CHANCE = np.random.default_rng(0)
TABLE = CHANCE.integers(1, 5, (10, 10)).astype(float)  # with ties
MODEL = TableModel(
    CHANCE.dirichlet(np.ones(10)),
    TABLE / TABLE.sum(axis=1, keepdims=True),
    WordVocabulary(("<unk>", "<eos>", *WORDS)),
).eval()
TEXTS = [CHANCE.integers(2, 10, n).tolist() for n in (5, 1, 9, 3, 9)]


def naive(ids, k):
    """One row a token, by the table."""
    table = MODEL.log_table.double().numpy()
    for before, token in zip([MODEL.first_token, *ids[:-1]], ids, strict=True):
        row = table[before]
        row = row - np.log(np.exp(row).sum())
        order = sorted(range(10), key=lambda other, row=row: (-row[other].round(6), other))
        mean = (np.exp(row) * row).sum()
        spread = np.sqrt((np.exp(row) * (row - mean) ** 2).sum())
        yield row[token], order.index(token), mean, spread, order[:k], row[order[:k]]


@pytest.mark.parametrize("room", [1, 2**25])
def test_each_token_has_what_the_table_says(monkeypatch, room):
    monkeypatch.setattr(module, "LOGITS", room)
    found = token_statistics(MODEL, TEXTS, likeliest=4)
    columns = [
        np.array(c) for c in zip(*(row for ids in TEXTS for row in naive(ids, 4)), strict=True)
    ]
    names = ("log_probs", "ranks", "means", "deviations", "likeliest", "likeliest_log_probs")
    for name, wanted in zip(names, columns, strict=True):
        np.testing.assert_allclose(getattr(found, name), wanted, atol=1e-5, err_msg=name)
    assert found.offsets.tolist() == [0, 5, 6, 15, 18, 27]
    assert found.tokens.tolist() == [token for ids in TEXTS for token in ids]


def test_first_tokens_are_those_of_the_texts_cut_before():
    whole = token_statistics(MODEL, TEXTS, likeliest=4)
    cut = first_tokens(whole, [4, 0], 3)
    again = token_statistics(MODEL, [TEXTS[4][:3], TEXTS[0][:3]], likeliest=4)
    both = joined([first_tokens(whole, [4], 3), first_tokens(whole, [0], 3)])
    for name in vars(again):
        np.testing.assert_allclose(getattr(cut, name), getattr(again, name), atol=1e-6)
        np.testing.assert_array_equal(getattr(cut, name), getattr(both, name))


def test_a_text_without_a_token_is_refused():
    with pytest.raises(ValueError, match="tokens of a text must be at least 1"):
        token_statistics(MODEL, [[2], []])
