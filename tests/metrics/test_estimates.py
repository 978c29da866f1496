"""Intervals beside closed forms, SciPy's own, naive definitions, and their coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import norm

from vestige.metrics.comparison import crossed_difference, with_margins
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
    margin = math.tan(math.pi * (0.95 - 0.5) / 1) * 1.0
    assert mean([1.0, 3.0], confidence=0.9).interval == pytest.approx((2 - margin, 2 + margin))


def test_a_ratio_of_equal_wholes_has_students_interval_of_a_mean() -> None:
    parts = np.random.default_rng(4).normal(3, 2, 20)
    found = ratio_of_sums(parts, np.full(20, 5.0), confidence=0.9)
    assert found.value == pytest.approx(parts.mean() / 5)
    assert found.interval == pytest.approx(mean(parts / 5, confidence=0.9).interval)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (mean([2.0, 2.0, 2.0]).interval, Interval(2.0, 2.0)),  # equal values leave no doubt
        (difference_of_means([2.0, 2.0], [1.0, 1.0]).interval, (1.0, 1.0)),
        (mean([1.0]), Estimate("mean", 1.0, n=1)),  # one value has no spread
        (bounded_mean([0.5]), Estimate("mean", 0.5, n=1)),
        (difference_of_means([1.0], [1.0, 2.0]), Estimate("difference", -0.5, n=3)),
        (ratio_of_sums([1.0], [2.0]), Estimate("ratio", 0.5, n=1)),
        (mean([]), None),
        *((median_interval(np.arange(size, dtype=float)), None) for size in range(6)),
        (median_interval([1.0, 2.0, 3.0, 4.0, 5.0, np.inf]), (1.0, np.inf)),
        (bounded_mean([0.0, 0.0, 0.75]).interval, (0.0, 1.0)),  # shares stay between 0 and 1
    ],
)
def test_values_that_are_few_or_alike(found: object, expected: object) -> None:
    assert found == expected


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
def test_values_that_have_no_estimate_are_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("size", [6, 9, 25])
def test_the_interval_of_a_median_covers_it_whatever_the_distribution(size):
    rng = np.random.default_rng(size)
    draws = rng.exponential(size=(4000, size))
    found = [median_interval(row) for row in draws]
    covered = np.mean([ends.low <= np.log(2) <= ends.high for ends in found])
    assert covered >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 4000)


@pytest.mark.parametrize("trials", [2, 10, 30])
def test_values_that_are_all_alike_have_an_interval_of_some_width(trials):
    none, every = clopper_pearson(0, trials), clopper_pearson(trials, trials)
    assert bounded_mean([0.0] * trials).interval == pytest.approx(none)
    assert bounded_mean([1.0] * trials).interval == pytest.approx(every)
    low, high = bounded_mean([0.25] * trials).interval
    assert 0 < low < 0.25 < high < 1
    found = bounded_mean([14.0] * trials, ceiling=14.0)
    assert found.interval == pytest.approx([14 * e for e in every])


def test_the_difference_of_means_is_scipys_welch_interval():
    chance = np.random.default_rng(0)
    for sizes in [(5, 5), (3, 9), (2, 40)]:
        a, b = chance.normal(0, 1, sizes[0]), chance.normal(1, 4, sizes[1])
        expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.9)
        found = difference_of_means(a, b, confidence=0.9)
        assert found.interval == pytest.approx(tuple(expected))


def drawn(chance, trainings, items, *, moved=0.0):
    """Values of items under trainings: effects of both, and of the two together."""
    level = chance.normal(8, 1, items)

    def some():
        each = chance.normal(0, 0.3, (trainings, 1)) + chance.normal(0, 0.5, (trainings, items))
        return level + each

    return some(), some() + moved


def test_a_crossed_difference_has_the_margins_of_trainings_and_of_items():
    first, second = drawn(np.random.default_rng(2), 4, 30, moved=1.0)
    found = crossed_difference(first, second)
    value = found.value
    assert value == pytest.approx(second.mean() - first.mean())
    welch = difference_of_means(second.mean(1), first.mean(1))
    items = mean(second.mean(0) - first.mean(0))
    margin = math.hypot((welch.high - welch.low) / 2, (items.high - items.low) / 2)
    assert found.interval == pytest.approx((value - margin, value + margin))


def test_weights_make_it_a_difference_of_ratios():
    first, second = drawn(np.random.default_rng(3), 3, 20)
    weights = np.arange(1, 21)
    value = crossed_difference(first, second, weights=weights).value
    ratios = [table.sum(1) / weights.sum() for table in (first, second)]
    assert value == pytest.approx(ratios[1].mean() - ratios[0].mean())


def test_a_crossed_difference_covers_as_stated():
    chance = np.random.default_rng(4)
    ends = [crossed_difference(*drawn(chance, 3, 40)).interval for _ in range(400)]
    assert np.mean([low <= 0 <= high for low, high in ends]) >= 0.93


@pytest.mark.parametrize("shapes", [((1, 9), (4, 9)), ((4, 9), (1, 9)), ((3, 1), (3, 1))])
def test_one_training_or_one_item_has_no_spread(shapes):
    found = crossed_difference(*(np.full(shape, 2.0) for shape in shapes))
    assert (found.value, found.low, found.high) == (0.0, None, None)


def test_margins_add_as_variances_do():
    found = with_margins(Estimate("a", 1.0, -2, 4), Estimate("b", 9.0, -3, 5))
    assert found == Estimate("a", 1.0, -4.0, 6.0)


def test_a_difference_of_estimates_has_the_square_and_add_ends():
    chance = np.random.default_rng(5)
    for _ in range(100):
        (la, a, ha), (lb, b, hb) = np.sort(chance.normal(size=(2, 3)), axis=1).tolist()
        found = difference_of(Estimate("a", a, la, ha), Estimate("b", b, lb, hb))
        assert found.low == pytest.approx(a - b - math.sqrt((a - la) ** 2 + (hb - b) ** 2))
        assert found.high == pytest.approx(a - b + math.sqrt((ha - a) ** 2 + (b - lb) ** 2))


def test_an_end_that_needs_an_unknown_one_is_unknown():
    found = difference_of(Estimate("a", 2.0, 1.0, None), Estimate("b", 0.0, -1.0, 1.0))
    assert found.low == pytest.approx(2 - math.sqrt(2))
    assert found.high is None
    assert difference_of(Estimate("a", 2.0), Estimate("b", 1.0)).interval == (-math.inf, math.inf)


def test_a_summary_has_the_ends_as_columns_and_units_scale_all_three():
    found = Estimate("rate", 0.5, 0.25, 1.5, n=4)
    assert columns("x", found.scaled(2.0)) == {"x": 1.0, "x_low": 0.5, "x_high": 3.0}
    assert found.within(0.0, 1.0).interval == (0.25, 1.0)
    assert found.count == 2


scores = st.lists(st.integers(-5, 5), min_size=1, max_size=20)


@given(scores, scores)
def test_auc_is_the_share_of_pairs_in_order(inside, outside):
    pairs = [(x > y) + (x == y) / 2 for x in inside for y in outside]
    found = auc(inside, outside)
    assert found.value == pytest.approx(np.mean(pairs))
    assert 0 <= found.interval.low <= found.value <= found.interval.high <= 1


@given(scores, scores)
def test_members_and_others_mirror_each_other(inside, outside):
    one, other = auc(inside, outside), auc(outside, inside)
    assert other.value == pytest.approx(1 - one.value)
    assert other.interval.low == pytest.approx(1 - one.interval.high)


@pytest.mark.parametrize(("n", "m", "least"), [(1, 1, 0.0), (5, 20, 0.5), (200, 200, 0.96)])
def test_perfect_scores_leave_room_for_doubt(n, m, least):
    found = auc(np.ones(n), np.zeros(m))
    assert found.value == found.interval.high == 1
    assert least <= found.interval.low < 1


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=9), scores)
def test_the_interval_is_delongs_with_a_user_more_at_either_end_of_both_sides(inside, outside):
    more, less = [[-99, *side, 99] for side in (inside, outside)]
    kernel = [[(x > y) + (x == y) / 2 for y in less] for x in more]  # equation 2 of the paper
    centre = sum(map(sum, kernel)) / (len(more) * len(less))
    rows = [sum(row) / len(less) for row in kernel]
    columns = [sum(row[place] for row in kernel) / len(more) for place in range(len(less))]
    parts = [
        sum((share - centre) ** 2 for share in shares) / (len(shares) - 1) / len(shares)
        for shares in (rows, columns)
    ]
    margin = norm.ppf(0.975) * sum(parts) ** 0.5
    found = auc(inside, outside)
    low, high = min(found.value, centre - margin), max(found.value, centre + margin)
    assert found.interval == pytest.approx((max(0, low), min(1, high)))


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1 / 3, 1.0, 3.0])
@pytest.mark.parametrize("truth", [0.5, 0.9, 0.99])
def test_the_interval_covers_the_truth_as_often_as_it_says_whatever_the_spreads(truth, spread):
    rng, shift = np.random.default_rng(0), norm.ppf(truth) * np.hypot(1, spread)
    covered = 0
    for _ in range(400):
        interval = auc(rng.normal(shift, spread, 80), rng.normal(0, 1, 80)).interval
        covered += interval.low <= truth <= interval.high
    assert covered / 400 >= 0.92  # 0.95 less three standard errors
