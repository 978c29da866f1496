"""Canaries of one person each, and canaries by the fall of a coin."""

import math
from collections import Counter

import pytest

from vestige.data.canaries.coins import coin_flip_canaries, user_canaries
from vestige.data.canaries.texts import plant
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError

WORDS = ["".join(chr(97 + int(digit)) * 3 for digit in f"{number:03}") for number in range(400)]


def corpus(*, users=True):
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


@pytest.mark.slow
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
    with pytest.raises(DataError, match="of 100 different phrases"):
        coin_flip_canaries(few, number=100, length=2, seed=0)
    with pytest.raises(DataError, match=r"has 4 words .* these canaries need 10 different ones"):
        coin_flip_canaries(few, number=100, length=5, seed=0)


RESERVED = [f"reserved{i}" for i in range(60)]


def with_reserved():
    return WordVocabulary(("<unk>", "<eos>", *WORDS, "Reserved3", *RESERVED))


def test_a_repeated_token_is_nothing_but_a_new_one():
    made = coin_flip_canaries(
        corpus(), with_reserved(), number=40, kind="repeated-token", length=3, seed=0
    )
    assert all(len(set(canary.phrase.split())) == 1 for canary in made)
    assert all(len(canary.phrase.split()) == 3 for canary in made)
    assert len({canary.phrase for canary in made}) == 40
    assert len({canary.phrase.split()[0].casefold() for canary in made}) == 40
    assert all(set(canary.frequencies) == {0} for canary in made)
    plant(corpus(), made, seed=0, vocabulary=with_reserved())


def test_new_tokens_need_a_vocabulary_that_has_them():
    with pytest.raises(ValueError, match="`vocabulary` must be given"):
        coin_flip_canaries(corpus(), number=10, kind="repeated-token", seed=0)
    with pytest.raises(DataError, match=r"60 whole words .* does not use; 100 are needed"):
        coin_flip_canaries(corpus(), with_reserved(), number=100, kind="repeated-token", seed=0)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="kind must be one of"):
        coin_flip_canaries(corpus(), number=10, kind="gradient", seed=0)


def test_coins_do_not_depend_on_the_kind():
    one, other = (
        coin_flip_canaries(corpus(), with_reserved(), number=50, kind=kind, seed=5)
        for kind in ("words", "repeated-token")
    )
    assert [c.planted for c in one] == [c.planted for c in other]


def test_subwords_are_read_as_one_token_each():
    """A byte-level BPE of 60 merges or so, trained on the spot."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from vestige.data.subwords import SubwordVocabulary

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(
        [" ".join(WORDS)] * 3, trainers.BpeTrainer(vocab_size=400, special_tokens=["<eos>"])
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")
    fast.add_tokens([f" spare{i}" for i in range(50)])
    vocabulary = SubwordVocabulary(fast)
    made = coin_flip_canaries(
        corpus(), vocabulary, number=20, kind="repeated-token", length=3, seed=0
    )
    assert len({canary.phrase for canary in made}) == 20
    used = {token for text in corpus() for token in vocabulary.encode(text)}
    last = [vocabulary.encode(canary.phrase)[-1] for canary in made]
    assert not used & set(last)
    assert len(set(last)) == 20
