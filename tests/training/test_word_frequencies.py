"""Word frequencies as a baseline, against the definition written naively."""

import math
from collections import Counter

import numpy as np
import pytest

from vestige.data.encoded import EncodedCorpus
from vestige.training.word_frequencies import (
    frequency_perplexity,
    is_useless,
    token_counts,
    useless_words,
)


def text(*tokens):
    return EncodedCorpus(np.array(tokens, np.int32), np.array([0, len(tokens)]))


def naive(training, held, size):
    counts, seen = Counter(training), len(set(training))
    logs = [math.log((counts[w] + seen / size) / (len(training) + seen)) for w in held]
    return math.exp(-sum(logs) / len(held))


def test_it_is_the_definition():
    chance = np.random.default_rng(0)
    training, held = chance.zipf(1.5, 500) % 40, chance.integers(0, 40, 90)
    found = frequency_perplexity(text(*training), text(*held), size=40)
    assert found == pytest.approx(naive(training.tolist(), held.tolist(), 40))


def test_probabilities_sum_to_one():
    training = text(0, 0, 1, 3)
    each = [1 / frequency_perplexity(training, text(w), size=6) for w in range(6)]
    assert sum(each) == pytest.approx(1)


def test_nothing_counted_is_guessing():
    assert frequency_perplexity(text(), text(1, 2), size=8) == pytest.approx(8)


def test_counts_do_not_depend_on_pieces(monkeypatch):
    data = text(*range(10), 3, 3)
    whole = token_counts(data, 12)
    monkeypatch.setattr("vestige.training.word_frequencies._PIECE", 5)
    assert token_counts(data, 12).tolist() == whole.tolist()


@pytest.mark.parametrize(
    ("own", "alone", "useless"),
    [(99.0, 100.0, False), (100.0, 100.0, True), (math.inf, 9.0, True), (None, 9.0, True),
     (math.nan, 9.0, True), (5.0, None, False)],
)  # fmt: skip
def test_a_model_is_useful_only_below(own, alone, useless):
    assert is_useless(own, alone) is useless


@pytest.mark.parametrize(("own", "shown"), [(4631.2, "4,631"), (None, "not finite")])
def test_the_sentence_has_both_numbers(own, shown):
    told = useless_words(own, 512.3, who="gold")
    assert told.startswith("gold predicts no better than word frequencies")
    assert f"perplexity {shown}" in told
    assert "word frequencies 512" in told
