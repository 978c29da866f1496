import math

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.comparison import subgroup_gap, user_perplexities


def documents(users=12, each=6, seed=0, harm=0.0):
    """Losses of users of whom user u has 100 - 5u samples; the harm grows with u."""
    chance = np.random.default_rng(seed)
    codes = np.repeat(np.arange(users), each)
    tokens = chance.integers(5, 30, codes.size)
    before = tokens * chance.normal(3.0, 0.1, codes.size)
    after = before + tokens * (harm * codes / users + chance.normal(0.0, 0.02, codes.size))
    return {
        "undefended": before,
        "defended": after,
        "tokens": tokens,
        "users": codes,
        "samples": 100 - 5 * np.arange(users),
    }


def test_a_users_perplexity_is_that_of_all_its_tokens():
    data = documents()
    found = user_perplexities(data["undefended"], data["tokens"], data["users"], 12)
    for user in range(12):
        own = data["users"] == user
        naive = math.exp(sum(data["undefended"][own]) / sum(data["tokens"][own]))
        assert found[user] == pytest.approx(naive)


def test_users_without_a_token_have_no_perplexity():
    assert np.isnan(user_perplexities([0.0, 0.0], [0, 2], [0, 1], 2)).tolist() == [True, False]


def test_the_gap_is_the_papers_difference_of_mean_drops():
    data = documents(harm=0.5)
    found = subgroup_gap(**data)
    before = user_perplexities(data["undefended"], data["tokens"], data["users"], 12)
    drops = user_perplexities(data["defended"], data["tokens"], data["users"], 12) - before
    assert found.top.value == pytest.approx(np.mean(drops[:5]))
    assert found.low.value == pytest.approx(np.mean(drops[-5:]))
    assert found.gap.value == pytest.approx(found.low.value - found.top.value)
    welch = stats.ttest_ind(drops[-5:], drops[:5], equal_var=False).confidence_interval(0.95)
    assert found.gap.interval == pytest.approx(tuple(welch))


def test_harm_to_the_under_represented_is_seen_by_gap_and_correlation():
    found = subgroup_gap(**documents(users=40, harm=0.5))
    assert found.gap.low > 0
    assert found.correlation.high < 0
    assert found.p_value < 0.001


def test_a_defence_that_does_nothing_shows_no_gap():
    data = documents()
    data["defended"] = data["undefended"]
    found = subgroup_gap(**data)
    assert (found.top.value, found.low.value) == (0, 0)
    assert found.gap.interval == (0, 0)
    assert found.correlation is None


def test_the_gaps_interval_covers_no_gap_as_often_as_it_says():
    found = [subgroup_gap(**documents(seed=seed)) for seed in range(200)]
    covered = sum(one.gap.low <= 0 <= one.gap.high for one in found)
    assert covered >= 180
    covered = sum(one.correlation.low <= 0 <= one.correlation.high for one in found)
    assert covered >= 180


def test_the_correlation_is_spearmans_over_all_users():
    data = documents(harm=0.02)
    found = subgroup_gap(**data, k=2)
    read = (data["users"], 12)
    before = user_perplexities(data["undefended"], data["tokens"], *read)
    after = user_perplexities(data["defended"], data["tokens"], *read)
    expected = stats.spearmanr(data["samples"], after - before)
    assert found.correlation.value == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)
    # Bonett and Wright (2000), "Sample size requirements for estimating correlations", eq. 3
    rho = expected.statistic
    deviation = np.sqrt((1 + rho**2 / 2) / (12 - 3))
    interval = np.tanh(np.arctanh(rho) + stats.norm.ppf([0.025, 0.975]) * deviation)
    assert found.correlation.interval == pytest.approx(tuple(interval))


def test_a_perfect_order_has_a_correlation_without_an_interval():
    found = subgroup_gap(
        [0.0] * 4, [0.0, 0.1, 0.2, 0.3], tokens=[1] * 4, users=[0, 1, 2, 3],
        samples=[9, 7, 5, 3], k=1,
    )  # fmt: skip
    assert (found.correlation.value, found.correlation.low) == (-1, None)


def test_users_are_ordered_by_samples():
    data = documents()
    data["samples"] = data["samples"][::-1]
    found, other = subgroup_gap(**data, k=3), subgroup_gap(**documents(), k=3)
    assert found.top.value == pytest.approx(other.low.value)
    assert found.gap.value == pytest.approx(-other.gap.value)


def test_users_without_training_text_are_nobodys_least_represented():
    data = documents()
    data["samples"] = data["samples"].copy()
    data["samples"][11] = 0
    found, other = subgroup_gap(**data), subgroup_gap(**documents())
    assert (found.users, other.users) == (11, 12)
    assert found.low.value != other.low.value


def test_one_user_a_group_has_a_gap_without_an_interval():
    found = subgroup_gap([0, 0], [0, 1], tokens=[1, 1], users=[0, 1], samples=[2, 1], k=1)
    assert found.gap.value == pytest.approx(math.e - 1)
    assert found.summary()["gap_low"] is None


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"users": np.zeros(72, dtype=int)}, "at least 10.*got one user only"),
        ({"users": np.repeat([0, 1, 2], 24)}, "at least 10.*got 3 users"),
        ({"samples": np.full(12, 7)}, "differ.*got 7"),
        ({"defended": np.full(72, math.nan)}, "finite, got nan"),
        ({"defended": np.full(72, 1e6)}, "finite perplexity"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes, names):
    with pytest.raises(ValueError, match=names):
        subgroup_gap(**{**documents(), **changes})
