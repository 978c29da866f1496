import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opacus.accountants.analysis import gdp
from scipy.stats import norm

from vestige.defences.gaussian_dp import epsilon_of_mu, gdp_mu


@given(st.floats(0.3, 10), st.floats(1e-4, 1), st.integers(1, 10_000))
def test_mu_is_that_of_opacus(noise, rate, steps):
    theirs = gdp.compute_mu_poisson(steps=steps, noise_multiplier=noise, sample_rate=rate)
    assert gdp_mu(noise_multiplier=noise, sample_rate=rate, steps=steps) == pytest.approx(theirs)


@given(st.floats(0.05, 20), st.floats(1e-9, 1e-2))
def test_epsilon_of_mu_solves_the_definition(mu, delta):
    epsilon = epsilon_of_mu(mu, delta)
    first = norm.logcdf(-epsilon / mu + mu / 2)
    second = epsilon + norm.logcdf(-epsilon / mu - mu / 2)
    if epsilon:
        assert math.exp(first) - math.exp(second) == pytest.approx(delta, rel=1e-4)
    else:
        assert math.exp(first) - math.exp(second) <= delta * (1 + 1e-9)


def test_a_mu_that_floats_hardly_hold_still_has_an_epsilon():
    assert epsilon_of_mu(1e20, 1e-6) == pytest.approx(5e39)
    assert epsilon_of_mu(math.inf, 1e-6) == math.inf
    assert gdp_mu(noise_multiplier=0.01, sample_rate=0.1, steps=10) == math.inf
    assert gdp_mu(noise_multiplier=0, sample_rate=0.1, steps=10) == math.inf
    assert gdp_mu(noise_multiplier=0, sample_rate=0.1, steps=0) == 0
