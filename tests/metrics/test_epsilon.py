"""The naive p-value is the algorithm that the paper lists in its appendix, a loop for a sum."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from vestige.metrics.epsilon import any_reached, nested_p_value, one_run_epsilon, one_run_p_value
from vestige.metrics.f_dp_epsilon import f_dp_epsilon, threshold_epsilon

BOUNDS = [one_run_epsilon, threshold_epsilon]


def naive_p_value(canaries, guesses, correct, epsilon, delta):
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
@settings(max_examples=60, deadline=None)
def test_the_p_value_is_the_papers(canaries, data):
    guesses = data.draw(st.integers(1, canaries))
    correct = data.draw(st.integers(0, guesses))
    epsilon = data.draw(st.floats(0, 8))
    delta = data.draw(st.sampled_from([0.0, 1e-9, 1e-5, 1e-2, 0.3]))
    ours = one_run_p_value(canaries, guesses, correct, epsilon=epsilon, delta=delta)
    assert ours == pytest.approx(
        naive_p_value(canaries, guesses, correct, epsilon, delta), abs=1e-9
    )


def test_delta_costs_what_the_theorem_says():
    """Peers that leave delta out of the bound, or m out of its factor, report too much."""
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
def test_bounds_equal_those_of_jax_privacy_at_a_fixed_threshold(at_a_threshold, seed):
    drawn = at_a_threshold(seed)
    scores, delta, theirs, fixed = (drawn[n] for n in ("scores", "delta", "auditor", "fixed"))
    guesses = [(drawn["highest"], 0)]
    for ours, expected, digits in (
        (
            one_run_epsilon(*scores, delta=delta, guesses=guesses),
            theirs.epsilon_one_run(0.05, delta, threshold_strategy=fixed),
            1e-5,
        ),
        (
            threshold_epsilon(*scores, delta=delta, threshold=drawn["threshold"]),
            theirs.epsilon_clopper_pearson(0.05, delta, False, threshold_strategy=fixed),
            1e-9,
        ),
        (
            f_dp_epsilon(*scores, delta=delta, guesses=guesses),
            theirs.epsilon_one_run_fdp(0.05, delta, threshold_strategy=fixed),
            3e-3,
        ),
    ):
        assert ours.epsilon == pytest.approx(expected, abs=digits)


@pytest.mark.slow
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_scores_that_tell_nothing_prove_nothing_but_at_the_stated_rate(
    bound, confidence, allowed_exceptions
):
    rng = np.random.default_rng(0)
    proven = 0
    for _ in range(200):
        heads, scores = coins(rng, 100), rng.normal(size=100)
        found = bound(scores[heads], scores[~heads], delta=1e-5, confidence=confidence)
        proven += found.epsilon > 0
    assert proven <= allowed_exceptions(200, 1 - confidence)


@pytest.mark.slow
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(("sigma", "delta"), [(1.0, 1e-5), (0.5, 1e-2), (2.0, 0.05)])
def test_a_mechanism_of_known_epsilon_is_not_accused_but_at_the_stated_rate(
    bound, sigma, delta, allowed_exceptions
):
    truth, rng = gaussian_epsilon(sigma, delta), np.random.default_rng(1)
    above = 0
    for _ in range(100):
        heads = coins(rng, 500)
        scores = heads + rng.normal(0, sigma, 500)
        above += bound(scores[heads], scores[~heads], delta=delta, confidence=0.9).epsilon > truth
    assert above <= allowed_exceptions(100, 0.1)


def test_randomised_response_is_accused_at_nearly_the_stated_rate(allowed_exceptions):
    """The bound is tight for it: one fixed number of guesses, delta 0, every guess a coin."""
    rng, truth, above = np.random.default_rng(2), 1.0, 0
    for _ in range(1000):
        heads = coins(rng, 200)
        honest = rng.random(200) < math.exp(truth) / (1 + math.exp(truth))
        scores = np.where(heads == honest, 1.0, 0.0) + rng.random(200) / 2
        found = one_run_epsilon(
            scores[heads], scores[~heads], delta=0.0, confidence=0.8, guesses=[(20, 20)]
        )
        above += found.epsilon > truth
    assert 100 < above <= allowed_exceptions(1000, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("bound", BOUNDS)
@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from([0.0, 1e-6, 1e-2]))
@settings(max_examples=25, deadline=None)
def test_perfect_scores_reach_the_ceiling_and_no_others_pass_it(bound, n, m, delta):
    perfect = bound(np.arange(n) + 1.0, -np.arange(m) - 0.0, delta=delta)
    assert perfect.epsilon == perfect.ceiling
    rng = np.random.default_rng(n * 100 + m)
    other = bound(rng.normal(1, 1, n), rng.normal(0, 1, m), delta=delta)
    assert other.ceiling == perfect.ceiling
    assert 0 <= other.epsilon <= other.ceiling


@pytest.mark.parametrize("bound", BOUNDS)
def test_more_canaries_raise_the_ceiling_and_more_confidence_lowers_the_bound(bound):
    ceilings = [bound(np.ones(n), np.zeros(n), delta=1e-6).ceiling for n in (5, 50, 500)]
    assert ceilings == sorted(ceilings)
    assert ceilings[-1] > ceilings[0] + 1
    rng = np.random.default_rng(3)
    inside, outside = rng.normal(2, 1, 100), rng.normal(0, 1, 100)
    bounds = [
        bound(inside, outside, delta=1e-6, confidence=confidence).epsilon
        for confidence in (0.5, 0.9, 0.99)
    ]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1] > 0


@pytest.mark.parametrize("bound", BOUNDS)
@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_only_the_order_of_scores_matters_and_not_that_of_canaries(bound, seed):
    rng = np.random.default_rng(seed)
    inside, outside = rng.normal(1, 1, 40), rng.normal(0, 1, 30)
    epsilon = bound(inside, outside, delta=1e-5).epsilon
    assert bound(np.exp(inside), np.exp(outside), delta=1e-5).epsilon == epsilon
    assert bound(rng.permutation(inside), np.sort(outside), delta=1e-5).epsilon == epsilon


@pytest.mark.parametrize("bound", [*BOUNDS, f_dp_epsilon])
@pytest.mark.parametrize("scores", [np.zeros(500), np.repeat([0.0, 1.0], 100)], ids=["one", "two"])
def test_ties_are_never_in_the_auditors_favour(bound, scores):
    delta = 1e-5 if bound is f_dp_epsilon else 0.0
    assert bound(scores, scores, delta=delta, confidence=0.5).epsilon == 0


def test_more_choices_cost_and_are_counted():
    inside, outside = np.arange(100.0, 200), np.arange(100.0)
    one = one_run_epsilon(inside, outside, delta=1e-5, guesses=[(75, 75)])
    two = one_run_epsilon(inside, outside, delta=1e-5, guesses=[(75, 75), (10, 0)])
    assert (one.choices, two.choices) == (1, 2)
    assert two.epsilon < one.epsilon
    assert one_run_epsilon(inside, outside, delta=1e-5).choices == 4


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(
    ("inside", "outside", "change", "message"),
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
def test_scores_and_claims_that_bound_nothing_are_refused(bound, inside, outside, change, message):
    with pytest.raises(ValueError, match=message):
        bound(inside, outside, **{"delta": 0.0} | change)


THRESHOLDS = [(2, 3), (4, 4), (8, 7), (12, 9)]  # more than all is never reached


def naive_joint(thresholds, accuracy):
    """Over every row of right and wrong guesses."""
    found = 0.0
    for row in itertools.product((0, 1), repeat=thresholds[-1][0]):
        if any(sum(row[:guesses]) >= first for guesses, first in thresholds):
            found += accuracy ** sum(row) * (1 - accuracy) ** (len(row) - sum(row))
    return found


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_numbers_of_guesses_that_hold_one_another_are_refuted_together(epsilon):
    ours = any_reached(16, THRESHOLDS, epsilon=epsilon, delta=0.0)
    assert ours == pytest.approx(naive_joint(THRESHOLDS, 1 / (1 + math.exp(-epsilon))))


@given(st.integers(1, 60), st.data())
@settings(max_examples=30, deadline=None)
def test_one_number_of_guesses_has_the_papers_p_value(guesses, data):
    right = data.draw(st.integers(0, guesses))
    epsilon, delta = data.draw(st.floats(0, 4)), data.draw(st.sampled_from([0.0, 1e-5, 1e-3]))
    given_ = {"epsilon": epsilon, "delta": delta}
    assert nested_p_value(60, ((guesses, right),), **given_) == pytest.approx(
        one_run_p_value(60, guesses, right, **given_), rel=1e-6, abs=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_sharing_the_level_gains_and_is_right_about_a_mechanism_that_tells_with_delta(
    delta, allowed_exceptions
):
    rng, truth, above, gain = np.random.default_rng(3), 1.0, 0, []
    for run in range(150):
        heads, sure = coins(rng, 200), rng.random(200)
        honest = (rng.random(200) < math.e / (1 + math.e)) | (rng.random(200) < delta)
        scores = np.where(heads == honest, 1 + sure, -1 - sure)
        sides = scores[heads], scores[~heads]
        found = one_run_epsilon(*sides, delta=delta).epsilon
        above += found > truth
        if run < 15:
            each = [
                one_run_epsilon(*sides, delta=delta, confidence=0.9875, guesses=[(n, n)]).epsilon
                for n in (12, 25, 50, 75)
            ]
            gain.append(found - max(each))
    assert above <= allowed_exceptions(150, 0.05)
    assert np.mean(gain) > 0.02
    assert min(gain) > -1e-6
