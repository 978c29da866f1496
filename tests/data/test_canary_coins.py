"""Canaries of users, and canaries planted by a coin flip."""

import math
from collections import Counter

import pytest

from vestige.data.canaries.coins import coin_flip_canaries, user_canaries
from vestige.data.canaries.texts import plant
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError

WORDS = ["".join(chr(97 + int(digit)) * 3 for digit in f"{number:03}") for number in range(400)]
TEXTS = [" ".join(WORDS[i : i + 4]) for i in range(0, 400, 4)]
CORPUS = Corpus.from_texts(TEXTS, users=[f"u{i % 3}" for i in range(100)])
RESERVED = [f"reserved{i}" for i in range(60)]
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS, "Reserved3", *RESERVED))


def coin_flips(number=100, *, seed=0, vocabulary=VOCABULARY, **settings):
    return coin_flip_canaries(CORPUS, vocabulary, number=number, seed=seed, **settings)


def phrases(canaries):
    return {canary.phrase for canary in canaries}


def test_every_user_has_one_canary_per_number_of_copies():
    canaries = user_canaries(CORPUS, repetitions=(1, 4), controls=7, seed=0)
    counts = Counter((c.user, c.copies) for c in canaries if c.planted)
    assert counts == {(user, k): 1 for user in ("u0", "u1", "u2") for k in (1, 4)}
    assert [c.user for c in canaries if c.control] == [""] * 7
    assert len(phrases(canaries)) == len(canaries)
    assert all(len(set(c.phrase.split())) == 5 for c in canaries)
    planted, manifest = plant(CORPUS, canaries, seed=0)
    for canary, indices in zip(manifest.canaries, manifest.positions, strict=True):
        assert [planted.users[position] for position in indices] == [canary.user] * canary.copies
    assert len(planted) == 100 + 3 * (1 + 4)
    assert not phrases(canaries) & phrases(coin_flips(vocabulary=None))  # the same seed
    with pytest.raises(DataError, match=r"no users.*--user"):
        user_canaries(Corpus.from_texts(TEXTS), seed=0)


@pytest.mark.slow
def test_coins_are_fair_and_independent_of_the_words():
    samples = [coin_flips(seed=seed, vocabulary=None) for seed in range(20)]
    planted = sum(canary.planted for canaries in samples for canary in canaries)
    assert abs(planted - 1000) < 4 * math.sqrt(500)
    assert samples[3] == coin_flips(seed=3, vocabulary=None)
    assert {c.copies for c in samples[3]} == {0, 1}
    assert {c.pattern for c in samples[3]} == {"coin-flip"}
    coins = [[c.planted for c in coin_flips(50, kind=kind)] for kind in ("words", "repeated-token")]
    assert coins[0] == coins[1]


def test_repeated_tokens_do_not_occur_in_the_corpus():
    canaries = coin_flips(40, kind="repeated-token", length=3)
    assert all(len(set(canary.phrase.split())) == 1 for canary in canaries)
    assert all(len(canary.phrase.split()) == 3 for canary in canaries)
    assert len(phrases(canaries)) == 40
    assert len({canary.phrase.split()[0].casefold() for canary in canaries}) == 40
    assert all(set(canary.frequencies) == {0} for canary in canaries)
    plant(CORPUS, canaries, seed=0, vocabulary=VOCABULARY)


def test_repeated_subwords_do_not_occur_in_the_corpus():
    tokenizer = SubwordVocabulary.train_bpe(CORPUS, size=400).tokenizer
    tokenizer.add_tokens([f" spare{i}" for i in range(50)])
    vocabulary = SubwordVocabulary(tokenizer)
    canaries = coin_flips(20, vocabulary=vocabulary, kind="repeated-token", length=3)
    assert len(phrases(canaries)) == 20
    used = {token for text in CORPUS for token in vocabulary.encode(text)}
    last = {vocabulary.encode(canary.phrase)[-1] for canary in canaries}
    assert not used & last
    assert len(last) == 20


def test_coin_flip_canaries_that_cannot_be_made_are_refused():
    few = Corpus.from_texts(["one two three four"], users=["ann"])
    with pytest.raises(DataError, match="of 100 different phrases"):
        coin_flip_canaries(few, number=100, length=2, seed=0)
    with pytest.raises(DataError, match=r"has 4 words .* these canaries need 10 different ones"):
        coin_flip_canaries(few, number=100, length=5, seed=0)
    with pytest.raises(ValueError, match="kind must be one of"):
        coin_flips(10, kind="gradient")
    with pytest.raises(ValueError, match="`vocabulary` must be given"):
        coin_flips(10, vocabulary=None, kind="repeated-token")
    with pytest.raises(DataError, match=r"60 whole words .* does not use; 100 are needed"):
        coin_flips(100, kind="repeated-token")
