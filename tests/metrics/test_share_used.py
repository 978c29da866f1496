"""Bounds on the share used: each end against its naive definition, and their coverage."""

import time
import tracemalloc
from math import comb

import numpy as np
import pytest
from scipy.stats import fisher_exact

from vestige.metrics.listed import SHARES, share_used


def chance_above(n, m, place):
    """[x] P(x of n are above the place-th largest of m), by counting orders of n + m values."""
    # x of the n stand before the place-th of the m: choose their places among the first and last.
    ways = [comb(x + place - 1, x) * comb(n - x + m - place, n - x) for x in range(n + 1)]
    return np.array(ways) / comb(n + m, n)


def naive(listed, never, known):
    """Both bounds, by going through every number of used texts."""
    m, n = len(never), len(listed)
    least, most = 0, n
    places = {max(1, round(share * (m + 1))) for share in SHARES}
    error = 0.05 / len(places)
    for place in places:
        threshold = sorted(never)[-place]
        above = sum(value > threshold for value in listed)
        hits = sum(value > threshold for value in known)
        low, high = [], []
        for used in range(n + 1):
            chance = chance_above(n - used, m, place)
            if chance[max(0, above - used) :].sum() > error:
                low.append(used)
            fewest = 0
            while chance[: fewest + 1].sum() < error / 2:
                fewest += 1
            left = min(above - fewest, used)
            if left < 0:
                continue
            table = [[left, used - left], [hits, len(known) - hits]]
            if fisher_exact(table, alternative="less").pvalue > error / 2:
                high.append(used)
        least, most = max(least, min(low)), min(most, max(high, default=0))
    return least, most


@pytest.mark.parametrize("seed", range(4))
def test_both_bounds_are_what_going_through_all_numbers_gives(seed):
    chance = np.random.default_rng(seed)
    used = 5 * seed
    listed = np.concatenate([chance.normal(2, 1, used), chance.normal(0, 1, 15 - used)])
    never, known = chance.normal(0, 1, 60), chance.normal(2, 1, 12)
    found = share_used(listed, never, known)
    assert (found.at_least, found.at_most) == naive(listed, never, known)


def test_both_bounds_are_naive_ones_wherever_used_texts_score():
    chance = np.random.default_rng(7)
    for n, m, h, gain in chance.integers([1, 5, 1, -2], [20, 80, 20, 4], (60, 4)).tolist():
        used = int(chance.integers(0, n + 1))
        listed = np.concatenate([chance.normal(gain, 1, used), chance.normal(0, 1, n - used)])
        never, known = chance.normal(0, 1, m), chance.normal(gain, 1, h)
        found = share_used(listed, never, known)
        assert (found.at_least, found.at_most) == naive(listed, never, known)


@pytest.mark.slow
def test_a_hundred_thousand_texts_take_a_moment_and_no_table():
    chance = np.random.default_rng(0)
    listed = np.concatenate([chance.normal(3, 1, 10_000), chance.normal(0, 1, 90_000)])
    never, known = chance.normal(0, 1, 100_000), chance.normal(3, 1, 2_000)
    began = time.process_time()
    tracemalloc.start()
    found = share_used(listed, never, known)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - began < 10
    assert peak < 50 * 2**20
    assert 9_200 < found.at_least <= 10_000 <= found.at_most < 10_500


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_each_bound_holds_as_often_as_it_says(share):
    chance = np.random.default_rng(int(10 * share))
    used, runs = round(40 * share), 120
    holds = np.zeros(2)
    for _ in range(runs):
        listed = np.concatenate([chance.normal(1.5, 1, used), chance.normal(0, 1, 40 - used)])
        found = share_used(listed, chance.normal(0, 1, 200), chance.normal(1.5, 1, 40))
        holds += [found.at_least <= used, found.at_most >= used]
    assert (holds / runs >= 0.95 - 2 * np.sqrt(0.05 * 0.95 / runs)).all()


def test_strong_scores_bound_from_both_sides():
    chance = np.random.default_rng(5)
    listed = np.concatenate([chance.normal(6, 1, 20), chance.normal(0, 1, 20)])
    found = share_used(listed, chance.normal(0, 1, 600), chance.normal(6, 1, 40))
    assert 17 <= found.at_least <= 20 <= found.at_most <= 25


def test_without_known_ones_there_is_no_upper_bound():
    assert share_used([1.0, 2.0], [0.0] * 30).at_most is None


def test_ties_with_the_reference_prove_nothing():
    found = share_used([1.0] * 40, [1.0] * 100, [1.0] * 40)
    assert (found.at_least, found.at_most) == (0, 40)


def test_known_ones_that_score_higher_than_the_used_contradict_the_lower_bound():
    never = np.linspace(0, 1, 200)
    # All of the listed stand between the thresholds, where the known ones never do.
    listed = np.linspace(0.8, 0.94, 40)
    found = share_used(listed, never, [2.0] * 40)
    assert found.at_least > found.at_most
    assert not found.consistent
