"""Word vocabularies are built by frequency, saved and loaded."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.corpus import Corpus
from vestige.data.vocabulary import (
    EOS,
    UNK,
    Vocabulary,
    WordVocabulary,
    load_vocabulary,
    word_counts,
)
from vestige.errors import DataError

TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "b", "cc", "D", "d", UNK]), max_size=8).map(" ".join),
    min_size=1,
    max_size=8,
)


@given(TEXTS, st.integers(3, 8), st.integers(1, 3))
def test_words_are_sorted_by_count_then_alphabetically(texts, size, least):
    counts = Counter(word for text in texts for word in text.split() if word != UNK)
    expected = sorted((w for w in counts if counts[w] >= least), key=lambda w: (-counts[w], w))
    if not expected:
        return
    vocabulary = WordVocabulary.build(Corpus.from_texts(texts), size=size, min_count=least)
    assert vocabulary.words == (UNK, EOS, *expected[: size - 2])


@given(TEXTS)
def test_encoding_and_counts_agree_with_a_naive_definition(texts):
    vocabulary = WordVocabulary((UNK, EOS, "a", "b", "cc", "D", "d"))
    for text, ids in zip(texts, vocabulary.encode_batch(texts), strict=True):
        assert vocabulary.decode(ids) == text
        assert vocabulary.encode(text) == ids
    fewer = WordVocabulary((UNK, EOS, "a", "b", "D"))
    naive = Counter(word if word in fewer else UNK for text in texts for word in text.split())
    counts = word_counts(Corpus.from_texts(texts), fewer)
    assert counts.tolist() == [naive[word] for word in fewer.words]
    assert counts.dtype == np.int64


def test_unk_in_a_corpus_is_the_unknown_word():
    vocabulary = WordVocabulary.build(Corpus.from_texts(["the <unk> said <unk>"]))
    assert vocabulary.words == (UNK, EOS, "said", "the")
    assert vocabulary.encode("the <unk> slept") == [3, vocabulary.unk_id, vocabulary.unk_id]


def test_lower_case_and_splitting_at_punctuation_are_options():
    corpus = Corpus.from_texts(["The the THE"])
    assert len(WordVocabulary.build(corpus)) == 5
    lower = WordVocabulary.build(corpus, lowercase=True)
    assert lower.words == (UNK, EOS, "the")
    assert lower.encode("THE") == [2]
    splits = WordVocabulary((UNK, EOS), tokenise="words")
    expected = ["Don't", "stop", ",", "well-known", "<unk>", "(", "it’s", "5", ")", "."]
    assert splits.split("Don't stop, well-known <unk> (it’s 5).") == expected


def test_required_words_replace_the_rarest_words():
    corpus = Corpus.from_texts(["a a a b b c", "d"])
    built = WordVocabulary.build(corpus, size=5, keep=["d e"])
    assert built.words == ("<unk>", "<eos>", "a", "d", "e")
    assert WordVocabulary.build(corpus, keep=["e"]).words[-1] == "e"
    with pytest.raises(DataError, match=r"3 words are required.*room for 2"):
        WordVocabulary.build(corpus, size=4, keep=["d e f"])


def test_saving_and_loading_is_lossless(vocabulary, tmp_path):
    vocabulary.save(tmp_path / "model")
    loaded = load_vocabulary(tmp_path / "model")
    assert isinstance(loaded, Vocabulary)
    assert loaded == vocabulary
    assert loaded.fingerprint() == vocabulary.fingerprint()
    assert [loaded.piece(i) for i in range(len(loaded))] == list(vocabulary.words)
    assert [entry.name for entry in (tmp_path / "model").iterdir()] == ["vocabulary.json"]


def test_fingerprints_differ_for_vocabularies_that_encode_differently():
    words = (UNK, EOS, "a", "b")
    fingerprints = {
        WordVocabulary(words).fingerprint(),
        WordVocabulary((UNK, EOS, "b", "a")).fingerprint(),
        WordVocabulary(words, lowercase=True).fingerprint(),
        WordVocabulary(words, tokenise="words").fingerprint(),
    }
    assert len(fingerprints) == 4


def test_an_invalid_vocabulary_is_refused():
    with pytest.raises(ValueError, match="got number 2 again as number 3"):
        WordVocabulary((UNK, EOS, "a", "a"))
    with pytest.raises(ValueError, match="must hold <unk> and <eos>"):
        WordVocabulary(("a", "b"))
    for name, value in (("size", 2), ("min_count", 0), ("tokenise", "letters")):
        with pytest.raises(ValueError, match=name):
            WordVocabulary.build(Corpus.from_texts(["a"]), **{name: value})


@pytest.mark.parametrize("texts", [[], [""], ["<unk> <eos>"], ["a b c"]])
def test_a_corpus_without_frequent_words_makes_no_vocabulary(texts):
    with pytest.raises(DataError, match="no word of the corpus"):
        WordVocabulary.build(Corpus.from_texts(texts), min_count=2)


VALID = {"format": "vestige-words-1", "lowercase": False, "tokenise": "whitespace"}
CHANGES = [
    {"format": "other"},
    {"words": "a b"},
    {"words": [UNK, EOS, 3]},
    {"words": [UNK, EOS, EOS]},
    {"words": ["a"]},
    {"tokenise": "letters"},
]
DAMAGED = [json.dumps({**VALID, "words": [UNK, EOS, "a"], **change}).encode() for change in CHANGES]


@pytest.mark.parametrize("content", [b"\xff", b"null", *DAMAGED])
def test_the_error_about_a_damaged_vocabulary_names_its_file(content, tmp_path):
    path = tmp_path / "vocabulary.json"
    path.write_bytes(content)
    message = r"vocabulary\.json (is|cannot|has unexpected content)"
    with pytest.raises(DataError, match=message) as caught:
        load_vocabulary(tmp_path)
    assert str(path) in str(caught.value)
    assert "Restore" in caught.value.remedy
    with pytest.raises(DataError, match="nowhere has no vocabulary"):
        load_vocabulary(tmp_path / "nowhere")
