"""The two-sample test against scipy's exact one, its level, and what pooling authors would do."""

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.unit_permutation import means_by_group, unit_permutation_test


def welch(x, y, axis):
    return stats.ttest_ind(x, y, axis=axis, equal_var=False).statistic


@pytest.mark.parametrize("seed", range(3))
def test_it_is_scipys_test_of_all_divisions(seed):
    chance = np.random.default_rng(seed)
    own, rest = chance.normal(0.5, 1, 4), chance.normal(0, 1, 6)
    exact = stats.permutation_test(
        (own, rest), welch, alternative="greater", vectorized=True, n_resamples=np.inf
    ).pvalue
    drawn = unit_permutation_test(own, rest, seed=seed, permutations=20_000)
    assert drawn == pytest.approx(exact, abs=0.012)


def test_one_unit_is_compared_by_its_rank():
    drawn = unit_permutation_test([3.5], [1.0, 2.0, 3.0, 4.0], seed=0, permutations=20_000)
    assert drawn == pytest.approx(0.4, abs=0.02)


def test_unequal_spreads_and_sizes_keep_the_level():
    chance = np.random.default_rng(1)
    small = [
        unit_permutation_test(chance.normal(0, 3, 10), chance.normal(0, 1, 80), seed=n,
                              permutations=199) <= 0.05
        for n in range(300)
    ]  # fmt: skip
    assert np.mean(small) <= 0.09  # of plain differences of means it is 0.25


def test_equal_values_say_nothing():
    assert unit_permutation_test([1.0] * 3, [1.0] * 5, seed=0, permutations=99) == 1.0


def test_groups_have_their_means():
    assert means_by_group([4.0, 0.0, 2.0], ["b", "a", "b"]).tolist() == [0.0, 3.0]
