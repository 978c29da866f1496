"""What decides by a record's content decides for that record alone."""

import hashlib

import numpy as np

from vestige.data.corpus import Corpus
from vestige.data.records import BYTES, hash_texts, record_hashes, uniform


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
