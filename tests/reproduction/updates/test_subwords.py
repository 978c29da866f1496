"""The texts of a repetition, and counts of their secrets in found phrases."""

import pytest

from reproduction.updates.searches import Finding
from reproduction.updates.subwords import SECRETS, Mail, Texts, counts, texts_of
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
    for texts, secrets in ((first, SECRETS[0]), (second, SECRETS[1])):
        planted = [text for text in texts.update if text in secrets]
        assert sorted(planted) == sorted([*secrets, *secrets])
        assert all(text not in secrets for text in texts.earlier)
        assert [texts.vocabulary.decode(ids) for ids in texts.secrets] == list(secrets)


@pytest.mark.slow
def test_added_grams_occur_only_in_the_update() -> None:
    texts = texts_of(MAIL, None, 0)
    assert tuple(texts.secrets[0][2:6]) in texts.added
    earlier = texts.vocabulary.encode(next(iter(texts.earlier)))
    assert tuple(earlier[:4]) not in texts.added


def test_phrases_are_counted_by_their_secrets() -> None:
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(["some words"] * 3), size=270)
    texts = Texts(
        earlier=Corpus.from_texts(["x"]), update=Corpus.from_texts(["y"]),
        secrets=((1, 2, 3, 4, 5), (6, 7, 8, 9)), added=frozenset({(1, 2, 3, 4)}),
        vocabulary=vocabulary,
    )  # fmt: skip
    phrases = {(1, 2, 3, 4): 9.0, (7, 7, 7, 7): 8.0, (6, 7, 8, 40): 3.0}
    findings = tuple(finding(*tokens, score=score) for tokens, score in phrases.items())
    nulls = NullScores.of([[5.0, 1.0]])
    assert counts(findings, nulls, texts) == {
        "secret_tokens": 9, "found_10": 7, "verbatim_10": 1, "found_50": 7, "verbatim_50": 1,
        "runs": 1, "top_score": 9.0, "null_top_score": 5.0, "above": 1, "above_verbatim": 1,
    }  # fmt: skip
