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


@pytest.mark.parametrize(("n", "m", "least"), [(1, 1, 0.0), (5, 20, 0.5), (200, 200, 0.96)])
def test_perfect_scores_leave_room_for_doubt(n, m, least):
    found = separation(np.ones(n), np.zeros(m))
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
    found = separation(inside, outside)
    low, high = min(found.value, centre - margin), max(found.value, centre + margin)
    assert found.interval == pytest.approx((max(0, low), min(1, high)))


@pytest.mark.parametrize("spread", [1 / 3, 1.0, 3.0])
@pytest.mark.parametrize("truth", [0.5, 0.9, 0.99])
def test_the_interval_covers_the_truth_as_often_as_it_says_whatever_the_spreads(truth, spread):
    rng, shift = np.random.default_rng(0), norm.ppf(truth) * np.hypot(1, spread)
    covered = 0
    for _ in range(400):
        interval = separation(rng.normal(shift, spread, 80), rng.normal(0, 1, 80)).interval
        covered += interval.low <= truth <= interval.high
    assert covered / 400 >= 0.92  # 0.95 less three standard errors


def test_a_confidence_that_is_none_is_refused():
    with pytest.raises(ValueError, match="confidence must lie"):
        separation([1.0], [0.0], confidence=0.0)
