"""P-values compared with enumeration, naive definitions and simulated nulls."""

from itertools import product
from math import log, prod

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.listed import CutScores, compare
from vestige.metrics.tests import (
    FEW,
    at_least,
    calibration_needed,
    combined_p_value,
    discoveries,
    holm,
    least_combined_p_value,
    most_by_chance,
    rank_sum,
    simes,
)


def conformal(scores, calibration):
    """P-values of complete texts."""
    sides = (CutScores.whole(side) for side in (scores, calibration))
    return compare(*sides, most=0).p_values


def test_conformal_p_values_equal_their_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        calibration = rng.integers(0, 6, rng.integers(1, 30)).astype(float)
        scores = rng.integers(-1, 7, 15).astype(float)
        expected = [
            (1 + sum(other >= score for other in calibration)) / (1 + len(calibration))
            for score in scores
        ]
        assert conformal(scores, calibration).tolist() == expected


@pytest.mark.slow
def test_conformal_p_values_are_never_too_small() -> None:
    rng = np.random.default_rng(2)
    samples = rng.integers(0, 10, (4000, 40)).astype(float)
    p_values = np.array([conformal(row[:1], row[1:])[0] for row in samples])
    for level in (0.05, 0.1, 0.3):
        assert (p_values <= level).mean() <= level + 3 * np.sqrt(level / len(p_values))


def test_discoveries_equal_those_of_benjamini_and_hochberg():
    """Simes' p-value is significant if there is any discovery."""
    rng = np.random.default_rng(3)
    for size in (1, 2, 10, 200):
        p_values = rng.random(size) ** 3
        for rate in (0.01, 0.05, 0.2):
            small = np.sort(p_values) <= rate * np.arange(1, size + 1) / size
            largest = np.sort(p_values)[small][-1] if small.any() else -1.0
            assert discoveries(p_values, rate).tolist() == (p_values <= largest).tolist()
            assert (simes(p_values) <= rate) == small.any()


@pytest.mark.slow
@pytest.mark.parametrize(("calibration", "tested"), [(40, 100), (100, 30)])
def test_the_share_of_small_p_values_by_chance_is_bounded(calibration, tested) -> None:
    rng = np.random.default_rng(4)
    bound = most_by_chance(0.05, calibration=calibration, tested=tested)
    shares = np.array([
        np.mean(conformal(scores[:tested], scores[tested:]) <= 0.05)
        for scores in rng.normal(size=(4000, tested + calibration))
    ])  # fmt: skip
    assert np.mean(shares > bound) <= 0.025 + 3 * np.sqrt(0.025 / 4000)
    assert np.mean(shares >= bound) > 0.025


def test_no_p_value_is_below_a_rate_that_the_calibration_set_cannot_reach() -> None:
    assert most_by_chance(0.05, calibration=18, tested=50) == 0
    assert most_by_chance(0.05, calibration=19, tested=50) > 0


@pytest.mark.parametrize(("rate", "tested"), [(0.05, 1), (0.01, 1), (0.05, 10), (0.1, 7)])
def test_the_least_number_of_calibration_users_is_exact(rate: float, tested: int) -> None:
    enough = calibration_needed(rate, tested=tested)
    for users, flagged in ((enough, True), (enough - 1, False)):
        p_values = np.append(conformal([1.0], np.zeros(users)), np.ones(tested - 1))
        assert discoveries(p_values, rate).any() == flagged


def rejected(p_values: list[float], level: float) -> set[int]:
    """Step by step: the least p at level / m, the next at level / (m - 1), until one is above."""
    result = set()
    for step, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > level / (len(p_values) - step):
            break
        result.add(index)
    return result


def test_adjusted_p_values_reject_the_same_as_holms_procedure():
    rng = np.random.default_rng(0)
    for _ in range(500):
        p_values = (rng.random(rng.integers(1, 9)) ** 3).tolist()
        for level in (0.01, 0.05, 0.3):
            assert set(np.flatnonzero(holm(p_values) <= level)) == rejected(p_values, level)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (6, 6), (3, 5, 7), (24, 24, 2)])
def test_a_combined_p_value_of_few_equals_enumeration(sizes):
    """Fisher's statistic over all outcomes, which have equal probabilities."""
    outcomes = [
        [rank / n for rank, n in zip(ranks, sizes, strict=True)]
        for ranks in product(*(range(1, n + 1) for n in sizes))
    ]
    sums = np.array([-sum(log(p) for p in outcome) for outcome in outcomes])
    for outcome, observed in list(zip(outcomes, sums, strict=True))[:: len(outcomes) // 13 or 1]:
        fisher = float((sums >= observed - 1e-9).mean())
        expected = min(1.0, 2 * min(fisher, len(sizes) * min(outcome)))
        result = combined_p_value(outcome, sizes)
        assert result >= expected - 1e-12, "never too small"
        assert result <= 1.25 * expected


def test_three_p_values_of_one_half_give_one_eighth_before_they_are_doubled():
    assert least_combined_p_value([2, 2, 2]) == pytest.approx(2 / 8)
    assert stats.combine_pvalues([0.5] * 3).pvalue > 0.6, "the chi square distribution"


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(1, 100), (3, 24), (3, 20_000), (20, 100), (60, 100)])
def test_combined_p_values_keep_their_level(m, n):
    rng = np.random.default_rng(m * n)
    p_values = rng.integers(1, n + 1, size=(1500, m)) / n
    rate = np.mean([combined_p_value(row, [n] * m) <= 0.05 for row in p_values])
    assert rate <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1500)


def test_many_p_values_use_chi_square_or_the_smallest_of_them():
    p_values = np.linspace(0.01, 0.6, FEW + 1)
    expected = 2 * stats.combine_pvalues(p_values).pvalue
    assert combined_p_value(p_values, [10**6] * (FEW + 1)) == pytest.approx(expected)
    p_values = [1 / 20_000, *np.linspace(0.05, 1.0, 50)]
    assert combined_p_value(p_values, [20_000] * 51) == pytest.approx(2 * 51 / 20_000)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: discoveries([], 0.1), "p_values must be an array"),
        (lambda: discoveries([1.1], 0.1), r"p_values must lie in \[0, 1\]"),
        (lambda: holm([]), "p_values must be an array"),
        (lambda: combined_p_value([], []), "p_values"),
        (lambda: combined_p_value([0.0], [2]), "p_values"),
        (lambda: combined_p_value([1.1], [2]), "p_values"),
    ],
)
def test_invalid_p_values_are_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_the_probability_of_at_least_n_events_equals_the_sum_over_all_outcomes():
    rng = np.random.default_rng(0)
    for _ in range(30):
        events = rng.random(rng.integers(0, 7)).tolist()
        for number in range(len(events) + 2):
            total = sum(
                prod(p if happened else 1 - p for p, happened in zip(events, outcome, strict=True))
                for outcome in product((False, True), repeat=len(events))
                if sum(outcome) >= number
            )
            assert at_least(number, events) == pytest.approx(total, abs=1e-12)
    assert at_least(3, [1e-6] * 15) == pytest.approx(stats.binom.sf(2, 15, 1e-6), rel=1e-9)


def test_the_rank_sum_of_one_rank_is_its_share():
    assert rank_sum([25.0], [100]) == pytest.approx(0.25)
    assert rank_sum([100.0], [100]) == 1


def test_the_rank_sum_is_that_of_sums_of_uniform_numbers():
    sums = np.random.default_rng(0).random((200_000, 5)).sum(1)
    for ranks in ([10, 20, 30, 40, 50], [80, 60, 70, 50, 20], [95, 99, 90, 97, 100]):
        expected = (sums <= sum(ranks) / 100).mean()
        assert rank_sum(ranks, [100] * 5) == pytest.approx(expected, abs=0.004)


def test_the_approximate_rank_sum_of_many_ranks_is_close_to_the_exact_one():
    ranks = np.random.default_rng(1).integers(1, 901, size=201).tolist()
    approximate = rank_sum(ranks, [1000] * 201)
    assert rank_sum(ranks[:200], [1000] * 200) == pytest.approx(approximate, rel=0.3)


@pytest.mark.slow
def test_under_the_null_small_rank_sums_are_rare():
    rng = np.random.default_rng(2)
    p_values = [rank_sum(rng.integers(1, 101, size=10).tolist(), [100] * 10) for _ in range(500)]
    for level in (0.01, 0.05, 0.2):
        assert np.mean(np.array(p_values) <= level) <= level + 2 * np.sqrt(level / 500)
