"""An exact rank is that of brute force, and its bounds hold for every budget."""

import math
from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.audits.exposure.exact_rank import exact_rank
from vestige.data.vocabulary import WordVocabulary
from vestige.models.predictions import text_log_probs
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.table import TableModel


def lstm():
    torch.manual_seed(0)
    words = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(7))))
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6, initial_range=1.5)
    return LSTMLanguageModel(words, config).eval()


def table(seed=0):
    rng, alpha = np.random.default_rng(seed), np.full(6, 0.6)
    return TableModel(rng.dirichlet(alpha), rng.dirichlet(alpha, 6))


EVEN = TableModel(np.full(4, 0.25), np.full((4, 4), 0.25))


def brute_force(model, tokens, sequences):
    """1 + the number of other sequences at least as probable, each of them scored."""
    score, *scores = text_log_probs(model, [tokens, *sequences])
    pairs = zip(scores, sequences, strict=True)
    return 1 + sum(bool(other >= score) for other, sequence in pairs if sequence != tokens)


@pytest.mark.slow
@pytest.mark.parametrize("make", [table, lstm])
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("batch", [7, 256])
def test_the_rank_is_that_of_brute_force(make, length, batch):
    model = make()
    sequences = list(product(range(model.vocab_size), repeat=length))
    for tokens in sequences[:: max(1, len(sequences) // 12)]:
        result = exact_rank(model, tokens, batch=batch)
        assert result.complete
        assert result.rank_low == result.rank_high == brute_force(model, tokens, sequences), tokens
        assert result.space == len(sequences)
        assert result.exposure_low == math.log2(len(sequences)) - math.log2(result.rank_high)


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("tokens", [(2, 4, 5), (2, 2, 4), (0, 8, 3)])
def test_the_rank_among_sequences_of_an_alphabet_is_that_of_brute_force(tokens, distinct):
    model, alphabet = lstm(), (2, 3, 4, 5, 7)
    sequences = list(permutations(alphabet, 3) if distinct else product(alphabet, repeat=3))
    result = exact_rank(model, tokens, alphabet=alphabet, distinct=distinct)
    assert result.rank_low == result.rank_high == brute_force(model, tokens, sequences)
    assert result.space == len(sequences)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 20),
    tokens=st.tuples(*[st.integers(0, 5)] * 4),
    budget=st.integers(1, 200),
    batch=st.integers(1, 9),
    distinct=st.booleans(),
)
def test_bounds_hold_for_every_budget(seed, tokens, budget, batch, distinct):
    model = table(seed)
    result = exact_rank(model, tokens, budget=budget, batch=batch, distinct=distinct)
    sequences = list(permutations(range(6), 4) if distinct else product(range(6), repeat=4))
    assert result.rank_low <= brute_force(model, tokens, sequences) <= result.rank_high
    assert result.prefixes <= budget


@pytest.mark.slow
def test_the_search_for_a_probable_sequence_reads_few_prefixes():
    model = table(3)
    sequences = list(product(range(6), repeat=4))
    scores = text_log_probs(model, sequences)
    result = exact_rank(model, sequences[int(scores.argmax())])
    assert (result.rank_low, result.rank_high) == (1, 1)
    assert result.prefixes <= 4 / math.exp(scores.max())
    assert result.exposure_low == result.exposure_high == math.log2(6**4)


def test_ties_differ_from_an_incomplete_search():
    ties, incomplete = exact_rank(EVEN, (0, 1)), exact_rank(EVEN, (0, 1, 2), budget=1)
    assert (ties.complete, ties.rank_low, ties.rank_high) == (True, 1, 16)
    assert (incomplete.complete, incomplete.rank_low, incomplete.rank_high) == (False, 1, 64)


def test_progress_rises_to_the_budget():
    steps = []
    exact_rank(table(1), (3, 2, 1), batch=2, progress=lambda *step: steps.append(step))
    assert steps[-1][1] == 20_000
    assert steps == sorted(steps)


@pytest.mark.parametrize(
    ("model", "tokens", "options", "message"),
    [
        (table(), (), {}, "at least one id"),
        (table(), (6,), {}, "below 6"),
        (table(), (1, 2), {"budget": 0}, "budget"),
        (table(), (1, 2), {"alphabet": ()}, "alphabet"),
        (table(), (1, 2), {"alphabet": (1, 9)}, "below 6"),
        (table(), (1, 2, 3), {"alphabet": (1, 2), "distinct": True}, "3 different"),
        (TableModel([1.0, 0.0], [[0.5, 0.5], [0.5, 0.5]]), (1, 0), {}, "possible"),
    ],
)
def test_sequences_without_a_rank_are_refused(model, tokens, options, message):
    with pytest.raises(ValueError, match=message):
        exact_rank(model, tokens, **options)
