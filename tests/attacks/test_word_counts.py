"""Public counts: of all text, and of the text of users of whom each one's own is left out."""

from collections import Counter

import numpy as np

from vestige.attacks.expected_rank import Tally, WordCounts
from vestige.data.asked_words import asked_words
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary

WORDS = tuple("abcdef")
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
CHANCE = np.random.default_rng(0)
USERS = [f"user {n}" for n in range(6) for _ in range(5)]
TEXTS = [" ".join(CHANCE.choice(list(WORDS), 7)) for _ in USERS]
DATA = encode(Corpus.from_texts(TEXTS, users=USERS), VOCABULARY)
ASKED = asked_words(DATA, VOCABULARY)
PUBLIC = [1, 2, 3, 4, 5]


def naive():
    """Features of each word from the texts of public users other than its own."""
    found = []
    for user, text, place in zip(ASKED.users, ASKED.texts, ASKED.positions, strict=True):
        others = [n for n, name in enumerate(USERS) if int(name[-1]) in {*PUBLIC} - {int(user)}]
        words, pairs = Counter(), Counter()
        # What stands before the first text of all is nobody's end.
        first = USERS.index("user 1")
        for n in others:
            split = TEXTS[n].split()
            words.update([*split, "<eos>"])
            pairs.update(zip([*([] if n == first else ["<eos>"]), *split[:-1]],
                             split if n != first else split[1:], strict=True))  # fmt: skip
        own = TEXTS[text].split()
        before = own[place - 1] if place else "<eos>"
        counts = (words[own[place]], pairs[before, own[place]], words[before])
        found.append([*np.log1p(counts), place])
    return np.array(found)


def test_a_users_own_text_is_not_counted_for_them():
    counts = WordCounts.of_users(DATA, PUBLIC, len(VOCABULARY))
    np.testing.assert_allclose(counts.features(ASKED), naive())
    np.testing.assert_allclose(np.log1p(counts.of_words(ASKED)), naive()[:, 0])


def test_who_is_not_counted_has_all_counts():
    counts = WordCounts.of_users(DATA, PUBLIC, len(VOCABULARY))
    public = DATA.tokens[DATA.offsets[5] :]
    mine = ASKED.take(ASKED.users == 0)
    whole = WordCounts.of(public, len(VOCABULARY))
    np.testing.assert_array_equal(counts.features(mine), whole.features(mine))


def test_a_tally_knows_what_was_never_there():
    assert Tally.of([3, 1, 3]).at(np.array([0, 1, 2, 3, 4])).tolist() == [0, 1, 0, 2, 0]
    assert Tally.of([]).at(np.array([5])).tolist() == [0]
