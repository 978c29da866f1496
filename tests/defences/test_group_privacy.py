import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from vestige.defences.accounting import epsilon_spent
from vestige.defences.group_privacy import group_epsilon

TRAINING = {"noise_multiplier": 2.0, "sample_rate": 0.01, "steps": 200, "delta": 1e-5}


def delta_of_mixture(epsilon, weights, sigma):
    """One step of a mixture against no record: hockey-stick divergence, on a grid, both ways."""
    grid = np.linspace(-12 * sigma, len(weights) + 12 * sigma, 200_001)
    width = grid[1] - grid[0]
    without = norm.pdf(grid, scale=sigma)
    with_group = sum(w * norm.pdf(grid, loc=j, scale=sigma) for j, w in enumerate(weights))
    ways = ((with_group, without), (without, with_group))
    return max(np.maximum(p - math.exp(epsilon) * q, 0).sum() * width for p, q in ways)


@pytest.mark.parametrize("accountant", ["prv", "rdp", "pld"])
def test_one_copy_is_no_group(accountant):
    alone = epsilon_spent(**TRAINING, accountant=accountant)
    assert group_epsilon(**TRAINING, copies=1, accountant=accountant) == alone


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_more_copies_are_promised_less_and_by_more_than_in_proportion(accountant):
    promised = [
        group_epsilon(**TRAINING, copies=copies, accountant=accountant) for copies in (1, 2, 3)
    ]
    assert promised == sorted(promised)
    assert promised[1] > 2 * promised[0]


def test_the_mixture_promises_more_than_the_standard_conversion():
    mixture = group_epsilon(**TRAINING, copies=2)
    assert mixture < group_epsilon(**TRAINING, copies=2, accountant="rdp")


def test_one_step_of_two_copies_is_the_divergence_of_the_mixture():
    rate, sigma, delta = 0.3, 4.0, 1e-4
    weights = [(1 - rate) ** 2, 2 * rate * (1 - rate), rate**2]
    exact = brentq(lambda e: delta_of_mixture(e, weights, sigma) - delta, 0, 30)
    promised = group_epsilon(
        noise_multiplier=sigma, sample_rate=rate, steps=1, delta=delta, copies=2
    )
    assert exact - 1e-4 <= promised <= exact + 0.01


@pytest.mark.parametrize("accountant", ["prv", "rdp"])
def test_copies_that_are_always_sampled_are_one_record_of_their_size(accountant):
    group = group_epsilon(
        noise_multiplier=18.0,
        sample_rate=1.0,
        steps=1,
        delta=1e-5,
        copies=3,
        accountant=accountant,
    )
    one = epsilon_spent(noise_multiplier=6.0, sample_rate=1.0, steps=1, delta=1e-5)
    assert group >= one - 0.02
    if accountant == "prv":
        assert group <= one + 0.02


def test_hopeless_groups_are_bounded_without_their_sampling():
    hopeless = TRAINING | {"noise_multiplier": 0.1}
    promised = [group_epsilon(**hopeless, copies=copies) for copies in (1, 2, 20)]
    assert promised == sorted(promised)
    assert math.isfinite(promised[-1])
    assert group_epsilon(**TRAINING | {"noise_multiplier": 0}, copies=3) == math.inf
    assert group_epsilon(**TRAINING | {"steps": 0}, copies=3) == 0


def test_groups_of_nothing_are_refused():
    with pytest.raises(ValueError, match="copies must be at least 1"):
        group_epsilon(**TRAINING, copies=0)
