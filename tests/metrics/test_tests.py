"""p-values beside enumeration, naive definitions and simulated nulls."""

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
    """P-values of whole texts."""
    sides = (CutScores.whole(side) for side in (scores, calibration))
    return compare(*sides, most=0).p_values


def naive(score: float, calibration: list[float]) -> float:
    return (1 + sum(other >= score for other in calibration)) / (1 + len(calibration))


def test_p_values_are_those_of_the_definition_ties_included() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        calibration = generator.integers(0, 6, generator.integers(1, 30)).astype(float).tolist()
        scores = generator.integers(-1, 7, 15).astype(float)
        found = conformal(scores, calibration)
        assert found.tolist() == [naive(score, calibration) for score in scores]


@pytest.mark.slow
def test_p_values_are_never_too_small() -> None:
    generator = np.random.default_rng(2)
    draws = generator.integers(0, 10, (4000, 40)).astype(float)
    found = np.array([conformal(row[:1], row[1:])[0] for row in draws])
    for level in (0.05, 0.1, 0.3):
        assert (found <= level).mean() <= level + 3 * np.sqrt(level / len(found))


def test_discoveries_are_those_of_benjamini_and_hochberg_and_simes_says_whether_there_are_any():
    generator = np.random.default_rng(3)
    for size in (1, 2, 10, 200):
        values = generator.random(size) ** 3
        for rate in (0.01, 0.05, 0.2):
            small = np.sort(values) <= rate * np.arange(1, size + 1) / size
            most = np.sort(values)[small][-1] if small.any() else -1.0
            assert discoveries(values, rate).tolist() == (values <= most).tolist()
            assert (simes(values) <= rate) == small.any()


def test_no_one_is_called_where_no_p_value_is_small() -> None:
    assert not discoveries([0.4, 0.9, 1.0], 0.05).any()


@pytest.mark.slow
def test_p_values_that_share_a_calibration_set_seldom_exceed_what_chance_may_bring() -> None:
    generator = np.random.default_rng(4)
    for calibration, tested in ((40, 100), (100, 30)):
        most = most_by_chance(0.05, calibration=calibration, tested=tested)
        shares = [
            np.mean(conformal(draws[:tested], draws[tested:]) <= 0.05)
            for draws in generator.normal(size=(4000, tested + calibration))
        ]
        above = np.mean(np.array(shares) > most)
        assert above <= 0.025 + 3 * np.sqrt(0.025 / 4000)
        assert np.mean(np.array(shares) >= most) > 0.025


def test_nothing_comes_below_a_rate_that_no_p_value_reaches() -> None:
    assert most_by_chance(0.05, calibration=18, tested=50) == 0
    assert most_by_chance(0.05, calibration=19, tested=50) > 0


@pytest.mark.parametrize(("rate", "tested"), [(0.05, 1), (0.01, 1), (0.05, 10), (0.1, 7)])
def test_so_many_calibration_users_are_just_enough(rate: float, tested: int) -> None:
    enough = calibration_needed(rate, tested=tested)
    for users, called in ((enough, True), (enough - 1, False)):
        best = conformal([1.0], np.zeros(users))
        values = np.concatenate([best, np.ones(tested - 1)])
        assert discoveries(values, rate).any() == called


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: discoveries([], 0.1), "p_values must be an array"),
        (lambda: discoveries([1.1], 0.1), r"p_values must lie in \[0, 1\]"),
    ],
)
def test_what_cannot_be_is_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def rejected(p: list[float], level: float) -> set[int]:
    """Step by step: the least p at level / m, the next at level / (m - 1), until one is above."""
    found = set()
    for step, number in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[number] > level / (len(p) - step):
            break
        found.add(number)
    return found


def test_adjusted_values_reject_what_the_procedure_rejects():
    generator = np.random.default_rng(0)
    for _ in range(500):
        p = (generator.random(generator.integers(1, 9)) ** 3).tolist()
        for level in (0.01, 0.05, 0.3):
            assert set(np.flatnonzero(holm(p) <= level)) == rejected(p, level)


def test_no_tests_are_refused():
    with pytest.raises(ValueError, match="p_values must be an array"):
        holm([])


@pytest.mark.parametrize("places", [(2, 2, 2), (6, 6), (3, 5, 7), (24, 24, 2)])
def test_few_p_values_together_are_what_enumeration_says(places):
    """Fisher's statistic over every outcome, as likely as any other."""
    outcomes = [
        [place / n for place, n in zip(ranks, places, strict=True)]
        for ranks in product(*(range(1, n + 1) for n in places))
    ]
    sums = np.array([-sum(log(p) for p in outcome) for outcome in outcomes])
    for outcome, own in list(zip(outcomes, sums, strict=True))[:: len(outcomes) // 13 or 1]:
        fisher = float((sums >= own - 1e-9).mean())
        expected = min(1.0, 2 * min(fisher, len(places) * min(outcome)))
        found = combined_p_value(outcome, places)
        assert found >= expected - 1e-12, "never too small"
        assert found <= 1.25 * expected


def test_three_pairs_reach_one_in_eight_before_they_are_doubled():
    assert least_combined_p_value([2, 2, 2]) == pytest.approx(2 / 8)
    assert stats.combine_pvalues([0.5] * 3).pvalue > 0.6, "which chi square does not see"


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(1, 100), (3, 24), (3, 20_000), (20, 100), (60, 100)])
def test_chance_passes_no_more_often_than_it_may(m, n):
    rng = np.random.default_rng(m * n)
    p_values = rng.integers(1, n + 1, size=(1500, m)) / n
    passed = np.mean([combined_p_value(row, [n] * m) <= 0.05 for row in p_values])
    assert passed <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1500)


def test_one_strong_p_value_among_many_is_enough():
    p_values = [1 / 20_000, *np.linspace(0.05, 1.0, 50)]
    assert combined_p_value(p_values, [20_000] * 51) <= 0.05
    assert (holm(p_values) <= 0.025).tolist() == [True] + [False] * 50


def test_more_than_a_few_have_chi_square():
    p_values = np.linspace(0.01, 0.6, FEW + 1)
    expected = 2 * stats.combine_pvalues(p_values).pvalue
    assert combined_p_value(p_values, [10**6] * (FEW + 1)) == pytest.approx(expected)


@pytest.mark.parametrize("wrong", [([], []), ([0.0], [2]), ([1.1], [2])])
def test_what_is_no_p_value_is_refused(wrong):
    with pytest.raises(ValueError, match="p_values"):
        combined_p_value(*wrong)


def test_it_is_the_sum_over_all_outcomes():
    generator = np.random.default_rng(0)
    for _ in range(30):
        chances = generator.random(generator.integers(0, 7)).tolist()
        for number in range(len(chances) + 2):
            total = sum(
                prod(c if happened else 1 - c for c, happened in zip(chances, outcome, strict=True))
                for outcome in product((False, True), repeat=len(chances))
                if sum(outcome) >= number
            )
            assert at_least(number, chances) == pytest.approx(total, abs=1e-12)


def test_equal_chances_are_binomial_and_small_ones_keep_their_digits():
    assert at_least(3, [1e-6] * 15) == pytest.approx(stats.binom.sf(2, 15, 1e-6), rel=1e-9)


def test_the_rank_sum_of_one_rank_is_its_share():
    assert rank_sum([25.0], [100]) == pytest.approx(0.25)
    assert rank_sum([100.0], [100]) == 1


def test_the_rank_sum_is_that_of_sums_of_uniform_numbers():
    drawn = np.random.default_rng(0).random((200_000, 5)).sum(1)
    for ranks in ([10, 20, 30, 40, 50], [80, 60, 70, 50, 20], [95, 99, 90, 97, 100]):
        expected = (drawn <= sum(ranks) / 100).mean()
        assert rank_sum(ranks, [100] * 5) == pytest.approx(expected, abs=0.004)


def test_the_rank_sum_of_many_ranks_goes_on_where_the_exact_one_ends():
    generator = np.random.default_rng(1)
    ranks = generator.integers(1, 901, size=201).tolist()
    many = rank_sum(ranks, [1000] * 201)
    assert rank_sum(ranks[:200], [1000] * 200) == pytest.approx(many, rel=0.3)


@pytest.mark.slow
def test_under_the_null_small_probabilities_are_rare():
    generator = np.random.default_rng(2)
    found = [rank_sum(generator.integers(1, 101, size=10).tolist(), [100] * 10) for _ in range(500)]
    for level in (0.01, 0.05, 0.2):
        assert np.mean(np.array(found) <= level) <= level + 2 * np.sqrt(level / 500)
