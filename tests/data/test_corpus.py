"""Documents in memory and in files."""

import hashlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.corpus import Corpus, write_corpus
from vestige.data.formats.tables import read_table
from vestige.errors import DataError

TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=30)


@given(TEXTS)
def test_the_texts_come_back_as_they_went_in(texts):
    corpus = Corpus.from_texts(texts)
    assert list(corpus) == texts
    assert len(corpus) == len(texts)
    assert [text for batch in corpus.batches(7) for text in batch] == texts


def test_an_endless_source_is_read_in_batches_and_never_as_a_list():
    alive = 0
    most = 0

    class Counted(str):
        def __new__(cls, value):
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return super().__new__(cls, value)

        def __del__(self):
            nonlocal alive
            alive -= 1

    corpus = Corpus.from_texts(Counted(str(i)) for i in range(50_000))
    assert len(corpus) == 50_000
    assert most < 25_000


@given(TEXTS, st.integers(0, 30))
def test_the_fingerprint_does_not_depend_on_how_the_table_is_chunked(texts, cut):
    whole = Corpus.from_texts(texts)
    parts = Corpus.from_texts(texts[:cut]) + Corpus.from_texts(texts[cut:])
    assert whole.fingerprint() == parts.fingerprint()


@given(TEXTS, TEXTS)
def test_fingerprints_are_equal_only_for_equal_texts(a, b):
    same = Corpus.from_texts(a).fingerprint() == Corpus.from_texts(b).fingerprint()
    assert same == (a == b)


def test_a_slice_has_the_fingerprint_of_its_contents():
    whole = Corpus.from_texts(["a", "bc", "", "def", "g"])
    cut = Corpus(whole.table.slice(1, 3))
    assert cut.fingerprint() == Corpus.from_texts(["bc", "", "def"]).fingerprint()


def test_the_fingerprint_sees_where_documents_end_and_whose_they_are():
    prints = {
        Corpus.from_texts(["ab", "c"]).fingerprint(),
        Corpus.from_texts(["a", "bc"]).fingerprint(),
        Corpus.from_texts(["a", "bc"], users=["x", "y"]).fingerprint(),
        Corpus.from_texts(["a", "bc"], labels=["x", "y"]).fingerprint(),
        Corpus.from_texts(["a", "bc"], sources=["x", "y"]).fingerprint(),
    }
    assert len(prints) == 5


def test_the_fingerprint_is_a_plain_sha256_of_lengths_and_contents():
    lengths = hashlib.sha256(np.array([2, 0, 3], np.int64).tobytes()).digest()
    contents = hashlib.sha256("hiéa".encode()).digest()
    expected = hashlib.sha256(b"vestige corpus 1" + b"text" + lengths + contents).hexdigest()
    assert Corpus.from_texts(["hi", "", "éa"]).fingerprint() == expected


@given(TEXTS, st.data())
def test_take_picks_like_a_list(texts, data):
    places = data.draw(st.lists(st.integers(0, max(0, len(texts) - 1)))) if texts else []
    taken = Corpus.from_texts(texts, users=texts).take(places)
    assert list(taken) == [texts[i] for i in places] == taken.users


@pytest.mark.parametrize("place", [-1, 2])
def test_a_place_outside_is_refused(place):
    with pytest.raises(ValueError, match=r"indices must lie in \[0, 2\)"):
        Corpus.from_texts(["a", "b"]).take([place])


def test_adding_keeps_the_columns_that_both_have():
    both = Corpus.from_texts(["a"], users=["u"], labels=["l"]) + Corpus.from_texts(
        ["b"], users=["v"]
    )
    assert (list(both), both.users, both.labels) == (["a", "b"], ["u", "v"], None)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=20), st.integers(0, 3))
def test_a_source_stays_with_its_document(texts, seed):
    corpus = Corpus.from_texts(texts, users=texts, sources=[f"to {text}" for text in texts])
    parts = corpus.split(0.5, seed=seed)
    for part in (*parts, Corpus.concatenate(parts), corpus.take([0, 0])):
        assert part.sources == [f"to {text}" for text in part]


def test_sources_are_kept_only_where_all_have_them():
    with_source = Corpus.from_texts(["a"], sources=["s"])
    assert (with_source + with_source).sources == ["s", "s"]
    assert (with_source + Corpus.from_texts(["b"])).sources is None


def test_owners_are_numbered_as_they_come():
    names, places = Corpus.from_texts(list("abc"), users=["v", "u", "v"]).owners()
    assert (names, places.tolist()) == (["v", "u"], [0, 1, 0])
    assert Corpus.from_texts([], users=[]).owners()[0] == []


@given(st.integers(0, 60), st.floats(0, 0.99), st.integers(0, 5))
def test_a_split_is_a_partition_in_order(size, fraction, seed):
    texts = [f"{i:03d}" for i in range(size)]
    rest, held_out = Corpus.from_texts(texts).split(fraction, seed=seed)
    assert sorted([*rest, *held_out]) == texts
    assert len(held_out) == round(fraction * size)
    for part in (list(rest), list(held_out)):
        assert all(a < b for a, b in pairwise(part))


def test_a_seed_decides_a_split(corpus):
    first = corpus.split(0.3, seed=1)[1].fingerprint()
    assert corpus.split(0.3, seed=1)[1].fingerprint() == first
    assert corpus.split(0.3, seed=2)[1].fingerprint() != first


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        (pa.table({"body": ["a"]}), r"has no column \"text\"; its columns are \['body'\]"),
        (pa.table({"text": [1]}), "has type int64, not text"),
        (pa.table({"text": ["a", None]}), "1 empty"),
        (pa.table({"text": ["a"], "user": [1.5]}), 'column "user" has type double'),
        (pa.table({"text": ["a"], "source": [["b"]]}), 'column "source" has type list'),
    ],
)
def test_a_table_without_proper_text_is_refused(table, fault):
    with pytest.raises(DataError, match=fault):
        Corpus(table)


@pytest.mark.parametrize("values", [["a", 3], ["\ud800"], [b"\xff"]])
def test_values_that_are_no_text_are_refused(values):
    with pytest.raises(DataError, match="not valid text"):
        Corpus.from_texts(values)


@pytest.mark.parametrize("users", [["u"], ["u", "v", "w"]])
def test_fewer_or_more_users_than_texts_are_refused(users):
    with pytest.raises(ValueError, match="one of each"):
        Corpus.from_texts(["a", "b"], users=users)


def test_a_foreign_column_is_left_behind():
    assert Corpus(pa.table({"text": ["a"], "score": [1]})).table.column_names == ["text"]


# Files of a corpus.

PRINTABLE = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)


@pytest.mark.slow
@given(texts=st.lists(PRINTABLE, min_size=1, max_size=10))
def test_what_is_written_is_what_is_read(texts, tmp_path_factory):
    corpus = Corpus.from_texts(texts, users=texts[::-1], labels=texts, sources=texts[::-1])
    path = tmp_path_factory.mktemp("written") / "c.jsonl"
    write_corpus(corpus, path)
    read = read_table(path, user_column="user", label_column="label", source_column="source")
    assert read.fingerprint() == corpus.fingerprint()


def test_a_name_without_format_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"c\.xyz"):
        write_corpus(Corpus.from_texts(["a"]), tmp_path / "c.xyz")


def test_progress_counts_documents(corpus, tmp_path):
    seen = []
    write_corpus(corpus, tmp_path / "c.jsonl", progress=seen.append)
    assert seen[-1] == len(corpus)
    assert seen == sorted(seen)
