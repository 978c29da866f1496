"""Intervals compared with closed forms, SciPy and naive definitions; their coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import norm

from vestige.metrics.comparison import crossed_difference
from vestige.metrics.estimates import (
    Estimate,
    Interval,
    auc,
    bounded_mean,
    clopper_pearson,
    columns,
    difference_of,
    difference_of_means,
    mean,
    median_interval,
    ratio_of_sums,
)


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.random.default_rng(0).normal(3, 2, size=12)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert mean(values, confidence=0.9).interval == pytest.approx(tuple(expected))
    # With one degree of freedom Student's t is the Cauchy distribution.
    margin = math.tan(math.pi * (0.95 - 0.5))
    assert mean([1.0, 3.0], confidence=0.9).interval == pytest.approx((2 - margin, 2 + margin))


def test_a_ratio_with_equal_wholes_has_students_interval_of_a_mean() -> None:
    parts = np.random.default_rng(4).normal(3, 2, 20)
    result = ratio_of_sums(parts, np.full(20, 5.0), confidence=0.9)
    assert result.value == pytest.approx(parts.mean() / 5)
    assert result.interval == pytest.approx(mean(parts / 5, confidence=0.9).interval)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (mean([2.0, 2.0, 2.0]).interval, Interval(2.0, 2.0)),
        (difference_of_means([2.0, 2.0], [1.0, 1.0]).interval, (1.0, 1.0)),
        (mean([1.0]), Estimate("mean", 1.0, n=1)),
        (bounded_mean([0.5]), Estimate("mean", 0.5, n=1)),
        (difference_of_means([1.0], [1.0, 2.0]), Estimate("difference", -0.5, n=3)),
        (ratio_of_sums([1.0], [2.0]), Estimate("ratio", 0.5, n=1)),
        (mean([]), None),
        (median_interval([]), None),
        (median_interval(np.arange(5.0)), None),
        (median_interval([1.0, 2.0, 3.0, 4.0, 5.0, np.inf]), (1.0, np.inf)),
        (bounded_mean([0.0, 0.0, 0.75]).interval, (0.0, 1.0)),
    ],
)
def test_estimates_of_few_or_equal_values(result: object, expected: object) -> None:
    assert result == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean([1.0, math.nan]), "values must be finite"),
        (lambda: mean([1.0, math.inf]), "values must be finite"),
        (lambda: ratio_of_sums([[1.0]], [[1.0]]), "must be an array"),
        (lambda: ratio_of_sums([np.nan], [1.0]), "finite"),
        (lambda: ratio_of_sums([1.0], [0.0]), "positive sum"),
        (lambda: median_interval([1.0, np.nan]), "nan"),
        (lambda: bounded_mean([0.5, 1e308]), r"values must lie in \[0, 1\]"),
    ],
)
def test_values_without_an_estimate_are_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("size", [6, 9, 25])
def test_the_interval_of_a_median_has_the_stated_coverage(size):
    samples = np.random.default_rng(size).exponential(size=(4000, size))
    intervals = [median_interval(row) for row in samples]
    covered = np.mean([ends.low <= np.log(2) <= ends.high for ends in intervals])
    assert covered >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 4000)


@pytest.mark.parametrize("trials", [2, 10, 30])
def test_equal_bounded_values_have_an_interval_of_positive_width(trials):
    none, all_ = clopper_pearson(0, trials), clopper_pearson(trials, trials)
    assert bounded_mean([0.0] * trials).interval == pytest.approx(none)
    assert bounded_mean([1.0] * trials).interval == pytest.approx(all_)
    low, high = bounded_mean([0.25] * trials).interval
    assert 0 < low < 0.25 < high < 1
    result = bounded_mean([14.0] * trials, ceiling=14.0)
    assert result.interval == pytest.approx([14 * end for end in all_])


@pytest.mark.parametrize("sizes", [(5, 5), (3, 9), (2, 40)])
def test_the_difference_of_means_has_scipys_welch_interval(sizes):
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 1, sizes[0]), rng.normal(1, 4, sizes[1])
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.9)
    result = difference_of_means(a, b, confidence=0.9)
    assert result.interval == pytest.approx(tuple(expected))


def crossed_values(rng, trainings, items, *, shift=0.0):
    """Values of items under two sets of trainings, with effects of both and their interaction."""
    level = rng.normal(8, 1, items)
    first, second = (
        level + rng.normal(0, 0.3, (trainings, 1)) + rng.normal(0, 0.5, (trainings, items))
        for _ in range(2)
    )
    return first, second + shift


def test_a_crossed_difference_has_the_margins_of_trainings_and_of_items():
    first, second = crossed_values(np.random.default_rng(2), 4, 30, shift=1.0)
    result = crossed_difference(first, second)
    value = result.value
    assert value == pytest.approx(second.mean() - first.mean())
    welch = difference_of_means(second.mean(1), first.mean(1))
    items = mean(second.mean(0) - first.mean(0))
    margin = math.hypot((welch.high - welch.low) / 2, (items.high - items.low) / 2)
    assert result.interval == pytest.approx((value - margin, value + margin))


def test_a_weighted_crossed_difference_is_a_difference_of_ratios():
    first, second = crossed_values(np.random.default_rng(3), 3, 20)
    weights = np.arange(1, 21)
    value = crossed_difference(first, second, weights=weights).value
    ratios = [table.sum(1) / weights.sum() for table in (first, second)]
    assert value == pytest.approx(ratios[1].mean() - ratios[0].mean())


def test_a_crossed_difference_has_the_stated_coverage():
    rng = np.random.default_rng(4)
    intervals = [crossed_difference(*crossed_values(rng, 3, 40)).interval for _ in range(400)]
    assert np.mean([low <= 0 <= high for low, high in intervals]) >= 0.93


@pytest.mark.parametrize("shapes", [((1, 9), (4, 9)), ((4, 9), (1, 9)), ((3, 1), (3, 1))])
def test_a_crossed_difference_of_one_training_or_one_item_has_no_interval(shapes):
    result = crossed_difference(*(np.full(shape, 2.0) for shape in shapes))
    assert (result.value, result.low, result.high) == (0.0, None, None)


def test_a_difference_of_estimates_has_the_ends_of_newcombe():
    rng = np.random.default_rng(5)
    for _ in range(100):
        (la, a, ha), (lb, b, hb) = np.sort(rng.normal(size=(2, 3)), axis=1).tolist()
        result = difference_of(Estimate("a", a, la, ha), Estimate("b", b, lb, hb))
        assert result.low == pytest.approx(a - b - math.sqrt((a - la) ** 2 + (hb - b) ** 2))
        assert result.high == pytest.approx(a - b + math.sqrt((ha - a) ** 2 + (b - lb) ** 2))
    half_open = difference_of(Estimate("a", 2.0, 1.0, None), Estimate("b", 0.0, -1.0, 1.0))
    assert half_open.low == pytest.approx(2 - math.sqrt(2))
    assert half_open.high is None
    assert difference_of(Estimate("a", 2.0), Estimate("b", 1.0)).interval == (-math.inf, math.inf)


def test_estimates_are_scaled_and_limited_with_their_ends():
    estimate = Estimate("rate", 0.5, 0.25, 1.5, n=4)
    assert columns("x", estimate.scaled(2.0)) == {"x": 1.0, "x_low": 0.5, "x_high": 3.0}
    assert estimate.within(0.0, 1.0).interval == (0.25, 1.0)
    assert estimate.count == 2


scores = st.lists(st.integers(-5, 5), min_size=1, max_size=20)


def share_of_pairs(members, others):
    return np.mean([(x > y) + (x == y) / 2 for x in members for y in others])


@given(scores, scores)
def test_auc_has_delongs_interval_with_an_additional_unit_at_each_end(members, others):
    result = auc(members, others)
    assert result.value == pytest.approx(share_of_pairs(members, others))
    x, y = [-99, *members, 99], [-99, *others, 99]
    center = share_of_pairs(x, y)
    variance = sum(  # equation 4 of the paper
        np.var(shares, ddof=1) / len(shares)
        for shares in (
            [share_of_pairs([member], y) for member in x],
            [share_of_pairs(x, [other]) for other in y],
        )
    )
    margin = norm.ppf(0.975) * variance**0.5
    low, high = min(result.value, center - margin), max(result.value, center + margin)
    assert result.interval == pytest.approx((max(0, low), min(1, high)))


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1 / 3, 1.0, 3.0])
@pytest.mark.parametrize("truth", [0.5, 0.9, 0.99])
def test_the_interval_of_auc_has_the_stated_coverage(truth, spread):
    rng, shift = np.random.default_rng(0), norm.ppf(truth) * np.hypot(1, spread)
    covered = 0
    for _ in range(400):
        interval = auc(rng.normal(shift, spread, 80), rng.normal(0, 1, 80)).interval
        covered += interval.low <= truth <= interval.high
    assert covered / 400 >= 0.92  # 0.95 less three standard errors
