"""Hamming distance and ranks against naive definitions, closed forms and simulation."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from vestige.audits.extraction.ranks import counted_rank, estimated_rank
from vestige.audits.extraction.unknown_words import hamming_by_chance, hamming_per_token


def test_the_baseline_is_what_all_guesses_reach_on_average():
    sizes = (2, 3, 4)
    truth = ("0", "1", "2")
    guesses = list(itertools.product(*(map(str, range(size)) for size in sizes)))
    wrong = np.mean([hamming_per_token(guess, truth) for guess in guesses])
    assert hamming_by_chance(sizes) == pytest.approx(wrong)


def test_the_papers_baselines():
    assert hamming_by_chance([10] * 4) == pytest.approx(0.9)
    assert hamming_by_chance([12] * 4) == pytest.approx(0.92, abs=0.005)


def test_a_truth_that_is_tied_with_all_has_the_last_rank():
    found = counted_rank(below=0, tied=99, space=100)
    assert found["rank"] == found["rank_low"] == found["rank_high"] == 100


def test_exposure_is_bits_of_the_space_less_bits_of_the_rank():
    assert counted_rank(below=0, tied=0, space=1024)["exposure"] == 10
    assert counted_rank(below=1023, tied=0, space=1024)["exposure"] == 0


@pytest.mark.parametrize("below", [0, 3, 400, 9000, 9999])
def test_the_interval_of_an_estimated_rank_covers_the_counted_one(below):
    space, covered = 10_000, 0.0
    for drawn in range(501):
        found = estimated_rank(below=drawn, tied=0, others=500, space=space)
        assert found["rank_low"] <= found["rank"] <= found["rank_high"]
        chance = stats.binom.pmf(drawn, 500, below / (space - 1))
        covered += chance * (found["rank_low"] <= 1 + below <= found["rank_high"])
    assert covered >= 0.95


def test_what_no_secret_of_a_sample_beats_is_bounded_and_not_estimated():
    found = estimated_rank(below=0, tied=0, others=10_000, space=12**10)
    assert found["rank_known"] == "bounded"
    share = 1 - 0.025 ** (1 / 10_000)  # of Clopper and Pearson's upper end, naively
    assert found["rank"] == found["rank_high"] == pytest.approx(1 + share * (12**10 - 1))
    assert found["rank"] > 3.6 * 12**10 / 10_001  # which is what was printed as a measurement
    assert found["exposure"] == found["exposure_low"] < math.log2(10_001) < found["exposure_high"]
    assert found["rank_low"] == 1
    assert estimated_rank(below=1, tied=0, others=10_000, space=12**10)["rank_known"] == "sampled"
    assert counted_rank(below=0, tied=0, space=12)["rank_known"] == "exact"


def test_ties_widen_the_interval_of_an_estimated_rank():
    tied = estimated_rank(below=0, tied=100, others=100, space=10_000)
    assert (tied["rank"], tied["rank_low"], tied["rank_high"]) == (10_000, 1, 10_000)


def test_secrets_known_to_be_better_bound_a_rank_from_below():
    found = estimated_rank(below=0, tied=0, others=10**6, space=10**6, better=9)
    assert found["rank"] == found["rank_low"] == 10
    assert estimated_rank(below=0, tied=0, others=100, space=10**6, better=9)["rank_low"] == 10


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: counted_rank(below=10, tied=0, space=10), "space must be at least 11"),
        (lambda: estimated_rank(below=0, tied=0, others=0, space=9), "others must be at least 1"),
    ],
)
def test_arguments_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
