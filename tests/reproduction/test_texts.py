"""Texts by name, and disjoint random parts of them."""

from pathlib import Path

import pytest

from reproduction.texts import random_parts, read_text, sentences, vocabulary_of
from vestige.data.corpus import Corpus
from vestige.errors import DataError


def test_parts_are_disjoint_and_of_the_size_asked_for() -> None:
    corpus = Corpus.from_texts(f"word{i} and more" for i in range(1000))
    parts = random_parts(corpus, [300, 0, 600], seed=1)
    assert [sum(len(text.split()) for text in part) for part in parts] == [300, 0, 600]
    documents = [text for part in parts for text in part]
    assert len(documents) == len(set(documents))
    assert [list(part) for part in random_parts(corpus, [300, 0, 600], seed=1)] == [
        list(part) for part in parts
    ]


def test_more_words_than_there_are_is_an_error() -> None:
    with pytest.raises(DataError, match="has 3 words where 4 are needed"):
        random_parts(Corpus.from_texts(["one two three"]), [4], seed=0)


def test_the_topic_grammar_has_words_that_the_plain_one_lacks() -> None:
    plain, topic = (set(" ".join(sentences(500, topic=t, seed=0)).split()) for t in (False, True))
    assert topic - plain
    assert len(vocabulary_of("grammar", sentences(500, seed=0), size=50)) == 50


def test_corpora_need_a_folder_and_a_known_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="VESTIGE_DATA"):
        read_text("reddit", None)
    with pytest.raises(DataError, match=r"talk\.politics\.mideast"):
        read_text("talk.politics.mideast", tmp_path)
    with pytest.raises(ValueError, match="name must be one of"):
        read_text("enron", tmp_path)
