"""The intervals equal the closed forms and SciPy's own exact test."""

import math

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.intervals import (
    Interval,
    clopper_pearson,
    mean_interval,
    median_interval,
    ratio_of_sums,
)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("trials", [1, 2, 7, 50, 1000])
def test_the_interval_of_a_rate_is_scipys_exact_one(trials: int, confidence: float) -> None:
    for successes in sorted({0, 1, trials // 3, trials // 2, trials - 1, trials}):
        exact = stats.binomtest(successes, trials).proportion_ci(confidence, method="exact")
        assert clopper_pearson(successes, trials, confidence=confidence) == pytest.approx(
            (exact.low, exact.high), rel=1e-9, abs=1e-12
        )


@pytest.mark.parametrize("trials", [1, 5, 300])
def test_no_success_and_only_successes_have_their_closed_forms(trials: int) -> None:
    reach = 0.025 ** (1 / trials)

    assert clopper_pearson(0, trials) == pytest.approx((0.0, 1 - reach))
    assert clopper_pearson(trials, trials) == pytest.approx((reach, 1.0))


def test_an_interval_of_a_rate_is_never_a_point() -> None:
    for trials in range(1, 40):
        for successes in range(trials + 1):
            low, high = clopper_pearson(successes, trials)
            assert 0 <= low <= successes / trials <= high <= 1
            assert high - low > 0.01


def test_the_ends_are_where_the_tails_hold_half_of_what_is_left() -> None:
    low, high = clopper_pearson(7, 30)

    assert stats.binom.sf(6, 30, low) == pytest.approx(0.025)
    assert stats.binom.cdf(7, 30, high) == pytest.approx(0.025)


def test_without_trials_every_rate_is_possible() -> None:
    assert clopper_pearson(0, 0) == Interval(0.0, 1.0)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3), (0, -1)])
def test_counts_that_cannot_be_are_refused(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="must be at"):
        clopper_pearson(successes, trials)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_a_confidence_outside_of_0_to_1_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence must lie in"):
        clopper_pearson(1, 2, confidence=confidence)
    with pytest.raises(ValueError, match="confidence must lie in"):
        mean_interval([1.0, 2.0], confidence=confidence)


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.random.default_rng(0).normal(3, 2, size=12)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.9)

    assert mean_interval(values, confidence=0.9) == pytest.approx(tuple(expected))


def test_two_values_have_the_closed_form_of_one_degree_of_freedom() -> None:
    # With one degree of freedom Student's t is the Cauchy distribution.
    margin = math.tan(math.pi * (0.95 - 0.5) / 1) * 1.0

    assert mean_interval([1.0, 3.0], confidence=0.9) == pytest.approx((2 - margin, 2 + margin))


def test_equal_values_leave_no_doubt() -> None:
    assert mean_interval([2.0, 2.0, 2.0]) == Interval(2.0, 2.0)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_fewer_than_two_values_have_no_interval(values: list[float]) -> None:
    assert mean_interval(values) is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="values must be finite"):
        mean_interval([1.0, value])


def test_a_ratio_of_equal_wholes_has_students_interval_of_a_mean() -> None:
    parts = np.random.default_rng(4).normal(3, 2, 20)
    ratio, interval = ratio_of_sums(parts, np.full(20, 5.0), confidence=0.9)
    expected = mean_interval(parts / 5, confidence=0.9)
    assert ratio == pytest.approx(parts.mean() / 5)
    assert interval == pytest.approx(expected)


def test_a_ratio_of_one_cluster_has_no_interval() -> None:
    assert ratio_of_sums([1.0], [2.0]) == (0.5, None)


@pytest.mark.parametrize(
    ("parts", "wholes", "message"),
    [
        ([1.0, 2.0], [1.0], "of one length"),
        ([[1.0]], [[1.0]], "of one length"),
        ([np.nan], [1.0], "finite"),
        ([1.0], [0.0], "positive sum"),
    ],
)
def test_sums_that_make_no_ratio_are_refused(
    parts: list[float], wholes: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ratio_of_sums(parts, wholes)


@pytest.mark.parametrize("size", [6, 9, 25])
def test_the_interval_of_a_median_covers_it_whatever_the_distribution(size):
    rng = np.random.default_rng(size)
    draws = rng.exponential(size=(4000, size))
    found = [median_interval(row) for row in draws]
    covered = np.mean([ends.low <= np.log(2) <= ends.high for ends in found])
    assert covered >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 4000)


@pytest.mark.parametrize("size", range(6))
def test_so_few_values_have_no_interval_of_their_median(size):
    assert median_interval(np.arange(size, dtype=float)) is None


def test_a_value_that_is_only_bounded_below_may_be_infinite():
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, np.inf]) == (1.0, np.inf)
    with pytest.raises(ValueError, match="nan"):
        median_interval([1.0, np.nan])
