"""Corpora in memory and in files."""

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


@given(TEXTS, st.data())
def test_texts_are_selected_like_items_of_a_list(texts, data):
    corpus = Corpus.from_texts(texts, users=texts)
    assert list(corpus) == texts
    assert len(corpus) == len(texts)
    assert [text for batch in corpus.batches(7) for text in batch] == texts
    positions = data.draw(st.lists(st.integers(0, len(texts) - 1))) if texts else []
    selection = corpus.take(positions)
    assert list(selection) == [texts[i] for i in positions] == selection.users


def test_an_iterator_is_read_in_batches():
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


# Fingerprints


@given(TEXTS, TEXTS, st.integers(0, 30))
def test_fingerprints_are_equal_exactly_for_equal_texts(a, b, cut):
    corpus = Corpus.from_texts(a)
    assert (corpus.fingerprint() == Corpus.from_texts(b).fingerprint()) == (a == b)
    parts = Corpus.from_texts(a[:cut]) + Corpus.from_texts(a[cut:])
    assert corpus.fingerprint() == parts.fingerprint()
    part = Corpus(corpus.table.slice(cut))
    assert part.fingerprint() == Corpus.from_texts(a[cut:]).fingerprint()


def test_the_fingerprint_is_the_sha256_of_lengths_and_contents_of_each_column():
    lengths = hashlib.sha256(np.array([2, 0, 3], np.int64).tobytes()).digest()
    contents = hashlib.sha256("hiéa".encode()).digest()
    expected = hashlib.sha256(b"vestige corpus 1" + b"text" + lengths + contents).hexdigest()
    assert Corpus.from_texts(["hi", "", "éa"]).fingerprint() == expected
    columns = [{}, *({name: ["x", "y"]} for name in ("users", "labels", "sources"))]
    fingerprints = {Corpus.from_texts(["a", "bc"], **names).fingerprint() for names in columns}
    assert len(fingerprints | {Corpus.from_texts(["ab", "c"]).fingerprint()}) == 5


# Parts of corpora


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=20), st.integers(0, 3))
def test_parts_keep_the_sources_of_their_documents(texts, seed):
    corpus = Corpus.from_texts(texts, users=texts, sources=[f"to {text}" for text in texts])
    parts = corpus.split(0.5, seed=seed)
    for part in (*parts, Corpus.concatenate(parts), corpus.take([0, 0])):
        assert part.sources == [f"to {text}" for text in part]


def test_a_sum_of_corpora_keeps_their_common_columns():
    first = Corpus.from_texts(["a"], users=["u"], labels=["l"], sources=["s"])
    both = first + Corpus.from_texts(["b"], users=["v"])
    assert (list(both), both.users) == (["a", "b"], ["u", "v"])
    assert both.labels is both.sources is None
    assert (first + first).sources == ["s", "s"]


def test_users_are_numbered_in_order_of_appearance():
    names, positions = Corpus.from_texts(list("abc"), users=["v", "u", "v"]).user_indices()
    assert (names, positions.tolist()) == (["v", "u"], [0, 1, 0])
    assert Corpus.from_texts([], users=[]).user_indices()[0] == []


@given(st.integers(0, 60), st.floats(0, 0.99), st.integers(0, 5))
def test_a_split_is_a_partition_in_order_and_depends_on_the_seed(size, fraction, seed):
    corpus = Corpus.from_texts([f"{i:03d}" for i in range(size)])
    rest, held_out = corpus.split(fraction, seed=seed)
    assert sorted([*rest, *held_out]) == list(corpus)
    assert len(held_out) == round(fraction * size)
    for part in (list(rest), list(held_out)):
        assert all(a < b for a, b in pairwise(part))
    assert list(corpus.split(fraction, seed=seed)[1]) == list(held_out)
    if size > 30 and 0.2 < fraction < 0.8:
        assert list(corpus.split(fraction, seed=seed + 1)[1]) != list(held_out)


# Errors

FAULTS = {
    "no text": (lambda: Corpus(pa.table({"body": ["a"]})), r"no column \"text\"; .*\['body'\]"),
    "numbers": (lambda: Corpus(pa.table({"text": [1]})), "has type int64, not text"),
    "nothing": (lambda: Corpus(pa.table({"text": ["a", None]})), "1 empty"),
    "users": (lambda: Corpus(pa.table({"text": ["a"], "user": [1.5]})), '"user" has type double'),
    "a number": (lambda: Corpus.from_texts(["a", 3]), "not valid text"),
    "half a surrogate pair": (lambda: Corpus.from_texts(["\ud800"]), "not valid text"),
    "bytes": (lambda: Corpus.from_texts([b"\xff"]), "not valid text"),
}


@pytest.mark.parametrize(("make", "fault"), FAULTS.values(), ids=FAULTS)
def test_invalid_text_is_refused(make, fault):
    with pytest.raises(DataError, match=fault):
        make()


def test_arguments_out_of_range_are_refused():
    for position in (-1, 2):
        with pytest.raises(ValueError, match=r"indices must lie in \[0, 2\)"):
            Corpus.from_texts(["a", "b"]).take([position])
    for users in (["u"], ["u", "v", "w"]):
        with pytest.raises(ValueError, match="one of each"):
            Corpus.from_texts(["a", "b"], users=users)
    foreign = pa.table({"text": ["a"], "score": [1]})
    assert Corpus(foreign).table.column_names == ["text"]  # other columns are dropped


# Files of a corpus

PRINTABLE = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)


@pytest.mark.slow
@given(texts=st.lists(PRINTABLE, min_size=1, max_size=10))
def test_writing_and_reading_is_lossless(texts, tmp_path_factory):
    corpus = Corpus.from_texts(texts, users=texts[::-1], labels=texts, sources=texts[::-1])
    path = tmp_path_factory.mktemp("written") / "c.jsonl"
    write_corpus(corpus, path)
    read = read_table(path, user_column="user", label_column="label", source_column="source")
    assert read.fingerprint() == corpus.fingerprint()


def test_writing_needs_a_known_format_and_reports_progress(corpus, tmp_path):
    with pytest.raises(DataError, match=r"c\.xyz"):
        write_corpus(Corpus.from_texts(["a"]), tmp_path / "c.xyz")
    counts = []
    write_corpus(corpus, tmp_path / "c.jsonl", progress=counts.append)
    assert counts[-1] == len(corpus)
    assert counts == sorted(counts)
