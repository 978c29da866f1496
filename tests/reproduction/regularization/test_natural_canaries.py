"""Each user's text of the highest perplexity, compared with a naive definition."""

import numpy as np
import pytest

from reproduction.regularization.user_texts import natural_canaries
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary

WORDS = ["one", "two", "three", "four", "five"]


@pytest.fixture
def setting():
    """200 documents of five users, with a perplexity each."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(1, 7))) for _ in range(200)]
    users = [f"u{i}" for i in rng.integers(5, size=200)]
    corpus = Corpus.from_texts(texts, users=users)
    vocabulary = WordVocabulary.build(corpus)
    tokens = np.array([len(text.split()) + 1 for text in texts])
    return corpus, vocabulary, encode(corpus, vocabulary), rng.gamma(3, size=200) * tokens, tokens


def test_each_user_has_the_text_of_the_highest_perplexity(setting):
    corpus, vocabulary, data, loss, tokens = setting

    canaries = natural_canaries(data, vocabulary, loss=loss, tokens=tokens, shortest=3, longest=5)

    texts, users, best = list(corpus), corpus.users, {}
    for index in np.argsort(-np.exp(loss / tokens)):
        is_candidate = 3 <= len(texts[index].split()) <= 5 and texts[index] not in best.values()
        if is_candidate and users[index] not in best:
            best[users[index]] = texts[index]
    assert {canary.user: canary.phrase for canary in canaries} == best
    assert [canary.user for canary in canaries] == sorted(best)
    words = " ".join(texts).split()
    for canary in canaries:
        assert canary.copies == texts.count(canary.phrase)
        assert canary.ids == tuple(vocabulary.encode(canary.phrase))
        assert canary.frequencies == tuple(words.count(word) for word in canary.phrase.split())
        assert canary.pattern == "real"


def phrases_by_user(*texts, users, **options):
    corpus = Corpus.from_texts(texts, users=users)
    vocabulary = WordVocabulary.build(corpus, size=options.pop("size", None))
    options = {"loss": np.ones(len(texts)), "tokens": np.ones(len(texts)), "shortest": 2, **options}
    canaries = natural_canaries(encode(corpus, vocabulary), vocabulary, **options)
    return {canary.user: canary.phrase for canary in canaries}


def test_two_users_have_different_texts():
    texts = ("so be it", "so be it", "to be or not")
    assert phrases_by_user(*texts, users="abb", loss=[3.0, 2.0, 1.0]) == {
        "a": texts[0],
        "b": texts[2],
    }


def test_texts_with_unknown_words_or_without_users_are_excluded():
    texts = ("be be be", "be zeppelin", "be it be it", "it it it")
    assert phrases_by_user(*texts, users=["a", "a", "", "b"], loss=[1, 9, 9, 1], size=4) == {
        "a": "be be be",
        "b": "it it it",
    }
