"""References are drawn as canaries are: every phrase of different words alike."""

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


def draw(words=WORDS, *, length=2, number=15, seed=0, **options):
    generator = np.random.default_rng(seed)
    return word_references(words, length=length, number=number, generator=generator, **options)


@pytest.mark.slow
@pytest.mark.parametrize("words", [WORDS, tuple(f"tree{i}" for i in range(30))])
def test_every_phrase_of_different_words_is_drawn_as_often(words):
    counts = Counter()
    for seed in range(300):
        drawn = draw(words, number=len(words) * (len(words) - 1) - 1, seed=seed)
        counts.update(drawn.phrases)
    possible = [" ".join(pair) for pair in permutations(words, 2)]
    assert set(counts) <= set(possible)
    assert stats.chisquare([counts[phrase] for phrase in possible]).pvalue > 0.001
    assert drawn.size == len(possible)
    assert not drawn.whole


def test_the_whole_space_has_each_phrase_once():
    drawn = draw(number=60, length=3)
    assert sorted(drawn.phrases) == sorted(" ".join(p) for p in permutations(WORDS, 3))
    assert drawn.whole
    assert drawn.bits == np.log2(60)


@pytest.mark.parametrize(("number", "whole"), [(59, False), (60, True)])
def test_a_space_is_taken_whole_where_that_is_no_more_work(number, whole):
    assert draw(length=3, number=number).whole is whole


def test_what_a_model_was_trained_on_is_left_out_of_a_sample():
    planted = frozenset({"ash birch", "fir elm"})
    assert not planted & set(draw(exclude=planted).phrases)
    assert planted <= set(draw(exclude=planted, number=20).phrases)


def test_a_seed_draws_the_same_again():
    assert draw(seed=3) == draw(seed=3)
    assert draw(seed=3) != draw(seed=4)


def test_a_space_that_is_no_space_is_refused():
    with pytest.raises(DataError, match="no other phrases of 6"):
        draw(length=6)


def test_a_list_of_candidates_is_a_whole_space():
    words = WordVocabulary(("<unk>", "<eos>", "pin", "one", "two"))
    drawn = listed_references(["pin  one", "pin two", "pin one", " "], words)
    assert drawn.phrases == ("pin one", "pin two")
    assert drawn.whole
    with pytest.raises(DataError, match="the list of candidates has 1 phrases, too few to rank"):
        listed_references(["pin one", "pin one"], words)


def test_the_words_of_a_word_vocabulary_are_its_alphabetic_ones():
    vocabulary = WordVocabulary(("<unk>", "<eos>", "elm", "a", "2nd", "fir", "oak-tree"))
    assert space_words(vocabulary, []) == ("elm", "fir")


def test_words_that_the_vocabulary_itself_does_not_read_are_left_out():
    vocabulary = WordVocabulary(("<unk>", "<eos>", "Elm", "fir"), lowercase=True)
    assert space_words(vocabulary, []) == ("fir",)


def test_a_subword_vocabulary_has_the_words_of_the_canaries():
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(["elm fir"]), size=258)
    canaries = [Canary("my elm", "given", (), 1), Canary("my fir", "given", (), 0)]
    assert space_words(vocabulary, canaries) == ("my", "elm", "fir")
    assert split_phrase("my, elm", vocabulary) == ["my,", "elm"]


def test_a_word_vocabulary_takes_a_phrase_apart_as_it_reads_it():
    vocabulary = WordVocabulary(("<unk>", "<eos>", "my", ",", "elm"), True, "words")
    assert split_phrase("My, elm", vocabulary) == ["my", ",", "elm"]


LETTERS = WordVocabulary(("<unk>", "<eos>", *"abcde"))
BYTES = SubwordVocabulary.train_bpe(Corpus.from_texts(["a b"]), size=258)


@pytest.mark.parametrize("vocabulary", [LETTERS, BYTES])
@pytest.mark.parametrize("words", [["a", "b"], ["a", "a", "b"], list("abcde"), list("edcba")])
def test_another_order_has_the_same_words_and_is_another(words, vocabulary):
    other = other_order(words, vocabulary).split()
    assert sorted(other) == sorted(words)
    assert other != words
    assert other == other_order(words, vocabulary).split()


@pytest.mark.parametrize("vocabulary", [LETTERS, BYTES])
@pytest.mark.parametrize("words", [["a"], ["a", "a"]])
def test_what_has_no_other_order_has_none(words, vocabulary):
    assert other_order(words, vocabulary) is None


def test_the_order_of_a_word_vocabulary_is_that_of_completion():
    expected = LETTERS.decode(shuffled(LETTERS.encode("d a c b")))
    assert other_order(list("dacb"), LETTERS) == expected
