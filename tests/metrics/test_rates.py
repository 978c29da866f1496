"""Intervals of rates compared with SciPy and closed forms, for single trials and clusters."""

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.comparison import rate_of_trainings
from vestige.metrics.estimates import (
    Estimate,
    Interval,
    binomial_ends,
    clopper_pearson,
    clustered_rate,
    rate,
    rates_by,
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
def test_rates_of_zero_and_one_have_closed_forms(trials: int) -> None:
    margin = 0.025 ** (1 / trials)
    assert clopper_pearson(0, trials) == pytest.approx((0.0, 1 - margin))
    assert clopper_pearson(trials, trials) == pytest.approx((margin, 1.0))
    assert clopper_pearson(0, 0) == Interval(0.0, 1.0)


def test_ends_of_many_rates_equal_those_of_each():
    trials = np.arange(1, 30)
    ends = binomial_ends(trials // 2, trials, confidence=0.9)
    each = [clopper_pearson(n // 2, n, confidence=0.9) for n in range(1, 30)]
    assert list(zip(*ends, strict=True)) == each


def test_a_rate_has_its_count_and_interval() -> None:
    result = rate([True, False, True, True], confidence=0.9)
    assert result is not None
    assert (result.count, result.n, result.value) == (3, 4, 0.75)
    assert result.interval == clopper_pearson(3, 4, confidence=0.9)
    assert rate([]) is None


def test_rates_are_grouped_by_ascending_keys() -> None:
    result = rates_by([20, 1, 20, 3], [True, False, False, True])
    assert list(result) == [1, 3, 20]
    assert [(r.count, r.n) for r in result.values()] == [(0, 1), (1, 1), (1, 2)]


def test_a_clustered_rate_equals_clopper_pearson_for_the_effective_number_of_trials():
    hits, trials = np.array([10, 20, 30]), np.array([100, 100, 100])
    p, variance = 0.2, 3 / 2 * (100 + 0 + 100) / 300**2
    independent = p * (1 - p) / variance
    effective = independent * (stats.t.isf(0.025, 299) / stats.t.isf(0.025, 2)) ** 2
    low = stats.beta.ppf(0.025, p * effective, (1 - p) * effective + 1)
    high = stats.beta.ppf(0.975, p * effective + 1, (1 - p) * effective)
    assert clustered_rate(hits, trials).interval == pytest.approx((low, high))


def test_clustered_rates_of_zero_and_one_have_one_sided_intervals():
    low, high = clustered_rate([0] * 5, [100] * 5).interval
    assert low == 0
    assert high > clopper_pearson(0, 500).high
    assert clustered_rate([100] * 5, [100] * 5).interval == pytest.approx((1 - high, 1))


@pytest.mark.parametrize("hits", [[3, 3, 3], [0, 1, 9], [50, 51, 52]])
def test_a_clustered_interval_is_never_narrower_than_the_pooled_one(hits):
    pooled, clustered = clopper_pearson(sum(hits), 300), clustered_rate(hits, [100] * 3)
    assert clustered.low <= pooled.low
    assert clustered.high >= pooled.high


def test_one_training_has_no_variance_between_trainings():
    assert clustered_rate([3], [100]) == Estimate("rate", 0.03, n=1)
    result = rate_of_trainings([3], [100])
    assert (result.interval, result.count, result.n) == (clopper_pearson(3, 100), 3, 100)


def test_the_clustered_interval_covers_where_the_pooled_one_does_not():
    rng, rate, rho = np.random.default_rng(0), 0.2, 0.03
    size = (1 - rho) / rho
    hits = rng.binomial(100, rng.beta(rate * size, (1 - rate) * size, (400, 5))).tolist()
    pooled = [clopper_pearson(sum(row), 500) for row in hits]
    clustered = [clustered_rate(row, [100] * 5) for row in hits]
    assert np.mean([ends.low <= rate <= ends.high for ends in pooled]) < 0.75
    assert np.mean([ends.low <= rate <= ends.high for ends in clustered]) > 0.93
