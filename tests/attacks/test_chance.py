"""The tail of a null pair, against scipy and against chance itself."""

import math

import numpy as np
import pytest
from scipy import stats

from vestige.attacks.chance import LEVEL, TAIL, Chance


@pytest.mark.parametrize("number", [2, 7, 51, 400])
def test_the_e_value_is_the_f_distributions(number):
    scores = np.random.default_rng(number).exponential(0.4, number)
    chance = Chance.of(scores)
    ranked = np.sort(scores)[::-1]
    k = min(TAIL, number - 1)
    assert (chance.above, chance.base) == (k, ranked[k])
    excess = (ranked[:k] - ranked[k]).mean()
    for score in (ranked[k], ranked[0], ranked[0] + 3):
        tail = stats.f.sf((score - ranked[k]) / excess, 2, 2 * k)
        assert chance.expected(score) == pytest.approx(k * tail)
    assert chance.threshold >= ranked[0]
    assert chance.expected(chance.threshold) <= LEVEL + 1e-12


@pytest.mark.parametrize("number", [12, 300])
def test_another_null_pair_exceeds_the_threshold_once_in_twenty_times(number):
    random = np.random.default_rng(0)
    trials = 3000
    exceeded = beaten = 0
    for _ in range(trials):
        chance, other = Chance.of(random.exponential(1, number)), random.exponential(1, number)
        exceeded += other.max() > chance.threshold
        beaten += other.max() > chance.best
    assert 0.03 < exceeded / trials < LEVEL + 0.01
    assert 0.45 < beaten / trials < 0.55  # what the null's best alone would be worth


def test_too_few_phrases_give_their_best_and_no_e_value():
    assert Chance.of([]).threshold == 0.0
    assert Chance.of([2.5]).threshold == 2.5
    assert Chance.of([2.5]).expected(9.0) is None


def test_no_e_value_under_the_tail():
    chance = Chance.of([3.0, 2.0, 1.0])
    assert chance.expected(0.5) is None
    assert chance.expected(1.0) == 2


def test_equal_and_infinite_scores():
    equal = Chance.of([2.0, 2.0, 2.0])
    assert (equal.threshold, equal.expected(2.0), equal.expected(2.1)) == (2.0, 2.0, 0.0)
    infinite = Chance.of([math.inf, 2.0, 1.0])
    assert infinite.threshold == math.inf
    assert infinite.expected(math.inf) == 2.0
    assert Chance.of([math.inf, math.inf]) == Chance(math.inf, math.inf, 0, 0.0)
