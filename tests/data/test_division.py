"""The division into training and validation parts: each record is assigned independently."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

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
    """The part of each record. One more record, always in training, keeps that part nonempty."""
    corpus = corpus_of([*records, ("always", "training")])
    division = divide(corpus, *args, keep=[len(records)], **options)
    rows = zip(division.within_cap_mask, division.held_out_mask, strict=True)
    return [
        ("held out" if held_out else "training") if within_cap else "left out"
        for within_cap, held_out in rows
    ][:-1]


def without(items, index):
    return items[:index] + items[index + 1 :]


@given(RECORDS, st.floats(0, 0.9), st.data())
def test_removing_a_record_moves_no_other(records, fraction, data):
    removed = data.draw(st.integers(0, len(records) - 1))
    after = parts(without(records, removed), fraction)
    assert after == without(parts(records, fraction), removed)


@pytest.mark.slow
@given(RECORDS, st.floats(0, 0.9), st.data())
def test_removing_a_user_moves_no_other(records, fraction, data):
    removed = data.draw(st.sampled_from(records))[1]
    options = {"by_user": True, "most_per_user": data.draw(st.none() | st.integers(1, 4))}
    before = zip(records, parts(records, fraction, **options), strict=True)
    others = [record for record in records if record[1] != removed]
    assert parts(others, fraction, **options) == [
        part for (_, user), part in before if user != removed
    ]


@pytest.mark.slow
@given(RECORDS, st.data())
def test_removing_a_record_admits_at_most_one_of_its_user_under_the_cap(records, data):
    records = [(f"{text} {i}", user) for i, (text, user) in enumerate(records)]
    removed = data.draw(st.integers(0, len(records) - 1))
    cap = data.draw(st.integers(1, 4))
    others = without(records, removed)
    all_parts, after = parts(records, 0, most_per_user=cap), parts(others, 0, most_per_user=cap)
    before = without(all_parts, removed)
    moved = [i for i, pair in enumerate(zip(before, after, strict=True)) if len(set(pair)) == 2]
    assert len(moved) <= 1
    for position in moved:
        assert (before[position], after[position]) == ("left out", "training")
        assert others[position][1] == records[removed][1]
        assert all_parts[removed] == "training"
    by_user = [
        dict(zip((user for _, user in rows), parts(rows, 0.3, by_user=True), strict=True))
        for rows in (records, others)
    ]
    assert by_user[1].items() <= by_user[0].items()


@given(RECORDS, st.floats(0, 0.9), st.booleans())
def test_copies_and_users_are_never_split(records, fraction, by_user):
    assigned = parts(records, fraction, by_user=by_user)
    keys = [record[by_user] for record in records]  # the text or the user
    assert len(set(zip(keys, assigned, strict=True))) == len(set(keys))


@pytest.mark.parametrize("by_user", [False, True])
@pytest.mark.parametrize("fraction", [0.05, 0.3])
def test_the_held_out_share_is_the_fraction(by_user, fraction):
    def check_share(held_out, total):
        bound = 4 * np.sqrt(total * fraction * (1 - fraction))
        assert abs(held_out - total * fraction) < bound

    corpus = corpus_of([(f"text {i}", f"user {i}") for i in range(4000)])
    check_share(len(divide(corpus, fraction, by_user=by_user).held_out), 4000)
    corpus = corpus_of([(f"text {i} {j}", f"user {j}") for i in range(20) for j in range(400)])
    division = divide(corpus, fraction, most_per_user=1)
    assert len(division.left_out) == 19 * 400
    check_share(len(division.held_out), 400)  # of the documents under the cap


@pytest.mark.slow
@given(RECORDS, st.integers(1, 5))
def test_a_cap_limits_every_user_and_a_higher_cap_keeps_the_same_documents(records, cap):
    corpus = corpus_of(records)
    division = divide(corpus, 0, most_per_user=cap)
    counts = Counter(corpus.users)
    expected = {user: min(count, cap) for user, count in counts.items()}
    assert Counter(division.training.users) == expected
    assert len(division.training) + len(division.left_out) == len(corpus)
    larger = divide(corpus, 0, most_per_user=cap + 1)
    assert not (division.within_cap_mask & ~larger.within_cap_mask).any()
    excess = [count - cap for count in counts.values() if count > cap]
    summary = division.summary()
    assert summary["left_out_users"] == len(excess)
    assert summary["left_out_documents"] == sum(excess)


@pytest.mark.slow
@given(RECORDS, st.data())
def test_the_order_of_documents_is_preserved_and_has_no_influence(records, data):
    permuted = data.draw(st.permutations(records))
    options = {"by_user": data.draw(st.booleans()), "most_per_user": 2}
    counts = [
        Counter(zip(rs, parts(rs, 0.3, **options), strict=True)) for rs in (records, permuted)
    ]
    assert counts[0] == counts[1]
    division = divide(corpus_of([(f"{i:02d}", "a") for i in range(30)]), 0.3)
    assert list(division.training) == sorted(division.training)
    assert list(division.held_out) == sorted(division.held_out)


def test_canaries_are_always_in_the_training_part():
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
    for index in (1, -1):
        with pytest.raises(ValueError, match="keep"):
            divide(single, 0, keep=[index])
    for options in ({"by_user": True}, {"most_per_user": 1}):
        with pytest.raises(DataError, match="has no users"):
            divide(single, 0.1, **options)
    with pytest.raises(DataError, match="All 1 documents would be used") as caught:
        divide(single, 0.999)
    assert "smaller share" in caught.value.remedy
    assert len(divide(Corpus.from_texts([]), 0.5).training) == 0


# Hashes of records


def test_a_hash_depends_on_the_text_and_its_source_only():
    texts = ["to be", "", "or\nnot ü", "to be"]
    for users in (None, ["ann", "bob", "cy", "dan"]):
        hashes = record_hashes(Corpus.from_texts(texts, users=users))
        expected = [hashlib.blake2b(t.encode(), digest_size=BYTES).digest() for t in texts]
        assert [row.tobytes() for row in hashes] == expected
    ab = record_hashes(Corpus.from_texts(["b", "ab"], sources=["a", ""]))
    assert len(np.unique(ab)) == 2
    assert len(hash_texts([])) == len(uniform(hash_texts([]))) == 0


def test_hashes_are_uniform_and_independent_of_other_records():
    texts = [f"record {i}" for i in range(5000)]
    numbers = uniform(hash_texts(texts))
    assert kstest(numbers, "uniform").pvalue > 0.001
    assert np.array_equal(np.delete(numbers, 17), uniform(hash_texts(texts[:17] + texts[18:])))


# Records of a training

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


def test_records_are_loaded_and_damaged_files_refused(tmp_path):
    file = tmp_path / "one.npy"
    np.save(file, READ.rows(), allow_pickle=False)
    assert ReadRecords.load(file).rows().tolist() == READ.rows().tolist()
    content = file.read_bytes()
    assert content.count(b"(4,), }     ") == 1
    np.save(file, np.arange(3))
    damaged = [b"", b"no array", file.read_bytes()]
    for shape in (b"(9**17,), }", b"(4**15,), }", b"(99999999,)}", b"(-1,), }    "):
        damaged.append(content.replace(b"(4,), }     ", shape.ljust(12)))  # allocates nothing
    for content in damaged:
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"one\.npy has no valid hashes"):
            ReadRecords.load(file)
