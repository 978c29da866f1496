"""Users of a corpus: who counts as one, whose documents are drawn, and groups that share nobody."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.corpus import Corpus
from vestige.data.users import (
    artificial_users,
    disjoint_groups,
    documents_of,
    is_person,
    of_length,
    users_with,
)
from vestige.errors import DataError

NAMES = ["ann", "bob", "cy", "[deleted]", "HelpBot", ""]
ROWS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 6)), min_size=1, max_size=60)


def made(rows):
    """A document of so many words for each row, no two alike."""
    texts = [" ".join([f"w{i}"] * words) for i, (_, words) in enumerate(rows)]
    return Corpus.from_texts(texts, users=[name for name, _ in rows], sources=texts)


@given(ROWS, st.integers(1, 4), st.integers(0, 4), st.integers(0, 3), st.integers(0, 4))
def test_users_are_those_whom_a_plain_count_finds(rows, fewest, more, shortest, longer):
    limits = {"shortest": shortest, "longest": shortest + longer}
    counts = Counter(name for name, words in rows if shortest <= words <= shortest + longer)
    people = ("ann", "bob", "cy")
    found = users_with(made(rows), fewest=fewest, most=fewest + more, **limits)
    assert found == [name for name in people if fewest <= counts[name] <= fewest + more]
    found = users_with(made(rows), fewest=fewest, **limits)
    assert found == [name for name in people if fewest <= counts[name]]
    kept = [words for _, words in rows if shortest <= words <= shortest + longer]
    assert [len(text.split()) for text in of_length(made(rows), **limits)] == kept


def test_a_name_that_holds_bot_is_a_persons_unless_it_is_a_word_of_it():
    people = ["Talbot", "talbot42", "Abbott", "robotics", "BOTANIST", "Cabot"]
    bots = ["RemindMeBot", "wiki_bot", "bot", "Bot-7", "TweetPosterBOT"]
    assert [name for name in [*people, *bots] if is_person(name)] == people


@given(ROWS, st.integers(1, 3), st.integers(0, 9))
def test_every_user_has_exactly_as_many_documents_as_asked_for(rows, each, seed):
    corpus = made(rows)
    names = users_with(corpus, fewest=each, shortest=2)
    if not names:
        return
    drawn = documents_of(corpus, names, each=each, seed=seed, shortest=2)
    assert Counter(drawn.users) == dict.fromkeys(names, each)
    texts = list(corpus)
    places = [texts.index(text) for text in drawn]
    assert places == sorted(set(places))
    assert all(len(text.split()) >= 2 for text in drawn)
    assert drawn.sources == list(drawn)
    alone = documents_of(corpus, names[:1], each=each, seed=seed, shortest=2)
    pairs = zip(drawn, drawn.users or [], strict=True)
    assert list(alone) == [text for text, user in pairs if user == names[0]]


def test_every_document_of_a_user_is_as_likely_as_any_other():
    corpus = Corpus.from_texts([f"w{i}" for i in range(10)], users=["ann"] * 10)
    seen = Counter(
        t for seed in range(500) for t in documents_of(corpus, ["ann"], each=3, seed=seed)
    )
    # 150 expected of 500 with a standard deviation of 10.2.
    assert len(seen) == 10
    assert max(abs(count - 150) for count in seen.values()) < 45


def test_too_few_documents_are_counted_and_no_user_is_named_unless_fewer_are_allowed():
    corpus = made([("ann", 3), ("ann", 3), ("ann", 3), ("bob", 3), ("bob", 1)])
    with pytest.raises(DataError, match=r"2 of 3 users have fewer than 2 documents") as caught:
        documents_of(corpus, ["ann", "bob", "nobody"], each=2, seed=0, shortest=2)
    assert not any(name in str(caught.value) for name in ("ann", "bob", "nobody"))
    kept = documents_of(corpus, ["ann", "bob"], each=2, fewest=1, seed=0, shortest=2)
    assert sorted(kept.users) == ["ann", "ann", "bob"]


@given(st.sets(st.text(max_size=4), min_size=1, max_size=20), st.data())
def test_groups_share_nobody(names, data):
    sizes = data.draw(st.lists(st.integers(0, len(names)), max_size=4))
    sizes = sizes if sum(sizes) <= len(names) else [len(names)]
    groups = disjoint_groups(sorted(names), sizes, seed=1)
    assert [len(group) for group in groups] == sizes
    together = [name for group in groups for name in group]
    assert len(set(together)) == len(together)
    assert set(together) <= names
    assert disjoint_groups(sorted(names, reverse=True), sizes, seed=1) == groups


@given(st.integers(1, 50), st.data())
def test_artificial_users_have_equally_many_documents(size, data):
    n = data.draw(st.integers(1, size))
    texts = [str(i) for i in range(size)]
    split = artificial_users(Corpus.from_texts(texts, sources=texts), n, seed=0)
    counts = Counter(split.users)
    assert len(counts) == n
    assert max(counts.values()) - min(counts.values()) <= 1
    assert (list(split), split.sources) == (texts, texts)
    assert users_with(split, fewest=1) == sorted(counts)


def test_a_seed_decides_groups_and_artificial_users():
    names = [str(i) for i in range(50)]
    assert disjoint_groups(names, [20], seed=0) != disjoint_groups(names, [20], seed=1)
    corpus = Corpus.from_texts(names[:40])
    users = [artificial_users(corpus, 4, seed=seed).users for seed in (0, 0, 1)]
    assert users[0] == users[1] != users[2]


CORPUS = made([("ann", 3), ("ann", 3), ("bob", 3), ("bob", 1)])
VALUES = [
    (lambda: users_with(CORPUS, fewest=0), "fewest must be positive, got 0"),
    (lambda: users_with(CORPUS, fewest=3, most=2), "most must be at least 3, got 2"),
    (lambda: users_with(CORPUS, fewest=1, shortest=-1), "shortest must be at least 0"),
    (lambda: of_length(CORPUS, shortest=5, longest=4), "longest must be at least 5, got 4"),
    (lambda: documents_of(CORPUS, [], each=1, seed=0), "names must be at least one"),
    (lambda: documents_of(CORPUS, ["ann"], each=0, seed=0), "each must be positive, got 0"),
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
    ("error", "call", "says"),
    [*((ValueError, *row) for row in VALUES), *((DataError, *row) for row in DATA)],
)
def test_what_is_out_of_range_or_cannot_be_given_is_said(error, call, says):
    with pytest.raises(error, match=says):
        call()
