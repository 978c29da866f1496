"""Texts of a training: the training part, the validation part, and those left out."""

from collections import Counter

import pytest

from tests.preparation.trainings import CORPUS, LINES
from vestige.data.corpus import Corpus
from vestige.data.division import divide
from vestige.errors import DataError
from vestige.preparation.plant import plant
from vestige.preparation.texts import HOLD_OUT, read_texts

USERS = Corpus.from_texts(LINES, users=[f"user {number % 10}" for number in range(40)])


def test_one_document_in_twenty_is_held_out_by_default():
    corpus = Corpus.from_texts([f"line {number} of many" for number in range(400)])
    texts, expected = read_texts(corpus), divide(corpus, HOLD_OUT)
    assert HOLD_OUT == 0.05
    assert list(texts.validation) == list(expected.held_out)
    assert list(texts.training) == list(expected.training)


def test_held_out_documents_are_logged(monitor):
    texts = read_texts(CORPUS, hold_out=0.3, monitor=monitor)
    held_out = len(texts.validation)
    assert len(texts.training) + held_out == len(LINES)
    read_texts(Corpus.from_texts(["one"]), hold_out=0.01, monitor=monitor)
    assert list(read_texts(CORPUS, hold_out=0.0, monitor=monitor).training) == LINES
    first, second = monitor.lines
    assert first == f"Validation: {held_out} of 40 documents, chosen by the hash of each document"
    assert second.startswith("Validation: no document, because hashes choose 0.01 of few")


def test_other_validation_text_replaces_the_share(monitor):
    validation = Corpus.from_texts(["other"])
    texts = read_texts(CORPUS, validation=validation, hold_out=0.5, monitor=monitor)
    assert list(texts.training) == LINES
    assert texts.validation is validation
    assert monitor.lines == []


def test_users_are_held_out_with_all_documents(monitor):
    texts = read_texts(USERS, hold_out=0.4, by_user=True, monitor=monitor)
    users = set(texts.validation.users)
    assert users
    assert not set(texts.training.users) & users
    assert monitor.lines == [
        f"Validation: {len(texts.validation)} of 40 documents of {len(users)} users, "
        "chosen by the hash of each user"
    ]


def test_documents_beyond_the_cap_are_left_out_and_logged(monitor):
    texts = read_texts(USERS, most_per_user=3, hold_out=0.0, monitor=monitor)
    assert Counter(texts.training.users) == {f"user {n}": 3 for n in range(10)}
    assert monitor.lines == ["Left out: 10 of 40 documents, of 10 users with more than 3"]


@pytest.mark.parametrize("options", [{"by_user": True}, {"most_per_user": 3}])
def test_holding_out_or_capping_users_needs_a_user_column(options):
    with pytest.raises(DataError, match="the corpus has no user column"):
        read_texts(CORPUS, **options)


def test_canaries_are_never_held_out(tmp_path):
    plant(CORPUS, phrase="quiet mice", copies=9, out=tmp_path / "planted")
    texts = read_texts(tmp_path / "planted", hold_out=0.6)
    assert list(texts.training).count("quiet mice") == 9
    assert len(texts.validation) > 0
    assert [canary.phrase for canary in texts.planted.canaries if canary.planted] == ["quiet mice"]
    assert read_texts(CORPUS).planted is None


def test_the_limit_of_documents_is_respected(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES))
    texts = read_texts(file, limit=5, hold_out=0.0)
    assert list(texts.training) == LINES[:5]
    assert texts.limit == 5
