"""Permutation tests compared with enumeration, with SciPy and with simulated nulls."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vestige.metrics.tests import means_by_group, permutation_test, unit_permutation_test


def enumerated(strata):
    """(p-value of the sum, p-value of the lowest), by enumerating all subsets."""
    ranks = [stats.rankdata([*tested, *others]) for tested, others in strata]
    shares = [rank / (len(rank) + 1) for rank in ranks]
    sizes = [len(tested) for tested, _ in strata]
    observed = [share[:k] for share, k in zip(shares, sizes, strict=True)]
    total, lowest = sum(map(sum, observed)), min(map(min, observed))
    subsets = list(product(*(combinations(s, k) for s, k in zip(shares, sizes, strict=True))))
    of_sum = np.mean([sum(map(sum, subset)) <= total + 1e-9 for subset in subsets])
    of_first = np.mean([min(map(min, subset)) <= lowest + 1e-9 for subset in subsets])
    return of_sum, of_first


values = st.lists(st.integers(0, 6), min_size=1, max_size=3)


@given(values, st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_p_values_equal_those_of_enumeration(tested, others):
    result = permutation_test([(tested, others)])
    of_sum, of_first = enumerated([(tested, others)])
    assert result.of_sum == pytest.approx(of_sum)
    assert result.of_first == pytest.approx(of_first)
    tests = 1 if len(tested) == 1 else 2
    assert result.p == pytest.approx(min(1, tests * min(of_sum, of_first)))


@given(st.lists(st.tuples(values, st.just([1.0, 2.5, 4.0])), min_size=2, max_size=3))
def test_p_values_of_several_strata_equal_those_of_enumeration(strata):
    strata = [(tested[:1], others) for tested, others in strata]
    result = permutation_test(strata)
    assert (result.of_sum, result.of_first) == pytest.approx(enumerated(strata))


def test_without_ties_the_sum_is_wilcoxons():
    rng = np.random.default_rng(0)
    tested, others = rng.normal(-0.3, 1, 8), rng.normal(size=30)
    expected = stats.mannwhitneyu(tested, others, alternative="less", method="exact").pvalue
    assert permutation_test([(tested, others)]).of_sum == pytest.approx(expected)


def test_the_lowest_values_reach_the_least_p_value():
    for tested, others in (([0], range(1, 10)), ([0, 0.5], range(1, 30))):
        result = permutation_test([(tested, others)])
        assert result.p == pytest.approx(result.least)
    assert permutation_test([([5, 6], [1, 2, 3])] * 2).least == pytest.approx(2 / comb(5, 2) ** 2)


def test_coarser_ranks_change_p_values_little(monkeypatch):
    rng = np.random.default_rng(2)
    strata = [(rng.random(20) ** 1.3, rng.random(200)) for _ in range(3)]
    fine = permutation_test(strata).of_sum
    monkeypatch.setattr("vestige.metrics.tests._MAX_SUMS", 1_000)
    assert permutation_test(strata).of_sum == pytest.approx(fine, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("tested", "others", "strata"), [(1, 99, 1), (1, 40, 5), (6, 60, 1)])
def test_under_the_null_small_p_values_are_rare(tested, others, strata):
    rng = np.random.default_rng(3)
    p_values = [
        permutation_test([(rng.random(tested), rng.random(others)) for _ in range(strata)]).p
        for _ in range(600)
    ]
    for level in (0.01, 0.05, 0.2):
        rate = np.mean(np.array(p_values) <= level)
        assert rate <= level + 3 * np.sqrt(level * (1 - level) / 600)


@pytest.mark.parametrize(
    ("strata", "message"), [([([], [1.0])], "tested"), ([([1.0], [])], "others")]
)
def test_empty_sides_are_refused(strata, message):
    with pytest.raises(ValueError, match=message):
        permutation_test(strata)


def welch(x, y, axis):
    return stats.ttest_ind(x, y, axis=axis, equal_var=False).statistic


@pytest.mark.parametrize("seed", range(3))
def test_random_permutations_approach_scipys_exact_test(seed):
    rng = np.random.default_rng(seed)
    tested, others = rng.normal(0.5, 1, 4), rng.normal(0, 1, 6)
    exact = stats.permutation_test(
        (tested, others), welch, alternative="greater", vectorized=True, n_resamples=np.inf
    ).pvalue
    result = unit_permutation_test(tested, others, seed=seed, permutations=20_000)
    assert result == pytest.approx(exact, abs=0.012)


def test_a_single_unit_is_compared_by_its_rank():
    result = unit_permutation_test([3.5], [1.0, 2.0, 3.0, 4.0], seed=0, permutations=20_000)
    assert result == pytest.approx(0.4, abs=0.02)


def test_unequal_variances_and_sizes_keep_the_level():
    rng = np.random.default_rng(1)
    p_values = [
        unit_permutation_test(rng.normal(0, 3, 10), rng.normal(0, 1, 80), seed=n, permutations=199)
        for n in range(300)
    ]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.09  # 0.25 without studentizing


def test_equal_values_have_the_p_value_one():
    assert unit_permutation_test([1.0] * 3, [1.0] * 5, seed=0, permutations=99) == 1.0


def test_means_by_group_are_sorted_by_group():
    assert means_by_group([4.0, 0.0, 2.0], ["b", "a", "b"]).tolist() == [0.0, 3.0]
