"""One record or user has no influence on the others in a division."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.corpus import Corpus
from vestige.data.division import (
    BYTES,
    UNKNOWN_USER,
    ReadRecords,
    among,
    divide,
    hash_texts,
    record_hashes,
    uniform,
)
from vestige.errors import DataError

RECORDS = st.lists(
    st.tuples(st.sampled_from([f"text {i}" for i in range(30)]), st.sampled_from("abcdefgh")),
    min_size=2,
    max_size=40,
)


def corpus_of(records):
    return Corpus.from_texts([t for t, _ in records], users=[u for _, u in records])


def parts(records, *args, **options):
    """The part of each record, with one more record that is always in training."""
    division = divide(
        corpus_of([*records, ("kept", "nobody")]), *args, keep=[len(records)], **options
    )
    rows = zip(division.within_cap_mask, division.held_out_mask, strict=True)
    return [("held" if out else "trained") if stays else "left" for stays, out in rows][:-1]


@given(RECORDS, st.floats(0, 0.9), st.data())
def test_one_record_more_or_less_moves_no_other(records, fraction, data):
    gone = data.draw(st.integers(0, len(records) - 1))
    whole = parts(records, fraction)
    rest = parts(records[:gone] + records[gone + 1 :], fraction)
    assert rest == whole[:gone] + whole[gone + 1 :]


@pytest.mark.slow
@given(RECORDS, st.floats(0, 0.9), st.data())
def test_one_user_more_or_less_moves_no_other(records, fraction, data):
    gone = data.draw(st.sampled_from(records))[1]
    stays = [user != gone for _, user in records]
    cap = data.draw(st.none() | st.integers(1, 4))
    whole = parts(records, fraction, by_user=True, most_per_user=cap)
    rest = parts([r for r, s in zip(records, stays, strict=True) if s], fraction, by_user=True,
                 most_per_user=cap)  # fmt: skip
    assert rest == [part for part, s in zip(whole, stays, strict=True) if s]


@pytest.mark.slow
@given(RECORDS, st.data())
def test_one_record_less_moves_at_most_one_record_of_its_user_under_the_cap(records, data):
    records = [(f"{text} {i}", user) for i, (text, user) in enumerate(records)]
    gone = data.draw(st.integers(0, len(records) - 1))
    cap = data.draw(st.integers(1, 4))
    others = records[:gone] + records[gone + 1 :]
    before, after = parts(records, 0, most_per_user=cap), parts(others, 0, most_per_user=cap)
    whole = before[:gone] + before[gone + 1 :]
    moved = [i for i, pair in enumerate(zip(whole, after, strict=True)) if len(set(pair)) == 2]
    assert len(moved) <= 1
    for position in moved:
        assert (whole[position], after[position]) == ("left", "trained")
        assert others[position][1] == records[gone][1]
        assert before[gone] == "trained"
    by_user = [dict(zip((u for _, u in rs), parts(rs, 0.3, by_user=True), strict=True))
               for rs in (records, others)]  # fmt: skip
    assert by_user[1].items() <= by_user[0].items()


@given(RECORDS, st.floats(0, 0.9), st.booleans())
def test_copies_and_users_are_never_split(records, fraction, by_user):
    went = parts(records, fraction, by_user=by_user)
    key = 1 if by_user else 0
    ways = {(record[key], part) for record, part in zip(records, went, strict=True)}
    assert len(ways) == len({record[key] for record in records})


@pytest.mark.parametrize("by_user", [False, True])
@pytest.mark.parametrize("fraction", [0.05, 0.3])
def test_the_held_out_share_is_the_fraction(by_user, fraction):
    def require(held, of):
        assert abs(held - of * fraction) < 4 * np.sqrt(of * fraction * (1 - fraction))

    corpus = corpus_of([(f"text {i}", f"user {i}") for i in range(4000)])
    require(len(divide(corpus, fraction, by_user=by_user).held_out), 4000)
    corpus = corpus_of([(f"text {i} {j}", f"user {j}") for i in range(20) for j in range(400)])
    division = divide(corpus, fraction, most_per_user=1)
    assert len(division.left_out) == 19 * 400
    require(len(division.held_out), 400)  # of the documents under the cap


@pytest.mark.slow
@given(RECORDS, st.integers(1, 5))
def test_a_cap_leaves_each_user_the_documents_of_the_smallest_hashes(records, cap):
    corpus = corpus_of(records)
    division = divide(corpus, 0, most_per_user=cap)
    had, has = Counter(corpus.users), Counter(division.training.users)
    assert has == {user: min(count, cap) for user, count in had.items()}
    assert len(division.training) + len(division.left_out) == len(corpus)
    more = divide(corpus, 0, most_per_user=cap + 1)
    assert not (division.within_cap_mask & ~more.within_cap_mask).any()
    beyond = {user for user, count in had.items() if count > cap}
    summary = division.summary()
    assert summary["left_out_users"] == len(beyond)
    assert summary["left_out_documents"] == sum(had[user] - cap for user in beyond)


@pytest.mark.slow
@given(RECORDS, st.data())
def test_the_order_of_documents_is_kept_and_does_not_matter(records, data):
    turned = data.draw(st.permutations(records))
    options = {"by_user": data.draw(st.booleans()), "most_per_user": 2}
    counts = [Counter(zip(rs, parts(rs, 0.3, **options), strict=True)) for rs in (records, turned)]
    assert counts[0] == counts[1]
    division = divide(corpus_of([(f"{i:02d}", "a") for i in range(30)]), 0.3)
    assert list(division.training) == sorted(division.training)
    assert list(division.held_out) == sorted(division.held_out)


def test_canaries_are_neither_held_out_nor_left_out():
    corpus = corpus_of([(f"text {i}", "a" if i < 50 else "b") for i in range(100)])
    keep = [3, 9, 60]
    for by_user in (False, True):
        division = divide(corpus, 0.95, by_user=by_user, most_per_user=2, keep=keep)
        assert division.within_cap_mask[keep].all()
        assert not division.held_out_mask[keep].any()
    with pytest.raises(DataError, match=r"2 planted documents.*contribute 1") as caught:
        divide(corpus, 0, most_per_user=1, keep=keep)
    assert "Allow 2 documents" in caught.value.remedy


def test_the_summary_counts_users_if_users_are_held_out():
    corpus = corpus_of([(f"text {i}", f"user {i % 20}") for i in range(100)])
    division = divide(corpus, 0.3, by_user=True)
    summary, users = division.summary(), len(set(division.held_out.users))
    assert summary["held_out_users"] == users > 1
    assert summary["held_out_documents"] == 5 * users
    assert divide(corpus, 0.3).summary()["held_out_users"] is None


def test_an_impossible_division_is_refused():
    single = Corpus.from_texts(["a"])
    with pytest.raises(ValueError, match="fraction"):
        divide(single, 1.0)
    with pytest.raises(ValueError, match="most_per_user"):
        divide(single, 0, most_per_user=0)
    for bad in (1, -1):
        with pytest.raises(ValueError, match="keep"):
            divide(single, 0, keep=[bad])
    for options in ({"by_user": True}, {"most_per_user": 1}):
        with pytest.raises(DataError, match="has no users"):
            divide(single, 0.1, **options)
    with pytest.raises(DataError, match="All 1 documents would be used") as caught:
        divide(single, 0.999)
    assert "smaller share" in caught.value.remedy
    assert len(divide(Corpus.from_texts([]), 0.5).training) == 0


# Hashes of records.


def test_a_hash_depends_on_the_text_and_its_source_only():
    texts = ["to be", "", "or\nnot ü", "to be"]
    for users in (None, ["ann", "bob", "cy", "dan"]):
        hashes = record_hashes(Corpus.from_texts(texts, users=users))
        wanted = [hashlib.blake2b(t.encode(), digest_size=BYTES).digest() for t in texts]
        assert [row.tobytes() for row in hashes] == wanted
    ab = record_hashes(Corpus.from_texts(["b", "ab"], sources=["a", ""]))
    assert len(np.unique(ab)) == 2
    assert len(hash_texts([])) == len(uniform(hash_texts([]))) == 0


def test_numbers_are_uniform_and_one_record_moves_no_other():
    from scipy.stats import kstest

    texts = [f"record {i}" for i in range(5000)]
    numbers = uniform(hash_texts(texts))
    assert kstest(numbers, "uniform").pvalue > 0.001
    assert np.array_equal(np.delete(numbers, 17), uniform(hash_texts(texts[:17] + texts[18:])))


# Records that a training has read.

READ = ReadRecords.of(
    Corpus.from_texts(["a", "b", "a"], users=["ann", "", "bob"]),
    Corpus.from_texts(["c"], users=["ann"]),
)


def test_records_are_hashes_of_texts_and_users():
    assert READ.records.tolist() == hash_texts(["a", "b", "a", "c"]).tolist()
    assert READ.held_out.tolist() == [False, False, False, True]
    ann, bob = (name.tobytes() for name in hash_texts(["ann", "bob"]))
    assert [row.tobytes() for row in READ.users] == [ann, UNKNOWN_USER, bob, ann]
    assert len(READ.training()) == 3
    assert len(READ.validation()) == 1

    assert among(READ.users, READ.users).tolist() == [True, False, True, True]
    assert not among(READ.records, READ.records[:0]).any()


def test_records_are_read_from_their_file_and_a_damaged_one_is_named(tmp_path):
    file = tmp_path / "one.npy"
    np.save(file, READ.rows(), allow_pickle=False)
    assert ReadRecords.load(file).rows().tolist() == READ.rows().tolist()
    content = file.read_bytes()
    assert content.count(b"(4,), }     ") == 1
    np.save(file, np.arange(3))
    damaged = [b"", b"no array", file.read_bytes()]
    for shape in (b"(9**17,), }", b"(4**15,), }", b"(99999999,)}", b"(-1,), }    "):
        damaged.append(content.replace(b"(4,), }     ", shape.ljust(12)))  # allocates nothing
    for bad in damaged:
        file.write_bytes(bad)
        with pytest.raises(DataError, match=r"one\.npy has no valid hashes"):
            ReadRecords.load(file)
