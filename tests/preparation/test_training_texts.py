"""Texts of a training: which documents are learned, which validate, and what is left out."""

from collections import Counter

import pytest

from tests.preparation.jobs import CORPUS, LINES, Told
from vestige.data.corpus import Corpus
from vestige.data.division import divide
from vestige.errors import DataError
from vestige.preparation.options import TrainingOptions
from vestige.preparation.plant import plant
from vestige.preparation.texts import HOLD_OUT, read_texts
from vestige.training.history import StopAtPerplexity

MANY = Corpus.from_texts([f"line {number} of many" for number in range(400)])
USERS = Corpus.from_texts(LINES, users=[f"user {number % 4}" for number in range(40)])


def test_one_document_in_twenty_is_held_out_unless_another_share_is_asked_for():
    texts = read_texts(MANY)
    expected = divide(MANY, HOLD_OUT)
    assert HOLD_OUT == 0.05
    assert list(texts.held) == list(expected.held_out)
    assert list(texts.training) == list(expected.training)


def test_what_is_held_out_does_not_depend_on_the_order():
    backwards = Corpus.from_texts(list(MANY)[::-1])
    one, other = (read_texts(data).held for data in (MANY, backwards))
    assert len(one) > 0
    assert set(one) == set(other)


def test_a_larger_share_holds_out_what_a_smaller_one_does_and_more():
    few, many = (set(read_texts(MANY, hold_out=share).held) for share in (0.1, 0.4))
    assert few < many


def test_documents_are_held_out_and_it_is_told():
    told = Told()
    texts = read_texts(CORPUS, hold_out=0.3, monitor=told)
    assert len(texts.training) + len(texts.held) == len(LINES)
    assert told.lines == [
        f"Validation: {len(texts.held)} of 40 documents, chosen by the hash of each document"
    ]


def test_other_text_validates_whatever_share_is_asked_for():
    told = Told()
    held = Corpus.from_texts(["other"])
    texts = read_texts(CORPUS, validation=held, hold_out=0.5, monitor=told)
    assert list(texts.training) == LINES
    assert texts.held is held
    assert told.lines == []


def test_users_are_held_out_whole():
    users = [f"user {number % 10}" for number in range(40)]
    texts = read_texts(Corpus.from_texts(LINES, users=users), hold_out=0.4, by_user=True)
    assert not set(texts.training.users) & set(texts.held.users)
    assert len(texts.held) > 0
    with pytest.raises(DataError, match="the corpus has no user column"):
        read_texts(CORPUS, by_user=True)
    with pytest.raises(DataError, match="the corpus has no user column"):
        read_texts(CORPUS, most_per_user=3)


def test_nothing_held_out_is_told():
    told = Told()
    texts = read_texts(Corpus.from_texts(["one"]), hold_out=0.01, monitor=told)
    assert not len(texts.held)
    [line] = told.lines
    assert line.startswith("Validation: no document, because hashes choose 0.01 of few")


def test_nothing_is_told_where_nothing_was_to_be_held_out():
    told = Told()
    assert list(read_texts(CORPUS, hold_out=0.0, monitor=told).training) == LINES
    assert told.lines == []


def test_what_a_user_has_beyond_the_cap_is_left_out_and_told():
    told = Told()
    texts = read_texts(USERS, most_per_user=3, hold_out=0.0, monitor=told)
    assert Counter(texts.training.users) == {f"user {n}": 3 for n in range(4)}
    assert told.lines == ["Left out: 28 of 40 documents, of 4 users with more than 3"]


def test_canaries_are_learned_as_often_as_their_manifest_says(tmp_path):
    plant(Corpus.from_texts(LINES), phrase="quiet mice", copies=9, out=tmp_path / "planted")
    texts = read_texts(tmp_path / "planted", hold_out=0.6)
    assert list(texts.training).count("quiet mice") == 9
    assert len(texts.held) > 0
    assert [one.phrase for one in texts.planted.canaries if one.planted] == ["quiet mice"]


def test_a_loaded_corpus_tells_of_no_canaries():
    assert read_texts(CORPUS).planted is None


def test_so_many_documents_are_read(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES))
    texts = read_texts(file, limit=5, hold_out=0.0)
    assert list(texts.training) == LINES[:5]
    assert texts.limit == 5


def test_a_perplexity_to_end_at_needs_text_to_validate_on():
    options = TrainingOptions(stop_at_perplexity=3.0)
    assert options.stop(validated=True) == StopAtPerplexity(3.0)
    assert TrainingOptions().stop(validated=False) is None
    with pytest.raises(ValueError, match="`stop_at_perplexity` needs validation text"):
        options.stop(validated=False)
