"""What the tests of bounds on epsilon share."""

import numpy as np
import pytest
from scipy.stats import binom


@pytest.fixture(scope="session")
def allowed_exceptions():
    """So many of some runs are no surprise at a rate, at one in a thousand."""
    return lambda runs, rate: binom.ppf(0.999, runs, rate)


@pytest.fixture(scope="module")
def auditing(peer):
    """jax_privacy's own module, which needs no jax when it is loaded by itself."""
    return peer("jax_privacy", "auditing.py")


@pytest.fixture(scope="module")
def at_a_threshold(auditing):
    """Drawn scores, and what jax_privacy says of them at a fixed threshold: a dict of both."""

    def draw(seed):
        rng = np.random.default_rng(seed)
        inside = rng.normal(rng.uniform(0, 4), 1, rng.integers(20, 400))
        outside = rng.normal(0, 1, rng.integers(20, 400))
        threshold, delta = float(rng.uniform(0, 2)), float(10.0 ** -rng.integers(2, 8))
        return {
            "scores": (inside, outside),
            "threshold": threshold,
            "delta": delta,
            "highest": int((inside >= threshold).sum() + (outside >= threshold).sum()),
            "auditor": auditing.CanaryScoreAuditor(inside, outside),
            "fixed": auditing.Explicit(threshold),
        }

    return draw
