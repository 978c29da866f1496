"""A fitted tail, against scipy's generalised Pareto distribution."""

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.pareto_tail import REFITS, ParetoTail


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.3])
def test_many_excesses_give_the_distributions_own_tail(shape):
    values = stats.genpareto.rvs(shape, scale=2.0, size=20_000, random_state=1)
    tail = ParetoTail.of(values, above=19_999)
    assert np.mean(tail.shapes) == pytest.approx(shape, abs=0.03)
    assert np.mean(tail.scales) == pytest.approx(2.0, rel=0.03)
    for quantile in (0.5, 0.9, 0.99):
        value = stats.genpareto.ppf(quantile, shape, scale=2.0)
        assert tail.survival(value) == pytest.approx(1 - quantile, rel=0.2)


def test_a_probability_is_the_mean_over_the_refits():
    tail = ParetoTail.of(np.random.default_rng(0).exponential(size=80), above=40)
    assert len(tail.shapes) == len(tail.scales) == REFITS
    value = tail.base + 3
    each = stats.genpareto.sf(value - tail.base, tail.shapes, scale=tail.scales)
    assert tail.survival(value) == pytest.approx(each.mean())


def test_fewer_excesses_make_a_heavier_tail():
    """What is not known of the shape is carried: the same quantiles, fewer of them."""
    grid = -np.log1p(-(np.arange(400) + 0.5) / 400)
    many, few = ParetoTail.of(grid, above=399), ParetoTail.of(grid[20::40], above=9)
    assert few.survival(12) > 3 * many.survival(12)


def test_a_tail_begins_at_one_and_falls():
    tail = ParetoTail.of([0.0, 1.0, 2.0, 3.0, 5.0, 8.0], above=5)
    assert tail.survival(tail.base) == tail.survival(-1.0) == 1.0
    values = [tail.survival(value) for value in range(0, 40, 4)]
    assert values == sorted(values, reverse=True)


def test_too_few_and_infinite_values_are_refused():
    with pytest.raises(ValueError, match="values must be at least 6"):
        ParetoTail.of([1.0, 2.0], above=5)
    with pytest.raises(ValueError, match="finite"):
        ParetoTail.of([1.0, 2.0, np.inf], above=2)
