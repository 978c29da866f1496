"""The texts of a repetition, and what a search found of their secrets."""

import pytest

from reproduction.updates.searches import Finding
from reproduction.updates.subwords import (
    SECRETS,
    Mail,
    Texts,
    counts,
    texts_of,
)
from vestige.audits.update.nulls import NullScores
from vestige.audits.update.phrases import Text
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary

MAIL = Mail(earlier="grammar", update="grammar-topic", earlier_tokens=900, update_tokens=600,
            vocabulary_size=300, copies=2)  # fmt: skip


def finding(*tokens: int, score: float) -> Finding:
    return Finding(Text(tokens, (), score=score), 0, 0)


@pytest.mark.slow
def test_only_secrets_and_their_positions_depend_on_the_seed() -> None:
    first, second = texts_of(MAIL, None, 0), texts_of(MAIL, None, 1)
    assert list(first.earlier) == list(second.earlier)
    assert first.vocabulary.fingerprint() == second.vocabulary.fingerprint()
    for read, secrets in ((first, SECRETS[0]), (second, SECRETS[1])):
        planted = [text for text in read.update if text in secrets]
        assert sorted(planted) == sorted([*secrets, *secrets])
        assert all(text not in secrets for text in read.earlier)
        assert [read.vocabulary.decode(ids) for ids in read.secrets] == list(secrets)


@pytest.mark.slow
def test_added_grams_are_in_the_update_alone() -> None:
    read = texts_of(MAIL, None, 0)
    ids = read.secrets[0]
    assert tuple(ids[2:6]) in read.added
    earlier = read.vocabulary.encode(next(iter(read.earlier)))
    assert tuple(earlier[:4]) not in read.added


def test_phrases_are_counted_as_by_hand() -> None:
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(["some words"] * 3), size=270)
    read = Texts(
        earlier=Corpus.from_texts(["x"]), update=Corpus.from_texts(["y"]),
        secrets=((1, 2, 3, 4, 5), (6, 7, 8, 9)), added=frozenset({(1, 2, 3, 4)}),
        vocabulary=vocabulary,
    )  # fmt: skip
    findings = (
        finding(1, 2, 3, 4, score=9.0),
        finding(7, 7, 7, 7, score=8.0),
        finding(6, 7, 8, 40, score=3.0),
    )
    nulls = NullScores.of([[5.0, 1.0]])
    assert counts(findings, nulls, read) == {
        "secret_tokens": 9,
        "found_10": 7,
        "verbatim_10": 1,
        "found_50": 7,
        "verbatim_50": 1,
        "runs": 1,
        "top_score": 9.0,
        "null_top_score": 5.0,
        "above": 1,
        "above_verbatim": 1,
    }
