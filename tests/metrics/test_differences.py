import math

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.differences import (
    EVERYTHING,
    crossed_difference,
    difference_of_means,
    perplexity_ratio,
    widened,
)
from vestige.metrics.intervals import Interval, mean_interval


def test_the_difference_of_means_is_scipys_welch_interval():
    chance = np.random.default_rng(0)
    for sizes in [(5, 5), (3, 9), (2, 40)]:
        a, b = chance.normal(0, 1, sizes[0]), chance.normal(1, 4, sizes[1])
        expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.9)
        assert difference_of_means(a, b, confidence=0.9) == pytest.approx(tuple(expected))


def test_one_value_has_no_spread():
    assert difference_of_means([1.0], [1.0, 2.0]) is None


def test_groups_without_spread_have_an_interval_without_width():
    assert difference_of_means([2.0, 2.0], [1.0, 1.0]) == (1.0, 1.0)


def test_the_ratio_is_that_of_the_perplexities():
    chance = np.random.default_rng(1)
    tokens = chance.integers(1, 30, 50)
    first, second = tokens * chance.uniform(3, 5, 50), tokens * chance.uniform(3, 6, 50)
    ratio, interval = perplexity_ratio(first, second, tokens)
    naive = math.exp(second.sum() / tokens.sum()) / math.exp(first.sum() / tokens.sum())
    assert ratio == pytest.approx(naive)
    assert interval.low < ratio < interval.high


def test_with_equal_documents_the_log_ratio_has_students_interval():
    chance = np.random.default_rng(2)
    difference = chance.normal(0.1, 0.5, 12)
    _, interval = perplexity_ratio(np.ones(12), 1 + 4 * difference, np.full(12, 4))
    naive = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
    assert [math.log(end) for end in interval] == pytest.approx(list(naive))


def test_the_interval_covers_the_true_ratio_as_often_as_it_says():
    chance = np.random.default_rng(3)
    covered = 0
    for _ in range(400):
        tokens = chance.integers(5, 40, 60)
        difference = tokens * chance.normal(0.05, 0.2, 60)
        _, interval = perplexity_ratio(np.zeros(60), difference, tokens)
        covered += interval.low <= math.exp(0.05) <= interval.high
    assert 0.91 <= covered / 400 <= 0.98


def test_models_that_agree_have_the_ratio_one():
    assert perplexity_ratio([3.0, 4.0], [3.0, 4.0], [1, 2]) == (1.0, (1.0, 1.0))


def test_one_document_has_no_interval():
    assert perplexity_ratio([1.0], [2.0], [1]) == (math.e, None)


def test_a_ratio_beyond_float_is_infinite_not_an_error():
    assert perplexity_ratio([0.0], [1000.0], [1]) == (math.inf, None)


@pytest.mark.parametrize(
    ("first", "second", "tokens", "names"),
    [
        ([1.0], [1.0, 2.0], [1, 1], "length"),
        ([math.nan], [1.0], [1], "finite"),
        ([1.0], [1.0], [0], "tokens"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(first, second, tokens, names):
    with pytest.raises(ValueError, match=names):
        perplexity_ratio(first, second, tokens)


def test_a_confidence_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"confidence must lie in \(0, 1\), got 1"):
        difference_of_means([1, 2], [1, 2], confidence=1)


def drawn(chance, trainings, items, *, moved=0.0):
    """Values of items under trainings: effects of both, and of the two together."""
    level = chance.normal(8, 1, items)

    def some():
        each = chance.normal(0, 0.3, (trainings, 1)) + chance.normal(0, 0.5, (trainings, items))
        return level + each

    return some(), some() + moved


def test_a_crossed_difference_has_the_margins_of_trainings_and_of_items():
    first, second = drawn(np.random.default_rng(2), 4, 30, moved=1.0)
    value, interval = crossed_difference(first, second)
    assert value == pytest.approx(second.mean() - first.mean())
    welch = difference_of_means(second.mean(1), first.mean(1))
    items = mean_interval(second.mean(0) - first.mean(0))
    margin = math.hypot((welch.high - welch.low) / 2, (items.high - items.low) / 2)
    assert interval == pytest.approx((value - margin, value + margin))


def test_weights_make_it_a_difference_of_ratios():
    first, second = drawn(np.random.default_rng(3), 3, 20)
    weights = np.arange(1, 21)
    value, _ = crossed_difference(first, second, weights=weights)
    ratios = [table.sum(1) / weights.sum() for table in (first, second)]
    assert value == pytest.approx(ratios[1].mean() - ratios[0].mean())


def test_a_crossed_difference_covers_as_stated():
    chance = np.random.default_rng(4)
    ends = [crossed_difference(*drawn(chance, 3, 40))[1] for _ in range(400)]
    assert np.mean([low <= 0 <= high for low, high in ends]) >= 0.93


@pytest.mark.parametrize("shapes", [((1, 9), (4, 9)), ((4, 9), (1, 9)), ((3, 1), (3, 1))])
def test_one_training_or_one_item_has_no_spread(shapes):
    value, interval = crossed_difference(*(np.full(shape, 2.0) for shape in shapes))
    assert (value, interval) == (0.0, EVERYTHING)


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [([[1.0]], [[1.0, 2.0]], "the same items"), ([[1.0, math.nan]], [[1.0, 2.0]], "finite")],
)
def test_tables_that_do_not_fit_are_refused(first, second, names):
    with pytest.raises(ValueError, match=names):
        crossed_difference(first, second)


def test_margins_add_as_variances_do():
    assert widened(1.0, Interval(-2, 4), Interval(-3, 5)) == (-4, 6)
