"""Bounds on the share of used texts: their naive definition, and their coverage."""

import time
import tracemalloc
from math import comb

import numpy as np
import pytest
from scipy.stats import fisher_exact

from vestige.metrics.listed import SHARES, share_used


def probabilities_above(n, m, position):
    """[x] P(x of n are above the position-th largest of m), by counting orders of n + m values."""
    ways = [comb(x + position - 1, x) * comb(n - x + m - position, n - x) for x in range(n + 1)]
    return np.array(ways) / comb(n + m, n)


def naive(listed, reference, members):
    """Both bounds, by trying every number of used texts."""
    m, n = len(reference), len(listed)
    least, most = 0, n
    positions = {max(1, round(share * (m + 1))) for share in SHARES}
    error = 0.05 / len(positions)
    for position in positions:
        threshold = sorted(reference)[-position]
        above = sum(value > threshold for value in listed)
        hits = sum(value > threshold for value in members)
        low, high = [], []
        for used in range(n + 1):
            probabilities = probabilities_above(n - used, m, position)
            if probabilities[max(0, above - used) :].sum() > error:
                low.append(used)
            fewest = 0
            while probabilities[: fewest + 1].sum() < error / 2:
                fewest += 1
            remaining = min(above - fewest, used)
            if remaining < 0:
                continue
            table = [[remaining, used - remaining], [hits, len(members) - hits]]
            if fisher_exact(table, alternative="less").pvalue > error / 2:
                high.append(used)
        least, most = max(least, min(low)), min(most, max(high, default=0))
    return least, most


def listed_scores(rng, gain, used, unused):
    return np.concatenate([rng.normal(gain, 1, used), rng.normal(0, 1, unused)])


def test_both_bounds_equal_the_naive_definition():
    rng = np.random.default_rng(7)
    for n, m, h, gain in rng.integers([1, 5, 1, -2], [20, 80, 20, 4], (60, 4)).tolist():
        used = int(rng.integers(0, n + 1))
        listed = listed_scores(rng, gain, used, n - used)
        reference, members = rng.normal(0, 1, m), rng.normal(gain, 1, h)
        result = share_used(listed, reference, members)
        assert (result.at_least, result.at_most) == naive(listed, reference, members)


@pytest.mark.slow
def test_many_texts_need_little_time_and_memory():
    rng = np.random.default_rng(0)
    listed = listed_scores(rng, 3, 10_000, 90_000)
    reference, members = rng.normal(0, 1, 100_000), rng.normal(3, 1, 2_000)
    start = time.process_time()
    tracemalloc.start()
    result = share_used(listed, reference, members)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - start < 10
    assert peak < 50 * 2**20
    assert 9_200 < result.at_least <= 10_000 <= result.at_most < 10_500


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_each_bound_has_the_stated_coverage(share):
    rng = np.random.default_rng(int(10 * share))
    used, runs = round(40 * share), 120
    holds = np.zeros(2)
    for _ in range(runs):
        listed = listed_scores(rng, 1.5, used, 40 - used)
        result = share_used(listed, rng.normal(0, 1, 200), rng.normal(1.5, 1, 40))
        holds += [result.at_least <= used, result.at_most >= used]
    assert (holds / runs >= 0.95 - 2 * np.sqrt(0.05 * 0.95 / runs)).all()


def test_without_known_members_there_is_no_upper_bound():
    assert share_used([1.0, 2.0], [0.0] * 30).at_most is None


def test_ties_with_the_reference_bound_nothing():
    result = share_used([1.0] * 40, [1.0] * 100, [1.0] * 40)
    assert (result.at_least, result.at_most) == (0, 40)


def test_members_that_score_higher_than_used_texts_are_inconsistent():
    # All listed scores are between the thresholds; those of known members never are.
    result = share_used(np.linspace(0.8, 0.94, 40), np.linspace(0, 1, 200), [2.0] * 40)
    assert result.at_least > result.at_most
    assert not result.consistent
