"""Lower bounds on epsilon: the paper's algorithm, jax_privacy, and simulated mechanisms."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from vestige.metrics.epsilon import any_reached, nested_p_value, one_run_epsilon, one_run_p_value
from vestige.metrics.f_dp_epsilon import f_dp_epsilon, threshold_epsilon

each_bound = pytest.mark.parametrize("bound", [one_run_epsilon, threshold_epsilon])


def naive_p_value(canaries, guesses, correct, epsilon, delta):
    """The algorithm of the paper's appendix, with a loop for each sum."""
    accuracy = 1 / (1 + math.exp(-epsilon))

    def at_least(v):
        return sum(binom.pmf(k, guesses, accuracy) for k in range(max(v, 0), guesses + 1))

    steepest = max(
        ((at_least(correct - i) - at_least(correct)) / i for i in range(1, correct + 1)), default=0
    )
    return min(1.0, at_least(correct) + 2 * canaries * delta * steepest)


def coins(rng, canaries):
    heads = rng.random(canaries) < 0.5
    heads[0], heads[1] = True, False
    return heads


def gaussian_epsilon(sigma, delta):
    grid = np.linspace(0, 40, 400_001)
    log_first = norm.logcdf(0.5 / sigma - grid * sigma)
    log_second = grid + norm.logcdf(-0.5 / sigma - grid * sigma)
    return grid[np.argmax(np.exp(log_first) - np.exp(log_second) <= delta)]


@pytest.mark.slow
@given(st.integers(1, 40), st.data())
@settings(max_examples=60)
def test_the_p_value_equals_the_papers(canaries, data):
    guesses = data.draw(st.integers(1, canaries))
    correct = data.draw(st.integers(0, guesses))
    epsilon = data.draw(st.floats(0, 8))
    delta = data.draw(st.sampled_from([0.0, 1e-9, 1e-5, 1e-2, 0.3]))
    result = one_run_p_value(canaries, guesses, correct, epsilon=epsilon, delta=delta)
    expected = naive_p_value(canaries, guesses, correct, epsilon, delta)
    assert result == pytest.approx(expected, abs=1e-9)


def test_a_larger_delta_lowers_the_bound():
    """Implementations that leave delta out of the bound, or m out of its factor, report more."""
    bounds = [
        one_run_epsilon(
            np.ones(50) + np.arange(50), -np.arange(50), delta=delta, guesses=[(25, 25)]
        ).epsilon
        for delta in (0.0, 1e-5, 1e-3, 1e-2, 0.1)
    ]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] == pytest.approx(math.log(0.05 ** (1 / 50) / (1 - 0.05 ** (1 / 50))), abs=1e-6)
    assert bounds[0] - bounds[3] > 0.8
    assert bounds[-1] == 0


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("seed", range(20))
def test_bounds_at_a_fixed_threshold_equal_those_of_jax_privacy(peer, seed):
    auditing = peer("jax_privacy", "auditing.py")  # a module that does not import jax
    rng = np.random.default_rng(seed)
    members = rng.normal(rng.uniform(0, 4), 1, rng.integers(20, 400))
    others = rng.normal(0, 1, rng.integers(20, 400))
    threshold, delta = float(rng.uniform(0, 2)), float(10.0 ** -rng.integers(2, 8))
    guesses = [(int((members >= threshold).sum() + (others >= threshold).sum()), 0)]
    auditor, fixed = (
        auditing.CanaryScoreAuditor(members, others),
        auditing.Explicit(threshold),
    )
    for result, expected, tolerance in (
        (
            one_run_epsilon(members, others, delta=delta, guesses=guesses),
            auditor.epsilon_one_run(0.05, delta, threshold_strategy=fixed),
            1e-5,
        ),
        (
            threshold_epsilon(members, others, delta=delta, threshold=threshold),
            auditor.epsilon_clopper_pearson(0.05, delta, False, threshold_strategy=fixed),
            1e-9,
        ),
        (
            f_dp_epsilon(members, others, delta=delta, guesses=guesses),
            auditor.epsilon_one_run_fdp(0.05, delta, threshold_strategy=fixed),
            3e-3,
        ),
    ):
        assert result.epsilon == pytest.approx(expected, abs=tolerance)


@pytest.mark.slow
@each_bound
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_random_scores_give_a_positive_bound_at_most_at_the_stated_rate(
    bound, confidence, allowed_exceptions
):
    rng, positive = np.random.default_rng(0), 0
    for _ in range(200):
        heads, scores = coins(rng, 100), rng.normal(size=100)
        result = bound(scores[heads], scores[~heads], delta=1e-5, confidence=confidence)
        positive += result.epsilon > 0
    assert positive <= allowed_exceptions(200, 1 - confidence)


@pytest.mark.slow
@each_bound
@pytest.mark.parametrize(("sigma", "delta"), [(1.0, 1e-5), (0.5, 1e-2), (2.0, 0.05)])
def test_bounds_of_a_gaussian_mechanism_exceed_epsilon_at_most_at_the_stated_rate(
    bound, sigma, delta, allowed_exceptions
):
    truth, rng = gaussian_epsilon(sigma, delta), np.random.default_rng(1)
    above = 0
    for _ in range(100):
        heads = coins(rng, 500)
        scores = heads + rng.normal(0, sigma, 500)
        above += bound(scores[heads], scores[~heads], delta=delta, confidence=0.9).epsilon > truth
    assert above <= allowed_exceptions(100, 0.1)


def test_bounds_of_randomised_response_exceed_epsilon_at_nearly_the_stated_rate(allowed_exceptions):
    """The bound is tight for one fixed number of guesses, delta 0, and independent guesses."""
    rng, truth, above = np.random.default_rng(2), 1.0, 0
    for _ in range(1000):
        heads = coins(rng, 200)
        honest = rng.random(200) < math.exp(truth) / (1 + math.exp(truth))
        scores = np.where(heads == honest, 1.0, 0.0) + rng.random(200) / 2
        result = one_run_epsilon(
            scores[heads], scores[~heads], delta=0.0, confidence=0.8, guesses=[(20, 20)]
        )
        above += result.epsilon > truth
    assert 100 < above <= allowed_exceptions(1000, 0.2)


@pytest.mark.slow
@each_bound
@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from([0.0, 1e-6, 1e-2]))
@settings(max_examples=25)
def test_only_perfect_scores_reach_the_ceiling(bound, n, m, delta):
    perfect = bound(np.arange(n) + 1.0, -np.arange(m) - 0.0, delta=delta)
    assert perfect.epsilon == perfect.ceiling
    rng = np.random.default_rng(n * 100 + m)
    other = bound(rng.normal(1, 1, n), rng.normal(0, 1, m), delta=delta)
    assert other.ceiling == perfect.ceiling
    assert 0 <= other.epsilon <= other.ceiling


@each_bound
def test_more_canaries_raise_the_ceiling_and_more_confidence_lowers_the_bound(bound):
    ceilings = [bound(np.ones(n), np.zeros(n), delta=1e-6).ceiling for n in (5, 50, 500)]
    assert ceilings == sorted(ceilings)
    assert ceilings[-1] > ceilings[0] + 1
    rng = np.random.default_rng(3)
    members, others = rng.normal(2, 1, 100), rng.normal(0, 1, 100)
    bounds = [
        bound(members, others, delta=1e-6, confidence=confidence).epsilon
        for confidence in (0.5, 0.9, 0.99)
    ]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1] > 0


@each_bound
@given(st.integers(0, 10_000))
@settings(max_examples=20)
def test_the_bound_depends_only_on_the_ranks_of_scores(bound, seed):
    rng = np.random.default_rng(seed)
    members, others = rng.normal(1, 1, 40), rng.normal(0, 1, 30)
    epsilon = bound(members, others, delta=1e-5).epsilon
    assert bound(np.exp(members), np.exp(others), delta=1e-5).epsilon == epsilon
    assert bound(rng.permutation(members), np.sort(others), delta=1e-5).epsilon == epsilon


@pytest.mark.parametrize("bound", [one_run_epsilon, threshold_epsilon, f_dp_epsilon])
@pytest.mark.parametrize("scores", [np.zeros(500), np.repeat([0.0, 1.0], 100)], ids=["one", "two"])
def test_ties_never_raise_the_bound(bound, scores):
    delta = 1e-5 if bound is f_dp_epsilon else 0.0
    assert bound(scores, scores, delta=delta, confidence=0.5).epsilon == 0


def test_more_numbers_of_guesses_lower_the_bound_and_are_counted():
    scores = np.arange(100.0, 200), np.arange(100.0)
    one = one_run_epsilon(*scores, delta=1e-5, guesses=[(75, 75)])
    two = one_run_epsilon(*scores, delta=1e-5, guesses=[(75, 75), (10, 0)])
    assert (one.choices, two.choices) == (1, 2)
    assert two.epsilon < one.epsilon
    assert one_run_epsilon(*scores, delta=1e-5).choices == 4


@each_bound
@pytest.mark.parametrize(
    ("members", "others", "change", "message"),
    [
        ([], [1.0], {}, "members must be an array"),
        ([1.0], [], {}, "others must be an array"),
        ([[1.0]], [1.0], {}, "members must be an array"),
        ([math.nan], [1.0], {}, "members must be finite"),
        ([1.0], [math.inf], {}, "others must be finite"),
        ([1.0], [1.0], {"delta": 1.0}, "delta must lie"),
        ([1.0], [1.0], {"delta": -0.1}, "delta must lie"),
        ([1.0], [1.0], {"confidence": 1.0}, "confidence must lie"),
    ],
)
def test_invalid_scores_and_settings_are_refused(bound, members, others, change, message):
    with pytest.raises(ValueError, match=message):
        bound(members, others, **{"delta": 0.0} | change)


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_the_joint_probability_of_nested_guesses_equals_enumeration(epsilon):
    thresholds = [(2, 3), (4, 4), (8, 7), (12, 9)]  # more right guesses than guesses: never
    accuracy, expected = 1 / (1 + math.exp(-epsilon)), 0.0
    for row in itertools.product((0, 1), repeat=12):
        if any(sum(row[:guesses]) >= least for guesses, least in thresholds):
            expected += accuracy ** sum(row) * (1 - accuracy) ** (len(row) - sum(row))
    result = any_reached(16, thresholds, epsilon=epsilon, delta=0.0)
    assert result == pytest.approx(expected)


@given(st.integers(1, 60), st.data())
@settings(max_examples=30)
def test_one_number_of_guesses_has_the_papers_p_value(guesses, data):
    correct = data.draw(st.integers(0, guesses))
    epsilon, delta = data.draw(st.floats(0, 4)), data.draw(st.sampled_from([0.0, 1e-5, 1e-3]))
    options = {"epsilon": epsilon, "delta": delta}
    assert nested_p_value(60, ((guesses, correct),), **options) == pytest.approx(
        one_run_p_value(60, guesses, correct, **options), rel=1e-6, abs=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_sharing_the_level_raises_the_bound_and_keeps_the_stated_rate(delta, allowed_exceptions):
    """For a mechanism that reveals a coin with probability delta."""
    rng, truth, above, gain = np.random.default_rng(3), 1.0, 0, []
    for run in range(150):
        heads, certainty = coins(rng, 200), rng.random(200)
        honest = (rng.random(200) < math.e / (1 + math.e)) | (rng.random(200) < delta)
        scores = np.where(heads == honest, 1 + certainty, -1 - certainty)
        sides = scores[heads], scores[~heads]
        shared = one_run_epsilon(*sides, delta=delta).epsilon
        above += shared > truth
        if run < 15:
            each = [
                one_run_epsilon(*sides, delta=delta, confidence=0.9875, guesses=[(n, n)]).epsilon
                for n in (12, 25, 50, 75)
            ]
            gain.append(shared - max(each))
    assert above <= allowed_exceptions(150, 0.05)
    assert np.mean(gain) > 0.02
    assert min(gain) > -1e-6
