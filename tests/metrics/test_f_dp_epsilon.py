"""Bounds from trade-off curves: the paper's listing, and simulations of known mechanisms."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from vestige.metrics.epsilon import one_run_epsilon
from vestige.metrics.estimates import clopper_pearson
from vestige.metrics.f_dp_epsilon import (
    GAUSSIAN,
    Curves,
    curve_refuted,
    f_dp_epsilon,
    threshold_epsilon,
)
from vestige.privacy.accounting import Mechanism


def gaussian_epsilon(mu, delta):
    """Balle and Wang (2018), "Improving the Gaussian Mechanism", Theorem 8, in logarithms."""

    def excess(epsilon):
        first = norm.logcdf(mu / 2 - epsilon / mu)
        second = epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
        return first + np.log1p(-np.exp(min(second - first, -1e-16))) - np.log(delta)

    return brentq(excess, 0, 100, xtol=1e-10) if excess(0) > 0 else 0.0


def naive_refuted(canaries, guesses, correct, mu, significance):
    """The paper's recursion, from the last value to the first."""
    r, h = np.zeros(correct + 1), np.zeros(correct + 1)
    r[correct] = significance * correct / canaries
    h[correct] = significance * (guesses - correct) / canaries
    for i in range(correct - 1, -1, -1):
        bound = norm.cdf(norm.ppf(1 - (1 - r[i + 1])) - mu)
        h[i] = max(h[i + 1], bound)
        r[i] = r[i + 1] + i / (guesses - i) * (h[i] - h[i + 1])
    return r[0] + h[0] > guesses / canaries


def gaussian_scores(rng, canaries, mu):
    """Scores of included and of excluded canaries: a fair coin times mu, plus unit noise."""
    heads = rng.random(canaries) < 0.5
    heads[0], heads[1] = True, False
    scores = heads * mu + rng.normal(size=canaries)
    return scores[heads], scores[~heads]


@given(st.integers(2, 60), st.data())
@settings(max_examples=80)
def test_a_curve_is_refuted_if_the_papers_listing_refutes_it(canaries, data):
    guesses = data.draw(st.integers(1, canaries))
    correct = data.draw(st.integers(0, guesses - 1))
    mu = data.draw(st.floats(0, 3))
    significance = data.draw(st.sampled_from([0.5, 0.05, 0.01]))
    result = curve_refuted(
        canaries, guesses, correct, curve=GAUSSIAN.curve(mu), significance=significance
    )
    assert result == naive_refuted(canaries, guesses, correct, mu, significance)


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.5, 0.95])
@pytest.mark.parametrize(("mu", "canaries"), [(0.0, 100), (0.3, 400), (0.92, 1000), (3.0, 200)])
def test_bounds_of_a_gaussian_mechanism_exceed_epsilon_at_most_at_the_stated_rate(
    mu, canaries, confidence, allowed_exceptions
):
    rng, truth, above = np.random.default_rng(4), GAUSSIAN.epsilon(mu, 1e-5), 0
    for _ in range(500):
        scores = gaussian_scores(rng, canaries, mu)
        above += f_dp_epsilon(*scores, delta=1e-5, confidence=confidence).epsilon > truth
    assert above <= allowed_exceptions(500, 1 - confidence)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_bounds_of_randomised_response_exceed_epsilon_at_most_at_the_stated_rate(
    epsilon, allowed_exceptions
):
    """Its curve touches the Gaussian one, and is nowhere below it."""
    accuracy = 1 / (1 + math.exp(-epsilon))
    mu = 2 * norm.ppf(accuracy)
    levels = np.linspace(1e-4, 1 - 1e-4, 999)
    curve = np.maximum(1 - math.exp(epsilon) * levels, math.exp(-epsilon) * (1 - levels))
    assert (curve >= norm.cdf(norm.ppf(1 - levels) - mu) - 1e-9).all()
    rng, above = np.random.default_rng(6), 0
    for _ in range(2000):
        heads = rng.random(200) < 0.5
        honest = rng.random(200) < accuracy
        scores = np.where(heads == honest, 1.0, 0.0) + rng.random(200) / 2
        bound = f_dp_epsilon(scores[heads], scores[~heads], delta=1e-5)
        above += bound.epsilon > GAUSSIAN.epsilon(mu, 1e-5)
    assert above <= allowed_exceptions(2000, 0.05)


@pytest.mark.slow
def test_bounds_of_a_gaussian_mechanism_are_higher_than_those_without_assumption():
    rng, gaussian, general = np.random.default_rng(7), [], []
    for _ in range(20):
        scores = gaussian_scores(rng, 1000, 0.92)
        gaussian.append(f_dp_epsilon(*scores, delta=1e-5).epsilon)
        general.append(one_run_epsilon(*scores, delta=1e-5).epsilon)
    assert np.mean(gaussian) > 1.3 * np.mean(general)


@pytest.mark.parametrize("mu", [0.1, 0.92, 4.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_epsilon_of_a_gaussian_curve_equals_the_closed_form(mu, delta):
    assert GAUSSIAN.epsilon(mu, delta) == pytest.approx(gaussian_epsilon(mu, delta), abs=1e-6)


def test_training_on_full_batches_is_a_gaussian_mechanism():
    family = Curves(1.0, 16)
    for y in (0.01, 0.3, 0.9):
        assert family.curve(0.5)(y) == pytest.approx(GAUSSIAN.curve(2.0)(y))
    assert family.epsilon(0.5, 1e-5) == pytest.approx(GAUSSIAN.epsilon(2.0, 1e-5))


@pytest.mark.slow
def test_a_subsampled_curve_equals_its_closed_form():
    """The convex curve below both directions of (1 - q) N(0, 1) + q N(1 / sigma, 1), N(0, 1)."""
    q, sigma = 0.2, 0.8
    curve = Curves(q, 1).curve(1 / sigma)
    cuts = np.linspace(-6, 8, 5001)
    without, within = norm.sf(cuts), (1 - q) * norm.sf(cuts) + q * norm.sf(cuts - 1 / sigma)
    levels = np.concatenate([without, 1 - within])
    missed = np.concatenate([1 - within, without])
    slopes = -np.geomspace(1e-3, 1e3, 4001)[:, None]
    conjugate = (missed - slopes * levels).min(axis=1)
    for level in (0.01, 0.1, 0.3, 0.5, 0.8):
        expected = (conjugate + slopes[:, 0] * level).max()
        assert curve(1 - level) == pytest.approx(expected, abs=1e-3)
        assert curve(1 - level) <= expected + 1e-4


@pytest.mark.slow
def test_epsilon_of_a_subsampled_curve_equals_that_of_the_accountant():
    family = Curves(0.05, 100)
    spent = Mechanism(noise_multiplier=1.0, sample_rate=0.05, steps=100).epsilon(1e-5)
    assert family.epsilon(1.0, 1e-5) == pytest.approx(spent, abs=0.02)


@pytest.mark.slow
def test_bounds_from_independent_scores_are_tight_and_valid(allowed_exceptions):
    rng, truth, bounds = np.random.default_rng(8), GAUSSIAN.epsilon(1.84, 1e-5), []
    for _ in range(300):
        heads = rng.random(1000) < 0.5
        scores = heads * 1.84 + rng.normal(size=1000)
        sides = scores[heads], scores[~heads]
        bounds.append(threshold_epsilon(*sides, delta=1e-5, family=GAUSSIAN).epsilon)
    assert sum(bound > truth for bound in bounds) <= allowed_exceptions(300, 0.05)
    assert np.mean(bounds) > 0.7 * truth


@pytest.mark.parametrize("flipped", [False, True])
def test_rates_above_one_threshold_refute_the_mu_of_their_quantiles(flipped):
    members, others = np.repeat([1.0, 0.0], [90, 10]), np.repeat([1.0, 0.0], [20, 80])
    sides, threshold = ((-others, -members), -0.5) if flipped else ((members, others), 0.5)
    result = threshold_epsilon(*sides, delta=1e-5, threshold=threshold, family=GAUSSIAN)
    mu = norm.ppf(clopper_pearson(90, 100).low) - norm.ppf(clopper_pearson(20, 100).high)
    assert result.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-5), abs=2e-3)
    assert result.assumes == "independent scores, Gaussian mechanism"


def test_perfect_scores_reach_the_ceiling():
    perfect = f_dp_epsilon(np.ones(100), np.zeros(120), delta=1e-5)
    assert perfect.epsilon == perfect.ceiling > 5
    assert perfect.assumes == "fair coins, Gaussian mechanism"


@pytest.mark.slow
def test_scores_that_refute_all_curves_of_a_family_give_the_strongest_curve():
    family = Curves(0.5, 2)
    scores = np.arange(60) + 60.0, np.arange(60.0)
    assert math.isfinite(f_dp_epsilon(*scores, delta=1e-5, family=family).epsilon)
    bound = threshold_epsilon(*scores, delta=1e-5, family=family)
    assert bound.epsilon == pytest.approx(family.epsilon(16.0, 1e-5))
    assert 100 < bound.epsilon < math.inf
