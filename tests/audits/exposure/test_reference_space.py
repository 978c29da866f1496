"""References are sampled as canaries are: every phrase of different words with equal chance."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from vestige.audits.exposure.references import (
    listed_references,
    other_order,
    space_words,
    split_phrase,
    word_references,
)
from vestige.data.canaries.texts import Canary, shuffled
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError

WORDS = ("ash", "birch", "cedar", "elm", "fir")


def vocabulary_of(*words, **options):
    return WordVocabulary(("<unk>", "<eos>", *words), **options)


def draw(words=WORDS, *, length=2, number=15, seed=0, **options):
    generator = np.random.default_rng(seed)
    return word_references(words, length=length, number=number, generator=generator, **options)


@pytest.mark.slow
@pytest.mark.parametrize("words", [WORDS, tuple(f"tree{i}" for i in range(30))])
def test_every_phrase_of_different_words_is_sampled_as_often(words):
    counts = Counter()
    for seed in range(300):
        drawn = draw(words, number=len(words) * (len(words) - 1) - 1, seed=seed)
        counts.update(drawn.phrases)
    possible = [" ".join(pair) for pair in permutations(words, 2)]
    assert set(counts) <= set(possible)
    assert stats.chisquare([counts[phrase] for phrase in possible]).pvalue > 0.001
    assert drawn.size == len(possible)
    assert not drawn.whole


def test_a_space_is_taken_whole_if_that_is_no_more_work():
    assert not draw(number=59, length=3).whole
    drawn = draw(number=60, length=3)
    assert sorted(drawn.phrases) == sorted(" ".join(p) for p in permutations(WORDS, 3))
    assert drawn.whole
    assert drawn.bits == np.log2(60)


def test_planted_phrases_are_left_out_of_a_sample_and_the_seed_decides():
    planted = frozenset({"ash birch", "fir elm"})
    assert not planted & set(draw(exclude=planted).phrases)
    assert planted <= set(draw(exclude=planted, number=20).phrases)
    assert draw(seed=3) == draw(seed=3) != draw(seed=4)


def test_a_list_of_candidates_is_a_whole_space():
    words = vocabulary_of("pin", "one", "two")
    drawn = listed_references(["pin  one", "pin two", "pin one", " "], words)
    assert drawn.phrases == ("pin one", "pin two")
    assert drawn.whole


def test_spaces_that_are_too_small_are_refused():
    with pytest.raises(DataError, match="no other phrases of 6"):
        draw(length=6)
    with pytest.raises(DataError, match="the list of candidates has 1 phrases, too few to rank"):
        listed_references(["pin one", "pin one"], vocabulary_of("pin", "one"))


def test_the_words_of_a_word_vocabulary_are_the_alphabetic_ones_that_it_reads():
    assert space_words(vocabulary_of("elm", "a", "2nd", "fir", "oak-tree"), []) == ("elm", "fir")
    assert space_words(vocabulary_of("Elm", "fir", lowercase=True), []) == ("fir",)
    split = vocabulary_of("my", ",", "elm", lowercase=True, tokenise="words")
    assert split_phrase("My, elm", split) == ["my", ",", "elm"]


LETTERS = vocabulary_of(*"abcde")
BYTES = SubwordVocabulary.train_bpe(Corpus.from_texts(["a b"]), size=258)


def test_a_subword_vocabulary_has_the_words_of_the_canaries():
    canaries = [Canary("my elm", "given", (), 1), Canary("my fir", "given", (), 0)]
    assert space_words(BYTES, canaries) == ("my", "elm", "fir")
    assert split_phrase("my, elm", BYTES) == ["my,", "elm"]


@pytest.mark.parametrize("vocabulary", [LETTERS, BYTES])
@pytest.mark.parametrize("words", ["ab", "aab", "abcde", "edcba"])
def test_another_order_has_the_same_words_and_is_another(words, vocabulary):
    other = other_order(list(words), vocabulary).split()
    assert sorted(other) == sorted(words)
    assert other != list(words)
    assert other == other_order(list(words), vocabulary).split()
    assert other_order([words[0]] * 2, vocabulary) is other_order([words[0]], vocabulary) is None


def test_the_order_of_a_word_vocabulary_is_that_of_completion():
    expected = LETTERS.decode(shuffled(LETTERS.encode("d a c b")))
    assert other_order(list("dacb"), LETTERS) == expected
