"""The topic of a text and occurrences of a phrase, compared with naive counts."""

import numpy as np
import pytest

from reproduction.updates.added_text import occurrences_of, topic_of
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.vocabulary import WordVocabulary

ORIGINAL = ["the cat sat on the mat", "the dog sat", "a cat and a dog"] * 20
ADDED = ["the puck hit the goal", "a goal and a puck 7"] * 20


@pytest.fixture
def vocabulary() -> WordVocabulary:
    return WordVocabulary.build(Corpus.from_texts([*ORIGINAL, *ADDED]), size=100)


@pytest.fixture
def texts(vocabulary: WordVocabulary) -> tuple[EncodedCorpus, EncodedCorpus]:
    added, original = (encode(Corpus.from_texts(t), vocabulary) for t in (ADDED, ORIGINAL))
    return added, original


def test_a_phrase_is_on_topic_if_half_of_its_content_words_are(vocabulary, texts) -> None:
    topic = topic_of(*texts, vocabulary, commonest=2)  # excludes "the" and "a"
    for phrase, on_topic in [
        ("the puck", True),
        ("the goal sat", True),  # one of two
        ("puck cat dog", False),
        ("the 7", False),  # no content word
        ("the cat", False),
    ]:
        assert topic.contains(vocabulary.encode(phrase)) is on_topic, phrase


def test_the_share_is_over_all_windows(vocabulary: WordVocabulary, texts) -> None:
    topic = topic_of(*texts, vocabulary, commonest=2)
    tokens = texts[0].tokens.tolist()
    windows = [topic.contains(tokens[i : i + 3]) for i in range(len(tokens) - 2)]
    assert topic.share(texts[0], length=3) == pytest.approx(np.mean(windows))
    assert topic.share(texts[1], length=3) == 0


def test_occurrences_of_a_phrase_are_counted(vocabulary: WordVocabulary, texts) -> None:
    assert occurrences_of(vocabulary.encode("the puck"), texts[0]) == 20
    assert occurrences_of(vocabulary.encode("puck the"), texts[0]) == 0
    assert occurrences_of(vocabulary.encode("the"), texts[1]) == 60
    assert occurrences_of([0] * 10_000, texts[0]) == 0
