"""Intervals of rates beside closed forms and SciPy's exact test, alone and over clusters."""

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


def test_many_rates_have_the_ends_of_each():
    trials = np.arange(1, 30)
    low, high = binomial_ends(trials // 2, trials, confidence=0.9)
    each = [clopper_pearson(n // 2, n, confidence=0.9) for n in range(1, 30)]
    assert list(zip(low, high, strict=True)) == each


def test_the_ends_are_where_the_tails_hold_half_of_what_is_left() -> None:
    low, high = clopper_pearson(7, 30)

    assert stats.binom.sf(6, 30, low) == pytest.approx(0.025)
    assert stats.binom.cdf(7, 30, high) == pytest.approx(0.025)


def test_without_trials_every_rate_is_possible() -> None:
    assert clopper_pearson(0, 0) == Interval(0.0, 1.0)


def test_a_rate_is_a_count_with_its_interval() -> None:
    found = rate([True, False, True, True], confidence=0.9)
    assert found is not None
    assert (found.count, found.n, found.value) == (3, 4, 0.75)
    assert found.interval == clopper_pearson(3, 4, confidence=0.9)


def test_nothing_tried_has_no_rate() -> None:
    assert rate([]) is None
    assert rates_by([], []) == {}


def test_keys_ascend_and_each_has_its_own_trials() -> None:
    found = rates_by([20, 1, 20, 3], [True, False, False, True])
    assert list(found) == [1, 3, 20]
    assert [(r.count, r.n) for r in found.values()] == [(0, 1), (1, 1), (1, 2)]


def test_it_is_clopper_pearson_at_the_number_of_trials_that_the_spread_leaves():
    hits, trials = np.array([10, 20, 30]), np.array([100, 100, 100])
    p, spread = 0.2, 3 / 2 * (100 + 0 + 100) / 300**2
    alone = p * (1 - p) / spread
    effective = alone * (stats.t.isf(0.025, 299) / stats.t.isf(0.025, 2)) ** 2
    low = stats.beta.ppf(0.025, p * effective, (1 - p) * effective + 1)
    high = stats.beta.ppf(0.975, p * effective + 1, (1 - p) * effective)
    assert clustered_rate(hits, trials).interval == pytest.approx((low, high))


def test_nothing_completed_has_an_upper_end_and_everything_a_lower():
    low, high = clustered_rate([0] * 5, [100] * 5).interval
    assert low == 0
    assert high > clopper_pearson(0, 500).high
    assert clustered_rate([100] * 5, [100] * 5).interval == pytest.approx((1 - high, 1))


def test_it_is_never_narrower_than_as_if_canaries_were_independent():
    for hits in ([3, 3, 3], [0, 1, 9], [50, 51, 52]):
        pooled = clopper_pearson(sum(hits), 300)
        found = clustered_rate(hits, [100] * 3)
        assert found.low <= pooled.low
        assert found.high >= pooled.high


def test_one_training_says_nothing_of_another():
    assert clustered_rate([3], [100]) == Estimate("rate", 0.03, n=1)
    found = rate_of_trainings([3], [100])
    assert (found.interval, found.count, found.n) == (clopper_pearson(3, 100), 3, 100)


def test_it_covers_where_the_pooled_interval_does_not():
    chance, rate, rho = np.random.default_rng(0), 0.2, 0.03
    size = (1 - rho) / rho
    hits = chance.binomial(100, chance.beta(rate * size, (1 - rate) * size, (400, 5))).tolist()
    pooled = [clopper_pearson(sum(row), 500) for row in hits]
    found = [clustered_rate(row, [100] * 5) for row in hits]
    assert np.mean([one.low <= rate <= one.high for one in pooled]) < 0.75
    assert np.mean([one.low <= rate <= one.high for one in found]) > 0.93
