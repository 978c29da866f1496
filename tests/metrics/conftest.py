"""Fixtures for the tests of bounds on epsilon."""

import pytest
from scipy.stats import binom


@pytest.fixture(scope="session")
def allowed_exceptions():
    """The 99.9% quantile of the number of exceptions in some runs at a rate."""
    return lambda runs, rate: binom.ppf(0.999, runs, rate)
