from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.user_documents import documents_of, of_length
from tests.data.test_users import CORPUS, ROWS, corpus_of
from vestige.data.corpus import Corpus
from vestige.data.users import users_with
from vestige.errors import DataError


def test_documents_of_the_right_length_stay():
    assert list(of_length(CORPUS, shortest=2, longest=3)) == list(CORPUS)[:3]


@given(ROWS, st.integers(1, 3), st.integers(0, 9))
def test_every_user_has_exactly_as_many_documents_as_asked_for(rows, each, seed):
    corpus = corpus_of(rows)
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
    assert list(alone) == [
        t for t, u in zip(drawn, drawn.users or [], strict=True) if u == names[0]
    ]


def test_every_document_of_a_user_is_as_likely_as_any_other():
    corpus = Corpus.from_texts([f"w{i}" for i in range(10)], users=["ann"] * 10)
    seen = Counter(
        t for seed in range(500) for t in documents_of(corpus, ["ann"], each=3, seed=seed)
    )
    # 150 expected of 500 with a standard deviation of 10.2.
    assert len(seen) == 10
    assert max(abs(count - 150) for count in seen.values()) < 45


def test_too_few_documents_are_counted_and_no_user_is_named():
    with pytest.raises(DataError, match=r"2 of 3 users have fewer than 2 documents") as caught:
        documents_of(CORPUS, ["ann", "bob", "nobody"], each=2, seed=0, shortest=2)
    assert not any(name in str(caught.value) for name in ("ann", "bob", "nobody"))


def test_who_has_fewer_documents_stands_with_all_of_them_where_that_is_allowed():
    corpus = Corpus.from_texts(["a", "b", "c", "d"], users=["ann", "ann", "ann", "bob"])
    kept = documents_of(corpus, ["ann", "bob"], each=2, fewest=1, seed=0)
    assert sorted(kept.users) == ["ann", "ann", "bob"]
    with pytest.raises(DataError, match="1 of 2 users have fewer than 2 documents"):
        documents_of(corpus, ["ann", "bob"], each=2, seed=0)


@pytest.mark.parametrize(
    ("names", "each", "says"),
    [([], 1, "names must be at least one"), (["ann"], 0, "each must be positive, got 0")],
)
def test_what_is_no_choice_is_refused(names, each, says):
    with pytest.raises(ValueError, match=says):
        documents_of(CORPUS, names, each=each, seed=0)
