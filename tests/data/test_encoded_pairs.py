"""Sources and targets as ids, side by side."""

import pytest

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedPairs, encode, encode_pairs, sources_of
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError

FRENCH = WordVocabulary(("<unk>", "<eos>", "oui", "non"))
ENGLISH = WordVocabulary(("<eos>", "<unk>", "yes", "no", "well"))


def test_each_side_is_read_by_its_own_vocabulary():
    corpus = Corpus.from_texts(
        ["yes well", "", "no"], sources=["oui", "non oui", ""], users=["ann", "bob", "ann"]
    )
    pairs = encode_pairs(corpus, FRENCH, ENGLISH)
    assert len(pairs) == 3
    assert [pairs.sources.document(i).tolist() for i in range(3)] == [[2, 1], [3, 2, 1], [1]]
    assert [pairs.targets.document(i).tolist() for i in range(3)] == [[2, 4, 0], [0], [3, 0]]
    assert pairs.targets.users.tolist() == [0, 1, 0]
    assert pairs.targets.names == ("ann", "bob")


def test_sources_alone_are_a_corpus():
    corpus = Corpus.from_texts(["yes"], sources=["oui oui"])
    assert list(sources_of(corpus)) == ["oui oui"]


def test_a_corpus_without_sources_is_refused():
    with pytest.raises(DataError, match=r"no source texts.*--source"):
        encode_pairs(Corpus.from_texts(["yes"]), FRENCH, ENGLISH)


def test_an_empty_corpus_is_refused():
    with pytest.raises(DataError, match="empty corpus"):
        encode_pairs(Corpus.from_texts([], sources=[]), FRENCH, ENGLISH)


def test_sources_and_targets_are_as_many():
    one, two = (encode(Corpus.from_texts(["yes"] * n), ENGLISH) for n in (1, 2))
    with pytest.raises(ValueError, match="sources must be as many as targets, 2, got 1"):
        EncodedPairs(one, two)
