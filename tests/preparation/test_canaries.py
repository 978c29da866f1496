"""Canaries are made as the options say, and options that contradict each other are refused."""

from collections import Counter

import pytest

from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.preparation.canaries import repetitions_of
from vestige.preparation.plant import plant

WORDS = "ash beech cedar date elm fig gum hazel ivy jasmine kale lime maple nettle oak".split()  # noqa: SIM905
CORPUS = Corpus.from_texts(
    [" ".join(WORDS[(i + j) % 15] for j in range(6)) for i in range(30)],
    users=[["ann", "bob"][i % 2] for i in range(30)],
)


def made(corpus=CORPUS, **settings):
    return plant(corpus, **settings).manifest.canaries


def kinds(canaries):
    return Counter((canary.pattern, canary.planted) for canary in canaries)


def test_without_settings_every_frequency_pattern_has_a_canary_and_a_control():
    words = [f"{one}ar{other}" for one in "abcdefgh" for other in "klmnopqr"]
    corpus = Corpus.from_texts([" ".join(words[: 64 - i]) for i in range(64)])
    canaries = made(corpus, length=2)
    patterns = ("all-low", "low-to-high", "mixed", "high-to-low")
    assert kinds(canaries) == dict.fromkeys(
        [(pattern, planted) for pattern in patterns for planted in (True, False)], 1
    )
    assert {canary.copies for canary in canaries} == {0, 10}


def test_given_phrases_are_planted_as_they_are():
    canaries = made(phrase=("quiet mice", "loud owls"), copies=3, controls=2)
    assert [canary.phrase for canary in canaries[:2]] == ["quiet mice", "loud owls"]
    assert kinds(canaries) == {("given", True): 2, ("given", False): 4}


def test_random_patterns_are_counted_and_each_has_its_controls():
    canaries = made(pattern=("random", "random"), length=2, controls=2)
    assert kinds(canaries) == {("random", True): 2, ("random", False): 4}


def test_users_and_coins_go_together():
    canaries = made(per_user=True, repetitions=(2,), coin_flip=8, copies=4, length=2, controls=5)
    found = kinds(canaries)
    assert found["random", True] == 2
    assert found["random", False] == 5
    assert found["coin-flip", True] + found["coin-flip", False] == 8
    assert {c.copies for c in canaries if c.pattern == "coin-flip"} == {0, 4}


def test_words_come_from_the_vocabulary_that_was_given():
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS[:8]))
    canaries = made(pattern=("random",), length=2, vocabulary=vocabulary, seed=1)
    assert {word for canary in canaries for word in canary.phrase.split()} <= set(WORDS[:8])


def test_the_seed_decides():
    one, same, other = (made(coin_flip=9, length=2, seed=seed) for seed in (1, 1, 2))
    assert one == same != other


def test_users_are_needed_for_their_canaries():
    with pytest.raises(DataError, match="no users"):
        made(Corpus.from_texts(list(CORPUS)), per_user=True, length=2)


CLASHES = {
    "phrase and pattern": ({"phrase": ("a",), "pattern": ("mixed",)}, "plant them in turn"),
    "phrase and users": ({"phrase": ("a",), "per_user": True}, "`phrase` and `per_user`"),
    "phrase and coins": ({"phrase": ("a",), "coin_flip": 9}, "`phrase` and `coin_flip`"),
    "coins and pattern": ({"coin_flip": 9, "pattern": ("random",)}, "`coin_flip` and `pattern`"),
    "random and mixed": ({"pattern": ("random", "mixed")}, "`pattern` random and another"),
    "users and mixed": ({"per_user": True, "pattern": ("mixed",)}, "other than random"),
    "users and copies": ({"per_user": True, "copies": 2}, "give `repetitions`"),
    "coins and controls": ({"coin_flip": 9, "controls": 2}, "tails are the controls"),
    "repetitions alone": ({"repetitions": (1,)}, "`repetitions` needs `per_user`"),
}


@pytest.mark.parametrize(("settings", "says"), CLASHES.values(), ids=CLASHES)
def test_settings_that_contradict_each_other_are_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        plant(CORPUS, **settings)


@pytest.mark.parametrize("given", ["0,2", "1,b", ",", "", "1.5", (0,), ()])
def test_repetitions_are_whole_numbers_from_one_on(given):
    with pytest.raises(ValueError, match="whole numbers from 1 on"):
        repetitions_of(given)


def test_repetitions_may_be_text_or_numbers():
    assert repetitions_of("1, 20") == repetitions_of([1, 20]) == (1, 20)
