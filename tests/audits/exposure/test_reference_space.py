"""References are sampled like canaries: each phrase of different words is equally probable."""

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


def sample(words=WORDS, *, length=2, number=15, seed=0, **options):
    generator = np.random.default_rng(seed)
    return word_references(words, length=length, number=number, generator=generator, **options)


@pytest.mark.slow
@pytest.mark.parametrize("words", [WORDS, tuple(f"tree{i}" for i in range(30))])
def test_phrases_of_different_words_are_sampled_uniformly(words):
    counts = Counter()
    for seed in range(300):
        space = sample(words, number=len(words) * (len(words) - 1) - 1, seed=seed)
        counts.update(space.phrases)
    possible = [" ".join(pair) for pair in permutations(words, 2)]
    assert set(counts) <= set(possible)
    assert stats.chisquare([counts[phrase] for phrase in possible]).pvalue > 0.001
    assert space.size == len(possible)
    assert not space.whole


def test_a_space_no_larger_than_the_sample_is_whole():
    assert not sample(number=59, length=3).whole
    space = sample(number=60, length=3)
    assert sorted(space.phrases) == sorted(" ".join(p) for p in permutations(WORDS, 3))
    assert space.whole
    assert space.bits == np.log2(60)


def test_a_sample_excludes_planted_phrases_and_depends_on_the_seed_alone():
    planted = frozenset({"ash birch", "fir elm"})
    assert not planted & set(sample(exclude=planted).phrases)
    assert planted <= set(sample(exclude=planted, number=20).phrases)
    assert sample(seed=3) == sample(seed=3) != sample(seed=4)


def test_a_list_of_candidates_is_a_whole_space():
    words = vocabulary_of("pin", "one", "two")
    space = listed_references(["pin  one", "pin two", "pin one", " "], words)
    assert space.phrases == ("pin one", "pin two")
    assert space.whole


def test_a_space_that_is_too_small_is_refused():
    with pytest.raises(DataError, match="no other phrases of 6"):
        sample(length=6)


def test_a_word_vocabulary_gives_its_alphabetic_words():
    assert space_words(vocabulary_of("elm", "a", "2nd", "fir", "oak-tree"), []) == ("elm", "fir")
    assert space_words(vocabulary_of("Elm", "fir", lowercase=True), []) == ("fir",)
    split = vocabulary_of("my", ",", "elm", lowercase=True, tokenise="words")
    assert split_phrase("My, elm", split) == ["my", ",", "elm"]


LETTERS = vocabulary_of(*"abcde")
BYTES = SubwordVocabulary.train_bpe(Corpus.from_texts(["a b"]), size=258)


def test_a_subword_vocabulary_gives_the_words_of_the_canaries():
    canaries = [Canary("my elm", "given", (), 1), Canary("my fir", "given", (), 0)]
    assert space_words(BYTES, canaries) == ("my", "elm", "fir")
    assert split_phrase("my, elm", BYTES) == ["my,", "elm"]


@pytest.mark.parametrize("vocabulary", [LETTERS, BYTES])
@pytest.mark.parametrize("words", ["ab", "aab", "abcde"])
def test_another_order_is_different_and_has_the_same_words(words, vocabulary):
    other = other_order(list(words), vocabulary).split()
    assert sorted(other) == sorted(words)
    assert other != list(words)
    assert other == other_order(list(words), vocabulary).split()
    assert other_order([words[0]] * 2, vocabulary) is other_order([words[0]], vocabulary) is None


def test_the_other_order_for_a_word_vocabulary_is_that_of_completion():
    expected = LETTERS.decode(shuffled(LETTERS.encode("d a c b")))
    assert other_order(list("dacb"), LETTERS) == expected
