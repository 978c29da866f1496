"""What decides by a record's content decides for that record alone."""

import hashlib

import numpy as np
import pytest

from vestige.data.corpus import Corpus
from vestige.data.division import (
    BYTES,
    NOBODY,
    ReadRecords,
    among,
    hash_texts,
    record_hashes,
    uniform,
)
from vestige.errors import DataError


def test_a_hash_is_that_of_the_text_and_of_nothing_else():
    texts = ["to be", "", "or\nnot ü", "to be"]
    for users in (None, ["ann", "bob", "cy", "dan"]):
        found = record_hashes(Corpus.from_texts(texts, users=users))
        wanted = [hashlib.blake2b(t.encode(), digest_size=BYTES).digest() for t in texts]
        assert [one.tobytes() for one in found] == wanted


def test_a_pair_is_hashed_with_its_source_and_borders_count():
    ab = record_hashes(Corpus.from_texts(["b", "ab"], sources=["a", ""]))
    assert len(np.unique(ab)) == 2


def test_no_texts_have_no_hashes():
    assert len(hash_texts([])) == 0
    assert len(uniform(hash_texts([]))) == 0


def test_numbers_are_uniform_and_one_record_moves_no_other():
    from scipy.stats import kstest

    texts = [f"record {i}" for i in range(5000)]
    numbers = uniform(hash_texts(texts))
    assert kstest(numbers, "uniform").pvalue > 0.001
    assert np.array_equal(np.delete(numbers, 17), uniform(hash_texts(texts[:17] + texts[18:])))


# Records that a training has read.

RECORDS = ReadRecords.of(
    Corpus.from_texts(["a", "b", "a"], users=["ann", "", "bob"]),
    Corpus.from_texts(["c"], users=["ann"]),
)


def test_records_are_hashes_of_texts_and_of_who_wrote_them():
    assert RECORDS.records.tolist() == hash_texts(["a", "b", "a", "c"]).tolist()
    assert RECORDS.held_out.tolist() == [False, False, False, True]
    ann, bob = (name.tobytes() for name in hash_texts(["ann", "bob"]))
    assert [one.tobytes() for one in RECORDS.users] == [ann, NOBODY, bob, ann]
    assert len(RECORDS.learnt()) == 3
    assert len(RECORDS.judging()) == 1


def test_they_come_back_from_their_file(tmp_path):
    np.save(tmp_path / "one.npy", RECORDS.rows(), allow_pickle=False)
    again = ReadRecords.load(tmp_path / "one.npy")
    assert again.rows().tolist() == RECORDS.rows().tolist()


def test_nobody_is_among_no_ones():
    assert among(RECORDS.users, RECORDS.users).tolist() == [True, False, True, True]
    assert not among(RECORDS.records, RECORDS.records[:0]).any()


def test_a_header_that_lies_about_the_size_allocates_nothing(tmp_path):
    file = tmp_path / "one.npy"
    np.save(file, RECORDS.rows(), allow_pickle=False)
    content = file.read_bytes()
    assert content.count(b"(4,), }     ") == 1
    for shape in (b"(9**17,), }", b"(4**15,), }", b"(99999999,)}", b"(-1,), }    "):
        file.write_bytes(content.replace(b"(4,), }     ", shape.ljust(12)))
        with pytest.raises(DataError, match=r"one\.npy has no valid hashes"):
            ReadRecords.load(file)


@pytest.mark.parametrize("content", [b"", b"no array", "another array"])
def test_a_damaged_file_is_named(tmp_path, content):
    file = tmp_path / "one.npy"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        np.save(file, np.arange(3))
    with pytest.raises(DataError, match=r"one\.npy has no valid hashes"):
        ReadRecords.load(file)
