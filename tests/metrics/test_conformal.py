import numpy as np
import pytest
from scipy import stats

from vestige.metrics.conformal import (
    benjamini_hochberg,
    calibration_needed,
    conformal_p_values,
    most_by_chance,
)


def naive(score: float, calibration: list[float]) -> float:
    return (1 + sum(other >= score for other in calibration)) / (1 + len(calibration))


def test_p_values_are_those_of_the_definition_ties_included() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        calibration = generator.integers(0, 6, generator.integers(1, 30)).astype(float).tolist()
        scores = generator.integers(-1, 7, 15).astype(float)
        found = conformal_p_values(scores, calibration)
        assert found.tolist() == [naive(score, calibration) for score in scores]


def test_with_lots_p_values_are_uniform_under_the_null_even_among_ties() -> None:
    generator = np.random.default_rng(1)
    found = [
        conformal_p_values([draws[0]], draws[1:], seed=number)[0]
        for number, draws in enumerate(generator.integers(0, 4, (3000, 20)).astype(float))
    ]
    assert stats.kstest(found, "uniform").pvalue > 0.01


def test_without_lots_p_values_are_never_too_small() -> None:
    generator = np.random.default_rng(2)
    draws = generator.integers(0, 10, (4000, 40)).astype(float)
    found = np.array([conformal_p_values(row[:1], row[1:])[0] for row in draws])
    for level in (0.05, 0.1, 0.3):
        assert (found <= level).mean() <= level + 3 * np.sqrt(level / len(found))


def test_benjamini_hochberg_is_that_of_scipy() -> None:
    generator = np.random.default_rng(3)
    for size in (1, 2, 10, 200):
        values = generator.random(size) ** 3
        for rate in (0.01, 0.05, 0.2):
            expected = stats.false_discovery_control(values) <= rate
            assert benjamini_hochberg(values, rate).tolist() == expected.tolist()


def test_no_one_is_called_where_no_p_value_is_small() -> None:
    assert not benjamini_hochberg([0.4, 0.9, 1.0], 0.05).any()


def test_p_values_that_share_a_calibration_set_seldom_exceed_what_chance_may_bring() -> None:
    generator = np.random.default_rng(4)
    for calibration, tested in ((40, 100), (100, 30)):
        most = most_by_chance(0.05, calibration=calibration, tested=tested)
        shares = [
            np.mean(conformal_p_values(draws[:tested], draws[tested:]) <= 0.05)
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
        best = conformal_p_values([1.0], np.zeros(users))
        values = np.concatenate([best, np.ones(tested - 1)])
        assert benjamini_hochberg(values, rate).any() == called


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: conformal_p_values([], [1.0]), "scores must be an array"),
        (lambda: conformal_p_values([1.0], []), "calibration must be an array"),
        (lambda: conformal_p_values([np.nan], [1.0]), "scores must be finite"),
        (lambda: conformal_p_values([1.0], [np.inf]), "calibration must be finite"),
        (lambda: benjamini_hochberg([], 0.1), "p_values must be an array"),
        (lambda: benjamini_hochberg([1.1], 0.1), r"p_values must lie in \[0, 1\]"),
        (lambda: benjamini_hochberg([0.1], 1.0), r"rate must lie in \(0, 1\)"),
        (lambda: calibration_needed(0.0), r"rate must lie in \(0, 1\)"),
        (lambda: calibration_needed(0.1, tested=0), "tested must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
