"""Differences in utility between users with much and with little training text."""

import math

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.comparison import subgroup_gap, user_perplexities


def documents(seed=0, harm=0.0):
    """Losses of 12 users, of whom user u has 100 - 5u samples; the harm grows with u."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(12), 6)
    tokens = rng.integers(5, 30, users.size)
    before = tokens * rng.normal(3.0, 0.1, users.size)
    after = before + tokens * (harm * users / 12 + rng.normal(0.0, 0.02, users.size))
    return {
        "undefended": before,
        "defended": after,
        "tokens": tokens,
        "users": users,
        "samples": 100 - 5 * np.arange(12),
    }


def drops_of(data):
    before, after = (
        user_perplexities(data[name], data["tokens"], data["users"], 12)
        for name in ("undefended", "defended")
    )
    return after - before


def test_a_users_perplexity_uses_all_tokens_of_the_user():
    data = documents()
    result = user_perplexities(data["undefended"], data["tokens"], data["users"], 12)
    for user in range(12):
        rows = data["users"] == user
        naive = math.exp(sum(data["undefended"][rows]) / sum(data["tokens"][rows]))
        assert result[user] == pytest.approx(naive)


def test_users_without_a_token_have_no_perplexity():
    assert np.isnan(user_perplexities([0.0, 0.0], [0, 2], [0, 1], 2)).tolist() == [True, False]


def test_the_gap_equals_the_papers_difference_of_mean_drops():
    data = documents(harm=0.5)
    result, drops = subgroup_gap(**data), drops_of(data)
    assert result.top.value == pytest.approx(np.mean(drops[:5]))
    assert result.low.value == pytest.approx(np.mean(drops[-5:]))
    assert result.gap.value == pytest.approx(result.low.value - result.top.value)
    welch = stats.ttest_ind(drops[-5:], drops[:5], equal_var=False).confidence_interval(0.95)
    assert result.gap.interval == pytest.approx(tuple(welch))


def test_a_defence_without_effect_has_no_gap():
    data = documents()
    data["defended"] = data["undefended"]
    result = subgroup_gap(**data)
    assert (result.top.value, result.low.value) == (0, 0)
    assert result.gap.interval == (0, 0)
    assert result.correlation is None


def test_both_intervals_have_the_stated_coverage():
    results = [subgroup_gap(**documents(seed=seed)) for seed in range(200)]
    for name in ("gap", "correlation"):
        estimates = [getattr(result, name) for result in results]
        assert sum(estimate.low <= 0 <= estimate.high for estimate in estimates) >= 180


def test_the_correlation_is_spearmans_over_all_users():
    data = documents(harm=0.02)
    result = subgroup_gap(**data, k=2)
    expected = stats.spearmanr(data["samples"], drops_of(data))
    assert result.correlation.value == pytest.approx(expected.statistic)
    assert result.p_value == pytest.approx(expected.pvalue)
    # Bonett and Wright (2000), "Sample size requirements for estimating correlations", eq. 3
    rho = expected.statistic
    deviation = np.sqrt((1 + rho**2 / 2) / (12 - 3))
    interval = np.tanh(np.arctanh(rho) + stats.norm.ppf([0.025, 0.975]) * deviation)
    assert result.correlation.interval == pytest.approx(tuple(interval))


def test_a_perfect_correlation_has_no_interval():
    result = subgroup_gap(
        [0.0] * 4, [0.0, 0.1, 0.2, 0.3], tokens=[1] * 4, users=[0, 1, 2, 3],
        samples=[9, 7, 5, 3], k=1,
    )  # fmt: skip
    assert (result.correlation.value, result.correlation.low) == (-1, None)


def test_users_are_ordered_by_samples():
    data = documents()
    data["samples"] = data["samples"][::-1]
    reversed_, result = subgroup_gap(**data, k=3), subgroup_gap(**documents(), k=3)
    assert reversed_.top.value == pytest.approx(result.low.value)
    assert reversed_.gap.value == pytest.approx(-result.gap.value)


def test_users_without_training_text_are_left_out():
    data = documents()
    data["samples"] = np.where(np.arange(12) == 11, 0, data["samples"])
    without, result = subgroup_gap(**data), subgroup_gap(**documents())
    assert (without.users, result.users) == (11, 12)
    assert without.low.value != result.low.value


def test_groups_of_one_user_have_a_gap_without_an_interval():
    result = subgroup_gap([0, 0], [0, 1], tokens=[1, 1], users=[0, 1], samples=[2, 1], k=1)
    assert result.gap.value == pytest.approx(math.e - 1)
    assert result.summary()["gap_low"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"users": np.zeros(72, dtype=int)}, "at least 10.*got one user only"),
        ({"users": np.repeat([0, 1, 2], 24)}, "at least 10.*got 3 users"),
        ({"samples": np.full(12, 7)}, "differ.*got 7"),
        ({"defended": np.full(72, math.nan)}, "finite, got nan"),
        ({"defended": np.full(72, 1e6)}, "finite perplexity"),
    ],
)
def test_unsuitable_data_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        subgroup_gap(**{**documents(), **changes})
