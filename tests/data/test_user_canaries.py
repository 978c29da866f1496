"""Canaries of one person each, and canaries by the fall of a coin."""

import math
from collections import Counter

import pytest

from vestige.data.corpus import Corpus
from vestige.data.manifest import plant
from vestige.data.user_canaries import coin_flip_canaries, user_canaries
from vestige.errors import DataError

WORDS = ["".join(chr(97 + int(digit)) * 3 for digit in f"{number:03}") for number in range(400)]


def corpus(*, users: bool = True) -> Corpus:
    texts = [" ".join(WORDS[i : i + 4]) for i in range(0, 400, 4)]
    return Corpus.from_texts(texts, users=[f"u{i % 3}" for i in range(100)] if users else None)


def test_every_user_has_a_canary_for_each_number_of_repetitions():
    made = user_canaries(corpus(), repetitions=(1, 4), controls=7, seed=0)
    planted = [canary for canary in made if canary.planted]
    assert Counter((c.user, c.copies) for c in planted) == {
        (user, k): 1 for user in ("u0", "u1", "u2") for k in (1, 4)
    }
    assert [c.user for c in made if c.control] == [""] * 7
    assert len({c.phrase for c in made}) == len(made)
    assert all(len(set(c.phrase.split())) == 5 for c in made)


def test_the_copies_are_documents_of_their_user():
    made = user_canaries(corpus(), repetitions=(2,), controls=1, seed=0)
    planted, manifest = plant(corpus(), made, seed=0)
    for canary, places in zip(manifest.canaries, manifest.positions, strict=True):
        assert [planted.users[place] for place in places] == [canary.user] * canary.copies
    assert len(planted) == 100 + 6


def test_a_corpus_without_users_is_refused():
    with pytest.raises(DataError, match=r"no users.*--user"):
        user_canaries(corpus(users=False), seed=0)


@pytest.mark.parametrize("bad", [{"repetitions": ()}, {"repetitions": (0,)}, {"controls": 0}])
def test_numbers_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        user_canaries(corpus(), seed=0, **bad)


def test_coins_are_fair_and_independent_of_the_words():
    heads = [
        canary.planted
        for seed in range(20)
        for canary in coin_flip_canaries(corpus(), number=100, seed=seed)
    ]
    assert abs(sum(heads) - 1000) < 4 * math.sqrt(500)
    again = coin_flip_canaries(corpus(), number=100, seed=3)
    assert again == coin_flip_canaries(corpus(), number=100, seed=3)
    assert {c.copies for c in again} == {0, 1}
    assert {c.pattern for c in again} == {"coin-flip"}


def test_both_kinds_of_one_seed_share_no_phrase():
    of_users = user_canaries(corpus(), seed=0)
    by_coin = coin_flip_canaries(corpus(), number=100, seed=0)
    assert not {c.phrase for c in of_users} & {c.phrase for c in by_coin}


def test_more_phrases_than_there_are_is_refused():
    few = Corpus.from_texts(["one two three four"], users=["ann"])
    with pytest.raises(DataError, match=r"of 100 different phrases|alphabetic words"):
        coin_flip_canaries(few, number=100, length=2, seed=0)
