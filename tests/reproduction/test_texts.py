"""Texts are read by name, split into disjoint random parts, and sampled by user."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.texts import (
    documents_of,
    of_length,
    random_parts,
    read_text,
    sentences,
    vocabulary_of,
)
from tests.data.test_users import CORPUS, ROWS, corpus_of
from vestige.data.corpus import Corpus
from vestige.data.users import users_with
from vestige.errors import DataError


def test_parts_are_disjoint_and_of_the_requested_size() -> None:
    corpus = Corpus.from_texts(f"word{i} and more" for i in range(1000))
    parts = random_parts(corpus, [300, 0, 600], seed=1)
    assert [sum(len(text.split()) for text in part) for part in parts] == [300, 0, 600]
    documents = [text for part in parts for text in part]
    assert len(documents) == len(set(documents))
    again = random_parts(corpus, [300, 0, 600], seed=1)
    assert [list(part) for part in again] == [list(part) for part in parts]


def test_too_few_words_are_an_error() -> None:
    with pytest.raises(DataError, match="has 3 words where 4 are needed"):
        random_parts(Corpus.from_texts(["one two three"]), [4], seed=0)


def test_the_topic_grammar_has_words_that_the_plain_one_lacks() -> None:
    plain, topic = (set(" ".join(sentences(500, topic=t, seed=0)).split()) for t in (False, True))
    assert topic - plain
    assert len(vocabulary_of(sentences(500, seed=0), size=50, name="grammar")) == 50


def test_corpora_need_a_folder_and_a_known_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="VESTIGE_DATA"):
        read_text("reddit", None)
    with pytest.raises(DataError, match=r"talk\.politics\.mideast"):
        read_text("talk.politics.mideast", tmp_path)
    with pytest.raises(ValueError, match="name must be one of"):
        read_text("enron", tmp_path)


def test_documents_are_selected_by_length():
    assert list(of_length(CORPUS, shortest=2, longest=3)) == list(CORPUS)[:3]


@given(ROWS, st.integers(1, 3), st.integers(0, 9))
def test_every_user_has_the_requested_number_of_documents(rows, each, seed):
    corpus = corpus_of(rows)
    names = users_with(corpus, fewest=each, shortest=2)
    if not names:
        return
    sample = documents_of(corpus, names, each=each, seed=seed, shortest=2)
    assert Counter(sample.users) == dict.fromkeys(names, each)
    texts = list(corpus)
    positions = [texts.index(text) for text in sample]
    assert positions == sorted(set(positions))
    assert all(len(text.split()) >= 2 for text in sample)
    assert sample.sources == list(sample)
    subset = documents_of(corpus, names[:1], each=each, seed=seed, shortest=2)
    assert list(subset) == [
        t for t, u in zip(sample, sample.users or [], strict=True) if u == names[0]
    ]


def test_all_documents_of_a_user_are_equally_probable():
    corpus = Corpus.from_texts([f"w{i}" for i in range(10)], users=["ann"] * 10)
    counts = Counter(
        text for seed in range(500) for text in documents_of(corpus, ["ann"], each=3, seed=seed)
    )
    # 150 expected of 500 with a standard deviation of 10.2.
    assert len(counts) == 10
    assert max(abs(count - 150) for count in counts.values()) < 45


def test_users_with_too_few_documents_are_counted_and_not_named():
    with pytest.raises(DataError, match=r"2 of 3 users have fewer than 2 documents") as error:
        documents_of(CORPUS, ["ann", "bob", "nobody"], each=2, seed=0, shortest=2)
    assert not any(name in str(error.value) for name in ("ann", "bob", "nobody"))


def test_users_with_few_documents_have_all_of_them_if_fewest_allows_it():
    corpus = Corpus.from_texts(["a", "b", "c", "d"], users=["ann", "ann", "ann", "bob"])
    sample = documents_of(corpus, ["ann", "bob"], each=2, fewest=1, seed=0)
    assert sorted(sample.users) == ["ann", "ann", "bob"]
    with pytest.raises(DataError, match="1 of 2 users have fewer than 2 documents"):
        documents_of(corpus, ["ann", "bob"], each=2, seed=0)
