"""Permutation tests beside enumeration, SciPy's exact tests and simulated nulls."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vestige.metrics.tests import means_by_group, permutation_test, unit_permutation_test


def enumerated(strata):
    """(p of the sum, p of the lowest) by going through every choice."""
    ranks = [stats.rankdata([*own, *others]) for own, others in strata]
    shares = [rank / (len(rank) + 1) for rank in ranks]
    own = [share[: len(s[0])] for share, s in zip(shares, strata, strict=True)]
    total, lowest = sum(one.sum() for one in own), min(one.min() for one in own)
    sums, firsts = [], []
    for chosen in product(
        *(combinations(share, len(s[0])) for share, s in zip(shares, strata, strict=True))
    ):
        sums.append(sum(map(sum, chosen)) <= total + 1e-9)
        firsts.append(min(map(min, chosen)) <= lowest + 1e-9)
    return np.mean(sums), np.mean(firsts)


values = st.lists(st.integers(0, 6), min_size=1, max_size=3)


@given(values, st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_it_is_the_share_of_all_choices_that_stand_as_low(own, others):
    found = permutation_test([(own, others)])
    of_sum, of_first = enumerated([(own, others)])
    assert found.of_sum == pytest.approx(of_sum)
    assert found.of_first == pytest.approx(of_first)
    times = 1 if len(own) == 1 else 2
    assert found.p == pytest.approx(min(1, times * min(of_sum, of_first)))


@given(st.lists(st.tuples(values, st.just([1.0, 2.5, 4.0])), min_size=2, max_size=3))
def test_strata_of_one_size_are_enumerated_too(strata):
    strata = [(own[:1], others) for own, others in strata]
    found = permutation_test(strata)
    assert (found.of_sum, found.of_first) == pytest.approx(enumerated(strata))


def test_without_ties_the_sum_is_wilcoxons():
    generator = np.random.default_rng(0)
    own, others = generator.normal(-0.3, 1, 8), generator.normal(size=30)
    expected = stats.mannwhitneyu(own, others, alternative="less", method="exact").pvalue
    assert permutation_test([(own, others)]).of_sum == pytest.approx(expected)


def test_one_value_has_the_conformal_p_value():
    assert permutation_test([([5.0], range(99))]).p == pytest.approx(7 / 100)  # 0 to 5
    assert permutation_test([([-1.0], range(99))]).p == pytest.approx(1 / 100)


def test_one_value_before_all_is_found_among_many_that_are_not():
    generator = np.random.default_rng(1)
    own = [-1.0, *generator.random(9)]
    found = permutation_test([(own, generator.random(1990))])
    assert found.of_sum > 0.05
    assert found.of_first == pytest.approx(10 / 2000)
    assert found.p == pytest.approx(0.01)


def test_the_least_is_what_values_before_all_others_have():
    for own, others in (([0], range(1, 10)), ([0, 0.5], range(1, 30))):
        found = permutation_test([(own, others)])
        assert found.p == pytest.approx(found.least)
    assert permutation_test([([5, 6], [1, 2, 3])] * 2).least == pytest.approx(2 / comb(5, 2) ** 2)


def test_coarser_ranks_change_little(monkeypatch):
    generator = np.random.default_rng(2)
    strata = [(generator.random(20) ** 1.3, generator.random(200)) for _ in range(3)]
    fine = permutation_test(strata).of_sum
    monkeypatch.setattr("vestige.metrics.tests._MAX_SUMS", 1_000)
    assert permutation_test(strata).of_sum == pytest.approx(fine, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("own", "others", "strata"), [(1, 99, 1), (1, 40, 5), (6, 60, 1)])
def test_values_picked_by_lot_are_found_as_seldom_as_stated(own, others, strata):
    generator = np.random.default_rng(3)
    found = [
        permutation_test(
            [(generator.random(own), generator.random(others)) for _ in range(strata)]
        ).p
        for _ in range(600)
    ]
    for level in (0.01, 0.05, 0.2):
        assert np.mean(np.array(found) <= level) <= level + 3 * np.sqrt(level * (1 - level) / 600)


@pytest.mark.parametrize(
    ("strata", "message"),
    [([([], [1.0])], "tested"), ([([1.0], [])], "others")],
)
def test_nothing_to_compare_is_refused(strata, message):
    with pytest.raises(ValueError, match=message):
        permutation_test(strata)


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
