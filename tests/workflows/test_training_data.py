"""Texts of a training: which documents are learnt, which validate, and what is left out."""

from collections import Counter

import pytest

from tests.workflows.asked import LINES, request
from vestige.data.corpus import Corpus
from vestige.data.division import divide
from vestige.errors import DataError
from vestige.preparation.plant import plant
from vestige.workflows.training_data import HOLD_OUT, read_texts, stop_of
from vestige.workflows.training_settings import TrainingSettings

MANY = Corpus.from_texts([f"line {number} of many" for number in range(400)])
USERS = Corpus.from_texts(LINES, users=[f"user {number % 4}" for number in range(40)])


def test_one_document_in_twenty_is_held_out_unless_another_share_is_asked_for(tmp_path):
    texts = read_texts(request(tmp_path, data=MANY), None)
    expected = divide(MANY, HOLD_OUT)
    assert HOLD_OUT == 0.05
    assert list(texts.held) == list(expected.held_out)
    assert list(texts.division.training) == list(expected.training)


def test_what_is_held_out_does_not_depend_on_the_order(tmp_path):
    backwards = Corpus.from_texts(list(MANY)[::-1])
    one, other = (read_texts(request(tmp_path, data=data), None).held for data in (MANY, backwards))
    assert len(one) > 0
    assert set(one) == set(other)


def test_a_larger_share_holds_out_what_a_smaller_one_does_and_more(tmp_path):
    few, many = (
        set(read_texts(request(tmp_path, data=MANY, hold_out=share), None).held)
        for share in (0.1, 0.4)
    )
    assert few < many


def test_other_text_validates_whatever_share_is_asked_for(tmp_path):
    asked = request(tmp_path, validation=Corpus.from_texts(["other"]), hold_out=0.5)
    texts = read_texts(asked, None)
    assert list(texts.division.training) == LINES
    assert list(texts.held) == ["other"]


def test_nothing_held_out_is_told(tmp_path):
    asked = request(tmp_path, data=Corpus.from_texts(["one"]), hold_out=0.01)
    assert not len(read_texts(asked, None).held)
    [line] = asked.monitor.lines
    assert line.startswith("Held out: no document, since hashes choose and 0.01 of few may be none")


def test_nothing_is_told_where_nothing_was_to_be_held_out(tmp_path):
    asked = request(tmp_path, hold_out=0.0)
    assert list(read_texts(asked, None).division.training) == LINES
    assert asked.monitor.lines == []


def test_what_a_user_has_beyond_the_cap_is_left_out_and_told(tmp_path):
    asked = request(tmp_path, data=USERS, max_documents_per_user=3, hold_out=0.0)
    texts = read_texts(asked, None)
    assert Counter(texts.division.training.users) == {f"user {n}": 3 for n in range(4)}
    assert asked.monitor.lines == ["Left out: 28 of 40 documents, which 4 users have beyond 3 each"]


def test_a_cap_needs_users(tmp_path):
    with pytest.raises(DataError, match="nobody said whose each document is"):
        read_texts(request(tmp_path, max_documents_per_user=3), None)


def test_canaries_are_learnt_as_often_as_their_manifest_says(tmp_path):
    plant(Corpus.from_texts(LINES), phrase="quiet mice", copies=9, out=tmp_path / "planted")
    asked = request(tmp_path / "out", data=tmp_path / "planted", hold_out=0.6)
    texts = read_texts(asked, None)
    assert list(texts.division.training).count("quiet mice") == 9
    assert len(texts.held) > 0
    assert [one.phrase for one in texts.planted.canaries if one.planted] == ["quiet mice"]


def test_a_loaded_corpus_tells_of_no_canaries(tmp_path):
    assert read_texts(request(tmp_path), None).planted is None


def test_so_many_documents_are_read(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES))
    texts = read_texts(request(tmp_path / "out", data=file, limit=5, hold_out=0.0), None)
    assert list(texts.division.training) == LINES[:5]


@pytest.mark.parametrize(
    ("given", "validated"),
    [
        ({}, True),
        ({"hold_out": 0.1}, True),
        ({"hold_out": 0.0}, False),
        ({"hold_out": 0.0, "validation": "other.txt"}, True),
    ],
)
def test_a_perplexity_to_end_at_needs_text_to_validate_on(tmp_path, given, validated):
    asked = request(tmp_path, training=TrainingSettings(stop_at_perplexity=3.0), **given)
    if validated:
        assert stop_of(asked).perplexity == 3.0
    else:
        with pytest.raises(ValueError, match="`stop_at_perplexity` must come with text"):
            stop_of(asked)
