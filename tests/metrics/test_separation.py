import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from vestige.metrics.separation import separation

scores = st.lists(st.integers(-5, 5), min_size=1, max_size=20)


@given(scores, scores)
def test_separation_is_the_share_of_pairs_in_order(inside, outside):
    pairs = [(x > y) + (x == y) / 2 for x in inside for y in outside]
    found = separation(inside, outside)
    assert found.value == pytest.approx(np.mean(pairs))
    assert 0 <= found.interval.low <= found.value <= found.interval.high <= 1


@given(scores, scores)
def test_members_and_others_mirror_each_other(inside, outside):
    one, other = separation(inside, outside), separation(outside, inside)
    assert other.value == pytest.approx(1 - one.value)
    assert other.interval.low == pytest.approx(1 - one.interval.high)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 20), (200, 200)])
def test_perfect_scores_leave_room_for_doubt(n, m):
    found = separation(np.ones(n), np.zeros(m))
    assert found.value == found.interval.high == 1
    assert 0.2 < found.interval.low < 1


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(shift):
    rng, truth = np.random.default_rng(0), norm.cdf(shift / np.sqrt(2))
    covered = 0
    for _ in range(400):
        interval = separation(rng.normal(shift, 1, 30), rng.normal(0, 1, 40)).interval
        covered += interval.low <= truth <= interval.high
    assert 0.92 <= covered / 400 <= 0.985


def test_a_confidence_that_is_none_is_refused():
    with pytest.raises(ValueError, match="confidence must lie"):
        separation([1.0], [0.0], confidence=0.0)
