"""Words of an anatomy: units, positions by frequency, groups and weights."""

import math

import numpy as np
import pytest
import torch

from vestige.audits.anatomy.words import (
    Group,
    ScoredWords,
    encode_texts,
    equal_bins,
    frequent_and_rest,
    group_weights,
    is_known,
    positions_by_frequency,
    read_words,
)
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel

WORDS = WordVocabulary(("<unk>", "<eos>", "a", "b", "c"))
MODEL = TableModel([0.1, 0.1, 0.2, 0.3, 0.3], [[0.1, 0.1, 0.4, 0.3, 0.1]] * 5, WORDS)
CORPUS = Corpus.from_texts(["a b", "x", "c", "b b a"], users=["ann", "bob", "cy", "ann"])
DATA = encode(CORPUS, WORDS)


def read(by_user=True, data=DATA):
    return read_words(MODEL, data, by_user=by_user)


def test_only_known_words_are_read():
    words = read()
    assert words.tokens.tolist() == WORDS.encode("a b c b b a")
    assert words.ranks.tolist() == [3, 2, 2, 1, 2, 1]
    np.testing.assert_allclose(np.exp(words.log_probs), [0.2, 0.3, 0.3, 0.3, 0.3, 0.4], rtol=1e-5)
    assert DATA.tokens[words.indices].tolist() == words.tokens.tolist()
    counted = np.bincount(DATA.tokens[is_known(DATA, WORDS)], minlength=6)
    assert counted.tolist() == [0, 0, 2, 3, 1, 0]


def test_units_are_users_or_texts_that_have_known_words():
    assert (read().units.tolist(), read().n) == ([0, 0, 1, 0, 0, 0], 2)
    assert read(by_user=False).units.tolist() == [0, 0, 1, 2, 2, 2]
    without_users = encode(Corpus.from_texts(["a", "b"]), WORDS)
    assert read(data=without_users).units.tolist() == [0, 1]


def test_halves_share_no_unit_and_samples_are_complete_texts():
    words = read(by_user=False)
    for seed in range(5):
        first, second = words.halves(np.random.default_rng(seed))
        assert sorted([*first, *second]) == list(range(len(words)))
        assert not {*words.units[first]} & {*words.units[second]}
        assert words.take(first).n == 1
    for number in (1, 3, 5, 100):
        sample = words.sample_texts(number, np.random.default_rng(number))
        assert len(sample) >= min(number, len(words))
        for text in set(sample.texts):
            assert (sample.texts == text).sum() == (words.texts == text).sum()
        assert sample.n == len(set(sample.texts))
    assert len(sample) == len(words)


def test_targets_of_pairs_are_read():
    model = Seq2SeqModel(WORDS, WORDS, Seq2SeqConfig(hidden_size=4, embedding_size=4)).eval()
    corpus = Corpus.from_texts(["a b", "c"], sources=["c", "a"], users=["ann", "bob"])
    words = read_words(model, encode_texts(model, corpus), by_user=True)
    assert words.tokens.tolist() == WORDS.encode("a b c")
    decoder = model.given("c")
    state = decoder.advance(decoder.start(1), torch.tensor(WORDS.encode("a")))
    assert np.isclose(words.log_probs[1], decoder.log_probs(state)[0, WORDS.encode("b")[0]])
    with pytest.raises(DataError, match="no source"):
        encode_texts(model, Corpus.from_texts(["a"]))


@pytest.mark.parametrize("size", [1, 9, 4420])
def test_groups_partition_the_table(size):
    _, frequent, rest = frequent_and_rest(size, 0.2)
    bins = equal_bins(size, 10)
    assert (frequent.start, rest.start) == (1, frequent.stop + 1)
    assert frequent.stop == math.ceil(size / 5)
    assert [group.start for group in bins[1:]] == [group.stop + 1 for group in bins[:-1]]
    assert (bins[0].start, bins[-1].stop) == (1, size)


def scored(tokens):
    ids, index = np.array(tokens), np.arange(len(tokens))
    return ScoredWords(tokens=ids, ranks=ids + 1, log_probs=-1.0 * ids, units=index,
                       indices=index, texts=index)  # fmt: skip


def test_matched_words_have_equal_weight_in_both_texts():
    seen, unseen = scored([0, 0, 0, 1, 2]), scored([0, 2, 2, 3])
    positions = positions_by_frequency(seen.tokens, np.array([3]), 4)
    groups = [Group("same words", 1, 4, matched=True)]
    for words, other, weights in (
        (seen, unseen, [1 / 3, 1 / 3, 1 / 3, 0, 1]),
        (unseen, seen, [1, 1 / 2, 1 / 2, 0]),
    ):
        np.testing.assert_allclose(group_weights(groups, words, other, positions)[0], weights)
