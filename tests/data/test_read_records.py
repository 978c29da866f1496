import numpy as np
import pytest

from vestige.data.corpus import Corpus
from vestige.data.records import NOBODY, ReadRecords, among, hash_texts
from vestige.errors import DataError

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
