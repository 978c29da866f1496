"""Rates over clusters against closed forms, and their coverage where canaries fall together."""

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.clustered import clustered_rate, rate_of_trainings
from vestige.metrics.intervals import clopper_pearson


def test_it_is_clopper_pearson_at_the_number_of_trials_that_the_spread_leaves():
    hits, trials = np.array([10, 20, 30]), np.array([100, 100, 100])
    p, spread = 0.2, 3 / 2 * (100 + 0 + 100) / 300**2
    alone = p * (1 - p) / spread
    effective = alone * (stats.t.isf(0.025, 299) / stats.t.isf(0.025, 2)) ** 2
    low = stats.beta.ppf(0.025, p * effective, (1 - p) * effective + 1)
    high = stats.beta.ppf(0.975, p * effective + 1, (1 - p) * effective)
    assert clustered_rate(hits, trials) == pytest.approx((low, high))


def test_nothing_completed_has_an_upper_end_and_everything_a_lower():
    low, high = clustered_rate([0] * 5, [100] * 5)
    assert low == 0
    assert high > clopper_pearson(0, 500).high
    assert clustered_rate([100] * 5, [100] * 5) == pytest.approx((1 - high, 1))


def test_it_is_never_narrower_than_as_if_canaries_were_independent():
    for hits in ([3, 3, 3], [0, 1, 9], [50, 51, 52]):
        pooled = clopper_pearson(sum(hits), 300)
        found = clustered_rate(hits, [100] * 3)
        assert found.low <= pooled.low
        assert found.high >= pooled.high


def test_one_training_says_nothing_of_another():
    assert clustered_rate([3], [100]) is None
    assert rate_of_trainings([3], [100]) == clopper_pearson(3, 100)


def test_it_covers_where_the_pooled_interval_does_not():
    chance, rate, rho = np.random.default_rng(0), 0.2, 0.03
    size = (1 - rho) / rho
    hits = chance.binomial(100, chance.beta(rate * size, (1 - rate) * size, (400, 5))).tolist()
    pooled = [clopper_pearson(sum(row), 500) for row in hits]
    found = [clustered_rate(row, [100] * 5) for row in hits]
    assert np.mean([one.low <= rate <= one.high for one in pooled]) < 0.75
    assert np.mean([one.low <= rate <= one.high for one in found]) > 0.93


@pytest.mark.parametrize(
    ("hits", "trials", "confidence", "names"),
    [
        ([1, 2], [3], 0.95, "as many"),
        ([4, 1], [3, 3], 0.95, "between 0 and trials"),
        ([1, 1], [3, 3], 1.0, "confidence"),
    ],
)
def test_counts_that_make_no_sense_are_refused(hits, trials, confidence, names):
    with pytest.raises(ValueError, match=names):
        clustered_rate(hits, trials, confidence=confidence)
