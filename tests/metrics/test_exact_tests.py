"""Few p-values together are what enumeration says, and chance passes no more often than it may."""

from itertools import product
from math import log

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.exact_tests import (
    FEW,
    least_together,
    standing_out,
    together,
)


@pytest.mark.parametrize("places", [(2, 2, 2), (6, 6), (3, 5, 7), (24, 24, 2)])
def test_few_p_values_together_are_what_enumeration_says(places):
    """Fisher's statistic over every outcome, as likely as any other."""
    outcomes = [
        [place / n for place, n in zip(ranks, places, strict=True)]
        for ranks in product(*(range(1, n + 1) for n in places))
    ]
    sums = np.array([-sum(log(p) for p in outcome) for outcome in outcomes])
    for outcome, own in list(zip(outcomes, sums, strict=True))[:: len(outcomes) // 13 or 1]:
        fisher = float((sums >= own - 1e-9).mean())
        expected = min(1.0, 2 * min(fisher, len(places) * min(outcome)))
        found = together(outcome, places)
        assert found >= expected - 1e-12, "never too small"
        assert found <= 1.25 * expected


def test_three_pairs_reach_one_in_eight_before_they_are_doubled():
    assert least_together([2, 2, 2]) == pytest.approx(2 / 8)
    assert stats.combine_pvalues([0.5] * 3).pvalue > 0.6, "which chi square does not see"


@pytest.mark.parametrize(("m", "n"), [(1, 100), (3, 24), (3, 20_000), (20, 100), (60, 100)])
def test_chance_passes_no_more_often_than_it_may(m, n):
    rng = np.random.default_rng(m * n)
    p_values = rng.integers(1, n + 1, size=(1500, m)) / n
    passed = np.mean([together(row, [n] * m) <= 0.05 for row in p_values])
    assert passed <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1500)


@pytest.mark.parametrize(("m", "n"), [(20, 100), (200, 100), (200, 1000)])
def test_so_it_is_where_all_share_their_references(m, n):
    rng = np.random.default_rng(m + n)
    passed = []
    for _ in range(1500):
        references = np.sort(rng.normal(size=n))
        ranks = 1 + np.searchsorted(references, rng.normal(size=m))
        passed.append(together(ranks / (n + 1), [n + 1] * m, shared=n) <= 0.05)
    assert np.mean(passed) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1500)


def test_one_strong_p_value_among_many_is_enough():
    p_values = [1 / 20_000, *np.linspace(0.05, 1.0, 50)]
    assert together(p_values, [20_000] * 51) <= 0.05
    assert standing_out(p_values, 0.025).tolist() == [True] + [False] * 50


def test_more_than_a_few_have_chi_square():
    p_values = np.linspace(0.01, 0.6, FEW + 1)
    expected = 2 * stats.combine_pvalues(p_values).pvalue
    assert together(p_values, [10**6] * (FEW + 1)) == pytest.approx(expected)


@pytest.mark.parametrize(
    "wrong", [([], []), ([0.0], [2]), ([1.1], [2]), ([0.5], [2, 2]), ([0.5], [0])]
)
def test_what_is_no_p_value_is_refused(wrong):
    with pytest.raises(ValueError, match=r"p_values|places"):
        together(*wrong)
