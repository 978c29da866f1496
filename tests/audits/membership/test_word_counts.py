"""Public counts: of the text of some users, and the same for everybody."""

from collections import Counter

import numpy as np

from vestige.audits.membership.ranked_words import WordCounts
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.token_queries import token_queries
from vestige.data.vocabulary import WordVocabulary

WORDS = tuple("abcdef")
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
CHANCE = np.random.default_rng(0)
USERS = [f"user {n}" for n in range(6) for _ in range(5)]
TEXTS = [" ".join(CHANCE.choice(list(WORDS), 7)) for _ in USERS]
DATA = encode(Corpus.from_texts(TEXTS, users=USERS), VOCABULARY)
ASKED = token_queries(DATA, VOCABULARY)
COUNTED = [1, 4]


def naive():
    """Features of each word from the texts of the counted users."""
    words, pairs, found = Counter(), Counter(), []
    before_all = None
    for text, name in zip(TEXTS, USERS, strict=True):
        if int(name[-1]) not in COUNTED:
            continue
        split = [*text.split(), "<eos>"]
        words.update(split)
        pairs.update(zip([before_all, *split[:-1]], split, strict=True))
        before_all = "<eos>"  # what stands before the first text of all is nobody's end
    for text, place in zip(ASKED.texts, ASKED.positions, strict=True):
        own = TEXTS[text].split()
        before = own[place - 1] if place else "<eos>"
        counts = (words[own[place]], pairs[before, own[place]], words[before])
        found.append([*np.log1p(counts), place])
    return np.array(found)


def test_counts_are_those_of_the_counted_users_for_everybody():
    counts = WordCounts.of_users(DATA, COUNTED, len(VOCABULARY))
    np.testing.assert_allclose(counts.features(ASKED), naive())


def test_pairs_of_an_empty_text_are_none():
    counts = WordCounts.of([], len(VOCABULARY))
    assert not counts.features(ASKED)[:, :3].any()
