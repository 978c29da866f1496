"""Users for an audit, and disjoint groups of them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.corpus import Corpus
from vestige.data.users import (
    artificial_users,
    disjoint_groups,
    fits_length,
    is_person,
    users_with,
)
from vestige.errors import DataError

NAMES = ["ann", "bob", "cy", "[deleted]", "HelpBot", ""]
ROWS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 6)), min_size=1, max_size=60)


def corpus_of(rows):
    """Different documents with the given numbers of words."""
    texts = [" ".join([f"w{i}"] * words) for i, (_, words) in enumerate(rows)]
    return Corpus.from_texts(texts, users=[name for name, _ in rows], sources=texts)


@given(ROWS, st.integers(1, 4), st.integers(0, 4), st.integers(0, 3), st.integers(0, 4))
def test_users_agree_with_a_naive_count(rows, fewest, additional, shortest, range_):
    corpus, longest, most = corpus_of(rows), shortest + range_, fewest + additional
    limits = {"shortest": shortest, "longest": longest}
    counts = Counter(name for name, words in rows if shortest <= words <= longest)
    people = ("ann", "bob", "cy")
    users = users_with(corpus, fewest=fewest, most=most, **limits)
    assert users == [name for name in people if fewest <= counts[name] <= most]
    users = users_with(corpus, fewest=fewest, **limits)
    assert users == [name for name in people if fewest <= counts[name]]
    fits = fits_length(corpus, shortest, longest).tolist()
    assert fits == [shortest <= words <= longest for _, words in rows]


def test_bots_are_recognised_by_the_word_bot_in_their_name():
    people = ["Talbot", "talbot42", "Abbott", "robotics", "BOTANIST", "Cabot"]
    bots = ["RemindMeBot", "wiki_bot", "bot", "Bot-7", "TweetPosterBOT"]
    assert [name for name in [*people, *bots] if is_person(name)] == people


@given(st.sets(st.text(max_size=4), min_size=1, max_size=20), st.data())
def test_groups_are_disjoint(names, data):
    sizes = data.draw(st.lists(st.integers(0, len(names)), max_size=4))
    sizes = sizes if sum(sizes) <= len(names) else [len(names)]
    groups = disjoint_groups(sorted(names), sizes, seed=1)
    assert [len(group) for group in groups] == sizes
    together = [name for group in groups for name in group]
    assert len(set(together)) == len(together)
    assert set(together) <= names
    assert disjoint_groups(sorted(names, reverse=True), sizes, seed=1) == groups


@given(st.integers(1, 50), st.data())
def test_artificial_users_have_equal_numbers_of_documents(size, data):
    n = data.draw(st.integers(1, size))
    texts = [str(i) for i in range(size)]
    split = artificial_users(Corpus.from_texts(texts, sources=texts), n, seed=0)
    counts = Counter(split.users)
    assert len(counts) == n
    assert max(counts.values()) - min(counts.values()) <= 1
    assert (list(split), split.sources) == (texts, texts)
    assert users_with(split, fewest=1) == sorted(counts)


def test_groups_and_artificial_users_depend_on_the_seed():
    names = [str(i) for i in range(50)]
    assert disjoint_groups(names, [20], seed=0) != disjoint_groups(names, [20], seed=1)
    corpus = Corpus.from_texts(names[:40])
    users = [artificial_users(corpus, 4, seed=seed).users for seed in (0, 0, 1)]
    assert users[0] == users[1] != users[2]


CORPUS = corpus_of([("ann", 3), ("ann", 3), ("bob", 3), ("bob", 1)])
VALUES = [
    (lambda: users_with(CORPUS, fewest=0), "fewest must be positive, got 0"),
    (lambda: users_with(CORPUS, fewest=3, most=2), "most must be at least 3, got 2"),
    (lambda: users_with(CORPUS, fewest=1, shortest=-1), "shortest must be at least 0"),
    (lambda: fits_length(CORPUS, 5, 4), "longest must be at least 5, got 4"),
    (lambda: disjoint_groups(["a", "a"], [1], seed=0), "all different"),
    (lambda: disjoint_groups(["a"], [-1], seed=0), r"sizes\[0\] must be at least 0, got -1"),
    (lambda: artificial_users(CORPUS, 0, seed=0), "n must be positive, got 0"),
]
DATA = [
    (lambda: disjoint_groups(["a", "b"], [2, 1], seed=0), "groups of 2, 1 users need 3"),
    (lambda: artificial_users(CORPUS, 5, seed=0), "4 documents cannot be split into 5"),
    (lambda: users_with(Corpus.from_texts(["a"]), fewest=1), "has no users"),
]


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [*((ValueError, *row) for row in VALUES), *((DataError, *row) for row in DATA)],
)
def test_arguments_out_of_range_are_refused(error, call, message):
    with pytest.raises(error, match=message):
        call()
