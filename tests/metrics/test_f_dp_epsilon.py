"""The naive recursion follows the paper's listing; known mechanisms are sampled and audited."""

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


def gaussian(mu, delta):
    """Balle and Wang (2018), "Improving the Gaussian Mechanism", Theorem 8, in logarithms."""

    def excess(epsilon):
        first = norm.logcdf(mu / 2 - epsilon / mu)
        second = epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
        return first + np.log1p(-np.exp(min(second - first, -1e-16))) - np.log(delta)

    return brentq(excess, 0, 100, xtol=1e-10) if excess(0) > 0 else 0.0


def naive_refuted(canaries, guesses, correct, mu, significance):
    """All r and h in arrays, from the last to the first."""
    r, h = np.zeros(correct + 1), np.zeros(correct + 1)
    r[correct] = significance * correct / canaries
    h[correct] = significance * (guesses - correct) / canaries
    for i in range(correct - 1, -1, -1):
        promised = norm.cdf(norm.ppf(1 - (1 - r[i + 1])) - mu)
        h[i] = max(h[i + 1], promised)
        r[i] = r[i + 1] + i / (guesses - i) * (h[i] - h[i + 1])
    return r[0] + h[0] > guesses / canaries


def audited(rng, canaries, mu, **settings):
    """Coins, and each canary's score: its coin times mu, and unit noise."""
    heads = rng.random(canaries) < 0.5
    heads[0], heads[1] = True, False
    scores = heads * mu + rng.normal(size=canaries)
    return f_dp_epsilon(scores[heads], scores[~heads], **settings), scores, heads


@given(st.integers(2, 60), st.data())
@settings(max_examples=80, deadline=None)
def test_a_curve_is_refuted_where_the_papers_listing_refutes_it(canaries, data):
    guesses = data.draw(st.integers(1, canaries))
    correct = data.draw(st.integers(0, guesses - 1))
    mu = data.draw(st.floats(0, 3))
    significance = data.draw(st.sampled_from([0.5, 0.05, 0.01]))
    ours = curve_refuted(
        canaries, guesses, correct, curve=GAUSSIAN.curve(mu), significance=significance
    )
    assert ours == naive_refuted(canaries, guesses, correct, mu, significance)


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.5, 0.95])
@pytest.mark.parametrize(("mu", "canaries"), [(0.0, 100), (0.3, 400), (0.92, 1000), (3.0, 200)])
def test_a_gaussian_mechanism_is_accused_at_most_at_the_stated_rate(
    mu, canaries, confidence, allowed_exceptions
):
    rng, truth, above = np.random.default_rng(4), GAUSSIAN.epsilon(mu, 1e-5), 0
    for _ in range(500):
        found, _, _ = audited(rng, canaries, mu, delta=1e-5, confidence=confidence)
        above += found.epsilon > truth
    assert above <= allowed_exceptions(500, 1 - confidence)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_randomised_response_is_accused_at_most_at_the_stated_rate(epsilon, allowed_exceptions):
    """Its curve is nowhere below the Gaussian one that it touches where both errors are equal."""
    accuracy = 1 / (1 + math.exp(-epsilon))
    mu = 2 * norm.ppf(accuracy)
    levels = np.linspace(1e-4, 1 - 1e-4, 999)
    own = np.maximum(1 - math.exp(epsilon) * levels, math.exp(-epsilon) * (1 - levels))
    assert (own >= norm.cdf(norm.ppf(1 - levels) - mu) - 1e-9).all()
    rng, above = np.random.default_rng(6), 0
    for _ in range(2000):
        heads = rng.random(200) < 0.5
        honest = rng.random(200) < accuracy
        scores = np.where(heads == honest, 1.0, 0.0) + rng.random(200) / 2
        found = f_dp_epsilon(scores[heads], scores[~heads], delta=1e-5)
        above += found.epsilon > GAUSSIAN.epsilon(mu, 1e-5)
    assert above <= allowed_exceptions(2000, 0.05)


@pytest.mark.slow
def test_it_proves_more_of_a_gaussian_mechanism_than_what_assumes_least():
    rng, ours, theirs = np.random.default_rng(7), [], []
    for _ in range(20):
        found, scores, heads = audited(rng, 1000, 0.92, delta=1e-5)
        ours.append(found.epsilon)
        theirs.append(one_run_epsilon(scores[heads], scores[~heads], delta=1e-5).epsilon)
    assert np.mean(ours) > 1.3 * np.mean(theirs)


@pytest.mark.parametrize("mu", [0.1, 0.92, 4.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_epsilon_of_a_gaussian_curve_is_that_of_the_accountant(mu, delta):
    assert GAUSSIAN.epsilon(mu, delta) == pytest.approx(gaussian(mu, delta), abs=1e-6)


def test_a_full_batch_is_a_gaussian_mechanism():
    family = Curves(1.0, 16)
    for y in (0.01, 0.3, 0.9):
        assert family.curve(0.5)(y) == pytest.approx(GAUSSIAN.curve(2.0)(y))
    assert family.epsilon(0.5, 1e-5) == pytest.approx(GAUSSIAN.epsilon(2.0, 1e-5))


@pytest.mark.slow
def test_a_subsampled_curve_is_the_convex_one_under_both_directions_in_closed_form():
    """One step tells (1 - q) N(0, 1) + q N(1 / sigma, 1) from N(0, 1), or the other way round."""
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
def test_epsilon_of_a_subsampled_curve_is_that_of_the_accountant():
    family = Curves(0.05, 100)
    spent = Mechanism(noise_multiplier=1.0, sample_rate=0.05, steps=100).epsilon(1e-5)
    assert family.epsilon(1.0, 1e-5) == pytest.approx(spent, abs=0.02)


@pytest.mark.slow
def test_independent_scores_of_a_gaussian_mechanism_tell_nearly_all_and_no_more(allowed_exceptions):
    rng, truth, bounds = np.random.default_rng(8), GAUSSIAN.epsilon(1.84, 1e-5), []
    for _ in range(300):
        heads = rng.random(1000) < 0.5
        scores = heads * 1.84 + rng.normal(size=1000)
        inside, outside = scores[heads], scores[~heads]
        bounds.append(threshold_epsilon(inside, outside, delta=1e-5, family=GAUSSIAN).epsilon)
    assert sum(bound > truth for bound in bounds) <= allowed_exceptions(300, 0.05)
    assert np.mean(bounds) > 0.7 * truth


@pytest.mark.parametrize("flipped", [False, True])
def test_rates_above_one_threshold_refute_the_mu_that_two_quantiles_tell(flipped):
    inside, outside = np.repeat([1.0, 0.0], [90, 10]), np.repeat([1.0, 0.0], [20, 80])
    if flipped:
        inside, outside = -outside, -inside
    found = threshold_epsilon(
        inside, outside, delta=1e-5, threshold=-0.5 if flipped else 0.5, family=GAUSSIAN
    )
    ends = clopper_pearson(90, 100).low, clopper_pearson(20, 100).high
    mu = float(np.diff(norm.ppf(ends[::-1]))[0])
    assert found.epsilon == pytest.approx(gaussian(mu, 1e-5), abs=2e-3)
    assert found.assumes == "independent scores, Gaussian mechanism"


def test_perfect_scores_reach_the_ceiling():
    perfect = f_dp_epsilon(np.ones(100), np.zeros(120), delta=1e-5)
    assert perfect.epsilon == perfect.ceiling > 5
    assert perfect.assumes == "fair coins, Gaussian mechanism"


@pytest.mark.slow
def test_scores_that_no_curve_of_a_family_allows_end_at_the_strongest():
    family = Curves(0.5, 2)
    found = f_dp_epsilon(np.arange(60) + 60.0, np.arange(60.0), delta=1e-5, family=family)
    rates = threshold_epsilon(np.arange(60) + 60.0, np.arange(60.0), delta=1e-5, family=family)
    assert math.isfinite(found.epsilon)
    assert rates.epsilon == pytest.approx(family.epsilon(16.0, 1e-5))
    assert 100 < rates.epsilon < math.inf
