"""E-values and p-values of null searches, compared with counts and simulated."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.audits.update.nulls import LEVEL, NEEDED, NullScores, joint_p_value

SCORES = st.sampled_from([0.5, 1.0, 1.5, 2.0, math.inf])  # few values, so that ties are common
SEARCH = st.lists(SCORES, max_size=4)

TAILS = {
    "half-normal": lambda random, n: np.abs(random.standard_normal(n)),
    "exponential": lambda random, n: random.exponential(size=n),
    "lognormal": lambda random, n: random.lognormal(size=n),
    "Weibull 0.6": lambda random, n: random.weibull(0.6, size=n),
    "Pareto 3": lambda random, n: random.pareto(3, size=n),
    "none or few": lambda random, n: random.random(random.integers(0, 3)),
    "ties": lambda random, n: random.integers(0, 4, n).astype(float),
}


@given(st.lists(SEARCH, min_size=1, max_size=25), SCORES)
def test_e_values_are_counts_and_leaks_exceed_the_threshold(searches, score):
    nulls = NullScores.of(searches)
    phrases = sum(other >= score for search in searches for other in search)
    assert nulls.e_value(score) == (1 + phrases) / (1 + len(searches))
    assert nulls.reached(score) == sum(max(s, default=-1) >= score for s in searches)
    if len(searches) < NEEDED:
        assert (nulls.threshold, nulls.found(score)) == (None, None)
    else:
        assert nulls.found(score) == (score > nulls.threshold) == (nulls.e_value(score) <= LEVEL)


@pytest.mark.parametrize("nulls", [1, 18, 19])
def test_a_leak_needs_nineteen_null_searches(nulls):
    scores, enough = NullScores.of([[]] * nulls), nulls == NEEDED
    assert (scores.found(100.0), scores.best) == (True if enough else None, None)
    assert scores.threshold == (-math.inf if enough else None)
    assert scores.e_value(100.0) == 1 / (nulls + 1)


@pytest.mark.parametrize(
    ("searches", "message"),
    [([], "searches must hold one null search"), ([[1.0, math.nan]], "got NaN")],
)
def test_missing_searches_and_nan_scores_are_refused(searches, message):
    with pytest.raises(ValueError, match=message):
        NullScores.of(searches)


@pytest.mark.slow
@given(st.lists(SEARCH, min_size=20, max_size=41))
def test_at_most_one_of_twenty_exchangeable_searches_is_a_leak(searches):
    """Each search in turn is the update and the others are its null searches."""
    rejected = 0
    for index, update in enumerate(searches):
        nulls = NullScores.of(searches[:index] + searches[index + 1 :])
        rejected += any(nulls.found(score) for score in update)
    assert rejected <= LEVEL * len(searches)


@pytest.mark.slow
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("nulls", [4, 19])
@pytest.mark.parametrize("phrases", [20, 100])
def test_the_error_rate_of_exchangeable_searches_is_the_stated_level(tail, nulls, phrases):
    random, trials = np.random.default_rng([nulls, phrases]), 400
    best = rejected = 0
    for _ in range(trials):
        *others, update = (TAILS[tail](random, phrases) for _ in range(nulls + 1))
        scores = NullScores.of(others)
        best += any(scores.e_value(score) <= scores.least for score in update)
        rejected += any(bool(scores.found(score)) for score in update)
    for number, level in ((best, 1 / (nulls + 1)), (rejected, LEVEL)):
        assert number / trials < level + 4 * math.sqrt(level * (1 - level) / trials)


@pytest.mark.slow
@pytest.mark.parametrize("scores", [1, 4, 30])
def test_the_joint_p_value_holds_its_level_for_any_number_of_scores(scores):
    """Dependent scores of different scales; each model in turn is the update."""
    random, p_values = np.random.default_rng(scores), []
    for _ in range(40):
        common = random.standard_normal((20, 1))
        table = (common + random.standard_t(3, (20, scores))) * random.lognormal(size=scores)
        for index in range(20):
            p_values.append(joint_p_value(table[index], np.delete(table, index, axis=0)))
    assert np.mean([p <= LEVEL for p in p_values]) <= LEVEL
    table[0, -1] += 100 * table[:, -1].std()
    assert joint_p_value(table[0], table[1:]) == LEVEL
