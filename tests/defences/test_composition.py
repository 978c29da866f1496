import math

import numpy as np
import pytest
from dp_accounting import dp_event, pld
from opacus.accountants import PRVAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from vestige.defences.accounting import epsilon_spent
from vestige.defences.composition import Mechanism, composed_epsilon
from vestige.defences.registry import defences
from vestige.training.config import TrainingConfig
from vestige.training.sequences import SequenceBatches, Sequences

FIRST = Mechanism(noise_multiplier=1.1, sample_rate=0.05, steps=200)
SECOND = Mechanism(noise_multiplier=2.0, sample_rate=0.2, steps=50)
DELTA = 1e-5


def exact_of_gaussians(sigmas, delta):
    """Without sampling, Gaussian mechanisms are one: Balle and Wang (2018), Theorem 8."""
    sigma = sum(s**-2 for s in sigmas) ** -0.5

    def excess(epsilon):
        a = norm.cdf(0.5 / sigma - epsilon * sigma)
        return a - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma) - delta

    return brentq(excess, 0, 100)


def test_it_is_what_dp_accounting_says_of_the_mechanisms_one_after_the_other():
    one_by_one = pld.PLDAccountant()
    for mechanism in (FIRST, SECOND):
        event = dp_event.PoissonSampledDpEvent(
            mechanism.sample_rate, dp_event.GaussianDpEvent(mechanism.noise_multiplier)
        )
        one_by_one.compose(dp_event.SelfComposedDpEvent(event, mechanism.steps))
    assert composed_epsilon([FIRST, SECOND], delta=DELTA) == pytest.approx(
        one_by_one.get_epsilon(DELTA), abs=1e-9
    )


def test_it_is_what_another_library_says():
    accountant = PRVAccountant()
    accountant.history = [(m.noise_multiplier, m.sample_rate, m.steps) for m in (FIRST, SECOND)]
    assert composed_epsilon([FIRST, SECOND], delta=DELTA) == pytest.approx(
        accountant.get_epsilon(DELTA), abs=0.02
    )


@pytest.mark.parametrize("accountant", ["pld", "prv", "rdp"])
def test_without_sampling_it_is_one_gaussian(accountant):
    whole = [
        Mechanism(noise_multiplier=noise, sample_rate=1.0, steps=steps)
        for noise, steps in ((4.0, 2), (6.0, 3))
    ]
    exact = exact_of_gaussians([4.0, 4.0, 6.0, 6.0, 6.0], DELTA)
    found = composed_epsilon(whole, delta=DELTA, accountant=accountant)
    assert exact - 1e-6 <= found <= exact + (0.3 if accountant == "rdp" else 0.01)


def test_together_costs_more_than_each_and_less_than_their_sum():
    alone = [one.epsilon(DELTA, "pld") for one in (FIRST, SECOND)]
    both = composed_epsilon([FIRST, SECOND], delta=DELTA)
    assert max(alone) < both < sum(alone)
    assert both == pytest.approx(composed_epsilon([SECOND, FIRST], delta=DELTA), abs=1e-6)


def test_one_is_itself_nothing_is_nothing_and_no_noise_is_no_guarantee():
    silent = Mechanism(noise_multiplier=1.0, sample_rate=0.1, steps=0)
    bare = Mechanism(noise_multiplier=0.0, sample_rate=0.1, steps=1)
    training = {"noise_multiplier": 1.1, "sample_rate": 0.05, "steps": 200}
    assert composed_epsilon([FIRST, silent], delta=DELTA, accountant="prv") == epsilon_spent(
        **training, delta=DELTA
    )
    assert composed_epsilon([silent], delta=DELTA) == 0
    assert composed_epsilon([FIRST, bare], delta=DELTA) == math.inf


def test_hopeless_budgets_are_added_on_renyis_curve():
    hopeless = Mechanism(noise_multiplier=0.1, sample_rate=0.05, steps=5000)
    both = composed_epsilon([FIRST, hopeless], delta=DELTA)
    assert both == composed_epsilon([FIRST, hopeless], delta=DELTA, accountant="rdp")
    assert 500 < both < math.inf


def test_mechanisms_that_no_training_is_are_refused():
    with pytest.raises(ValueError, match="mechanisms must be at least one"):
        composed_epsilon([], delta=DELTA)
    with pytest.raises(ValueError, match="delta must lie in"):
        composed_epsilon([FIRST], delta=1e-14)


@pytest.mark.parametrize("draw", ["documents", "users"])
def test_batches_that_are_shuffled_amplify_nothing(tiny_data, draw):
    shuffled = SequenceBatches(Sequences.of(tiny_data(), length=16), 2, draw, 0, "cpu")
    with pytest.raises(ValueError, match="only Poisson sampling amplifies privacy"):
        Mechanism.of(shuffled, noise_multiplier=1.0, epochs=3)


def test_batches_by_lot_are_a_mechanism(tiny_data):
    letters = tiny_data()
    lots = SequenceBatches(Sequences.of(letters, length=16), 2, "poisson", 0, "cpu")
    units = len(np.flatnonzero(np.diff(letters.offsets) > 1))
    assert Mechanism.of(lots, noise_multiplier=1.0, epochs=3) == Mechanism(
        noise_multiplier=1.0, sample_rate=2 / units, steps=3 * -(-units // 2)
    )


@pytest.mark.parametrize("name", ["dp-sgd", "dp-fedavg"])
@pytest.mark.parametrize("batching", ["stream", "documents", "users"])
def test_no_private_step_is_made_for_batches_that_are_shuffled(
    tiny_model, tiny_data, name, batching
):
    defence = defences()[name](noise_multiplier=1.0)
    config = TrainingConfig(seed=0, batching=batching)
    with pytest.raises(ValueError, match="batching must be poisson"):
        defence.step(tiny_model(), tiny_data(), config)
