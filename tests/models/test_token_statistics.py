"""Token statistics against the table that a model is, token by token."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vestige.data.vocabulary import WordVocabulary
from vestige.models import predictions, reading
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.shared_ids import SharedIds
from vestige.models.table import TableModel
from vestige.models.token_statistics import first_tokens, joined, token_statistics

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
        yield row[token], order.index(token) + 1, mean, spread, order[:k], row[order[:k]]


@pytest.mark.parametrize("room", [1, 2**25])
def test_each_token_has_what_the_table_says(monkeypatch, room):
    monkeypatch.setattr(predictions, "PRODUCT_CELLS", room)
    monkeypatch.setattr(predictions, "CACHE_CELLS", room)
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


class Largest(TorchDispatchMode):
    """Numbers of the largest tensor that anything made."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else (made,):
            if isinstance(one, torch.Tensor):
                self.most = max(self.most, one.numel())
        return made


def wide_model(vocab_size):
    """An LSTM of a few units with many outputs."""
    words = ("<unk>", "<eos>", *(f"w{n}" for n in range(vocab_size - 2)))
    torch.manual_seed(0)
    config = LSTMConfig(layers=1, embedding_size=4, hidden_size=4)
    return LSTMLanguageModel(WordVocabulary(words), config).eval()


def test_memory_holds_a_slice_of_the_logits_of_a_long_text():
    model = wide_model(49_152)
    with Largest() as seen:
        token_statistics(model, [[5] * 1_000, [7] * 3])
    assert seen.most <= predictions.PRODUCT_CELLS


@pytest.mark.parametrize("shared", [False, True])
def test_slices_and_padding_change_nothing(monkeypatch, shared):
    model = wide_model(300)
    if shared:
        model = SharedIds(model, model.vocabulary, width=300, lacked=[7]).eval()
    texts = [CHANCE.integers(8, 300, n).tolist() for n in (30, 4, 17, 1)]
    whole = token_statistics(model, texts, likeliest=5)
    each = joined([token_statistics(model, [ids], likeliest=5) for ids in texts])
    monkeypatch.setattr(predictions, "PRODUCT_CELLS", 1500)
    monkeypatch.setattr(predictions, "CACHE_CELLS", 600)
    monkeypatch.setattr(reading, "RECURRENT_ROWS", 1)
    with Largest() as seen:
        sliced = token_statistics(model, texts, likeliest=5)
    assert seen.most <= 1500
    for name in vars(whole):
        np.testing.assert_allclose(getattr(sliced, name), getattr(whole, name), atol=1e-5)
        np.testing.assert_allclose(getattr(each, name), getattr(whole, name), atol=1e-5)


def test_half_precision_has_the_statistics_of_its_own_logits_with_its_many_ties():
    model = wide_model(300).to(torch.bfloat16)
    texts = [CHANCE.integers(2, 300, n).tolist() for n in (12, 5)]
    found = token_statistics(model, texts, likeliest=5)
    rows = []
    for ids in texts:
        logits = model(torch.tensor([[model.first_token, *ids[:-1]]]))[0][0].detach().double()
        rows += [(row - row.logsumexp(0), token) for row, token in zip(logits, ids, strict=True)]
    ties = [int((row == row[token]).sum()) for row, token in rows]
    assert sum(n > 1 for n in ties) > 3
    ranks = [1 + int((row > row[t]).sum() + (row[:t] == row[t]).sum()) for row, t in rows]
    assert found.ranks.tolist() == ranks
    np.testing.assert_allclose(found.log_probs, [float(row[t]) for row, t in rows], atol=1e-5)


GROWING = """
import resource, torch
from vestige.models.token_statistics import token_statistics
from vestige.data.vocabulary import WordVocabulary
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel

words = ("<unk>", "<eos>", *(f"w{n}" for n in range(49_150)))
config = LSTMConfig(layers=1, embedding_size=4, hidden_size=4)
model = LSTMLanguageModel(WordVocabulary(words), config).eval()
token_statistics(model, [[5] * 150])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
token_statistics(model, [[5] * (20 + n) for n in range(60)])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kilobytes are Linux's")
def test_many_texts_take_no_more_memory_than_one():
    """Columns kept of each text would pin the heap, which grew by gigabytes."""
    done = subprocess.run(
        [sys.executable, "-c", GROWING], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 400 * 1024
