"""Words are read with their units, and stand where a table of frequencies puts them."""

import numpy as np
import pytest

from vestige.audits.anatomy.words import encoded, known, positions_by_frequency, read_words
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel

WORDS = WordVocabulary(("<unk>", "<eos>", "a", "b", "c"))
START, AFTER = [0.1, 0.1, 0.2, 0.3, 0.3], [[0.1, 0.1, 0.4, 0.3, 0.1]] * 5
MODEL = TableModel(START, AFTER, WORDS)
CORPUS = Corpus.from_texts(["a b", "x", "c", "b b a"], users=["ann", "bob", "cy", "ann"])


def read(by_user: bool = True):
    return read_words(MODEL, encode(CORPUS, WORDS), by_user=by_user)


def test_known_words_are_read_and_ends_and_unknown_words_are_not():
    words = read()
    assert words.tokens.tolist() == WORDS.encode("a b c b b a")
    assert words.ranks.tolist() == [3, 2, 2, 1, 2, 1]
    np.testing.assert_allclose(np.exp(words.log_probs), [0.2, 0.3, 0.3, 0.3, 0.3, 0.4], rtol=1e-5)
    data = encode(CORPUS, WORDS)
    assert data.tokens[words.places].tolist() == words.tokens.tolist()


def test_units_are_users_or_texts_that_have_known_words():
    assert read().units.tolist() == [0, 0, 1, 0, 0, 0]
    assert read().n == 2
    assert read(by_user=False).units.tolist() == [0, 0, 1, 2, 2, 2]
    plain = read_words(MODEL, encode(Corpus.from_texts(["a", "b"]), WORDS), by_user=True)
    assert plain.units.tolist() == [0, 1]


def test_halves_part_units_and_never_a_unit():
    words = read(by_user=False)
    for seed in range(5):
        first, second = words.halves(np.random.default_rng(seed))
        assert sorted([*first, *second]) == list(range(len(words)))
        assert not set(words.units[first]) & set(words.units[second])
        assert words.take(first).n == 1


def test_some_words_are_whole_texts():
    words = read(by_user=False)
    for wanted in (1, 3, 5, 100):
        drawn = words.some(wanted, np.random.default_rng(wanted))
        assert len(drawn) >= min(wanted, len(words))
        for text in set(drawn.texts):
            assert (drawn.texts == text).sum() == (words.texts == text).sum()
        assert drawn.n == len(set(drawn.texts))
    assert len(words.some(100, np.random.default_rng(0))) == len(words)


def test_the_table_puts_common_words_first_and_others_last():
    counted = np.repeat(range(6), [7, 0, 7, 9, 0, 0])
    assert positions_by_frequency(counted, np.array([5]), 6).tolist() == [2, 0, 3, 1, 0, 4]


def test_counts_are_of_known_words_only():
    data = encode(CORPUS, WORDS)
    words = data.tokens[known(data, WORDS)]
    assert np.bincount(words, minlength=6).tolist() == [0, 0, 2, 3, 1, 0]


def test_pairs_are_read_by_their_targets():
    config = Seq2SeqConfig(hidden_size=4, embedding_size=4)
    model = Seq2SeqModel(WORDS, WORDS, config).eval()
    corpus = Corpus.from_texts(["a b", "c"], sources=["c", "a"], users=["ann", "bob"])
    words = read_words(model, encoded(model, corpus), by_user=True)
    assert words.tokens.tolist() == WORDS.encode("a b c")
    first = model.given("c")
    state = first.advance(first.start(1), words_of("a"))
    assert np.isclose(words.log_probs[1], first.log_probs(state)[0, WORDS.encode("b")[0]])
    with pytest.raises(DataError, match="no source"):
        encoded(model, Corpus.from_texts(["a"]))


def words_of(text):
    import torch

    return torch.tensor(WORDS.encode(text))
