"""Accuracy, Hamming distance and ranks beside naive definitions, closed forms and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vestige.metrics.exposure import sampled_exposure
from vestige.metrics.extraction import (
    baseline_accuracy,
    baseline_hamming,
    counted_rank,
    estimated_rank,
    hamming_per_token,
    null_probability,
    rank_among,
    share_interval,
)
from vestige.metrics.intervals import clopper_pearson


def test_the_baselines_are_what_all_guesses_reach_on_average():
    sizes = (2, 3, 4)
    truth = ("0", "1", "2")
    guesses = list(itertools.product(*(map(str, range(size)) for size in sizes)))
    right = np.mean([guess == truth for guess in guesses])
    wrong = np.mean([hamming_per_token(guess, truth) for guess in guesses])
    assert baseline_accuracy(sizes) == pytest.approx(right)
    assert baseline_hamming(sizes) == pytest.approx(wrong)


def test_the_papers_baselines():
    assert baseline_accuracy([10] * 4) == pytest.approx(1e-4)
    assert baseline_hamming([10] * 4) == pytest.approx(0.9)
    assert baseline_accuracy([12] * 4) == pytest.approx(4.82e-5, rel=1e-3)
    assert baseline_hamming([12] * 4) == pytest.approx(0.92, abs=0.005)


@given(st.integers(0, 5), st.lists(st.integers(0, 5), max_size=20))
def test_a_rank_is_the_last_place_among_all_orders_of_the_tied(loss, others):
    ordered = sorted([*others, loss])
    places = [place for place, value in enumerate(ordered, 1) if value == loss]
    assert rank_among(loss, others) == max(places)
    as_bits = sampled_exposure([loss], others).rank.tolist() if others else [1]
    assert as_bits == [max(places)], "one rule for canaries and for secrets of labels"


def test_a_rank_needs_numbers():
    with pytest.raises(ValueError, match="must be numbers"):
        rank_among(float("nan"), [1.0])


def test_a_truth_that_is_tied_with_all_has_the_last_rank():
    found = counted_rank(below=0, tied=99, space=100)
    assert found.rank == found.low == found.high == 100


def test_exposure_is_bits_of_the_space_less_bits_of_the_rank():
    assert counted_rank(below=0, tied=0, space=1024).exposure == 10
    assert counted_rank(below=1023, tied=0, space=1024).exposure == 0


@pytest.mark.parametrize("below", [0, 3, 400, 9000, 9999])
def test_the_interval_of_an_estimated_rank_covers_the_counted_one(below):
    space, covered = 10_000, 0.0
    for drawn in range(501):
        found = estimated_rank(below=drawn, tied=0, others=500, space=space)
        assert found.low <= found.rank <= found.high
        chance = stats.binom.pmf(drawn, 500, below / (space - 1))
        covered += chance * (found.low <= 1 + below <= found.high)
    assert covered >= 0.95


def test_what_no_secret_of_a_sample_beats_is_bounded_and_not_estimated():
    found = estimated_rank(below=0, tied=0, others=10_000, space=12**10)
    assert found.known == "bounded"
    share = 1 - 0.025 ** (1 / 10_000)  # of Clopper and Pearson's upper end, naively
    assert found.rank == found.high == pytest.approx(1 + share * (12**10 - 1))
    assert found.rank > 3.6 * 12**10 / 10_001  # which is what was printed as a measurement
    assert found.exposure == found.exposure_low < math.log2(10_001) < found.exposure_high
    assert found.low == 1
    assert estimated_rank(below=1, tied=0, others=10_000, space=12**10).known == "sampled"
    assert counted_rank(below=0, tied=0, space=12).known == "exact"


def test_ties_widen_the_interval_of_an_estimated_rank():
    tied = estimated_rank(below=0, tied=100, others=100, space=10_000)
    assert tied.rank == 10_000
    assert tied.low == 1
    assert tied.high == 10_000


def test_secrets_known_to_be_better_bound_a_rank_from_below():
    found = estimated_rank(below=0, tied=0, others=10**6, space=10**6, better=9)
    assert found.rank == found.low == 10
    assert estimated_rank(below=0, tied=0, others=100, space=10**6, better=9).low == 10


def test_the_null_probability_of_one_rank_is_its_share():
    assert null_probability([25.0], [100]) == pytest.approx(0.25)
    assert null_probability([100.0], [100]) == 1


def test_the_null_probability_is_that_of_sums_of_uniform_numbers():
    drawn = np.random.default_rng(0).random((200_000, 5)).sum(1)
    for ranks in ([10, 20, 30, 40, 50], [80, 60, 70, 50, 20], [95, 99, 90, 97, 100]):
        expected = (drawn <= sum(ranks) / 100).mean()
        assert null_probability(ranks, [100] * 5) == pytest.approx(expected, abs=0.004)


def test_the_null_probability_of_many_ranks_goes_on_where_the_exact_one_ends():
    generator = np.random.default_rng(1)
    ranks = generator.integers(1, 901, size=201).tolist()
    many = null_probability(ranks, [1000] * 201)
    assert null_probability(ranks[:200], [1000] * 200) == pytest.approx(many, rel=0.3)


def test_under_the_null_small_probabilities_are_rare():
    generator = np.random.default_rng(2)
    found = [
        null_probability(generator.integers(1, 101, size=10).tolist(), [100] * 10)
        for _ in range(500)
    ]
    for level in (0.01, 0.05, 0.2):
        assert np.mean(np.array(found) <= level) <= level + 2 * np.sqrt(level / 500)


def test_an_interval_of_shares_stays_between_0_and_1():
    assert share_interval([0.0, 0.0, 0.75]) == (0.0, 1.0)
    assert share_interval([0.5]) is None


@pytest.mark.parametrize("trials", [2, 10, 30])
def test_values_that_are_all_alike_have_an_interval_of_some_width(trials):
    none, every = clopper_pearson(0, trials), clopper_pearson(trials, trials)
    assert share_interval([0.0] * trials) == pytest.approx(none)
    assert share_interval([1.0] * trials) == pytest.approx(every)
    low, high = share_interval([0.25] * trials)
    assert 0 < low < 0.25 < high < 1
    assert share_interval([14.0] * trials, ceiling=14.0) == pytest.approx([14 * e for e in every])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hamming_per_token(["1"], ["1", "2"]), "guess must have the truth's 2 words"),
        (lambda: hamming_per_token([], []), "guess must have"),
        (lambda: baseline_accuracy([]), "sizes must be at least 1"),
        (lambda: baseline_hamming([3, 0]), "sizes must be at least 1"),
        (lambda: counted_rank(below=10, tied=0, space=10), "space must be at least 11"),
        (lambda: estimated_rank(below=0, tied=0, others=0, space=9), "others must be at least 1"),
        (lambda: null_probability([], []), "ranks must be at least 1"),
        (lambda: null_probability([11.0], [10]), "ranks must lie between 1 and 10"),
    ],
)
def test_arguments_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_values_that_are_no_shares_are_refused():
    with pytest.raises(ValueError, match=r"values must lie in \[0, 1\]"):
        share_interval([0.5, 1e308])
