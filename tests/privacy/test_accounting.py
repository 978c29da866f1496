import math
import warnings

import numpy as np
import pytest
from dp_accounting import dp_event, pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from vestige.defences.registry import defences
from vestige.errors import TrainingError
from vestige.privacy.accounting import (
    Mechanism,
    PrivacySpent,
    check_delta,
    composed_epsilon,
    noise_for,
)
from vestige.training.config import TrainingConfig
from vestige.training.sequences import SequenceBatches, Sequences

TRAINING = {"noise_multiplier": 1.1, "sample_rate": 0.01, "steps": 1000, "delta": 1e-5}


def epsilon_spent(*, delta, accountant="pld", **mechanism):
    return Mechanism(**mechanism).epsilon(delta, accountant)


def privacy_spent(*, noise_multiplier, sample_rate, steps, **rest):
    mechanism = Mechanism(noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=steps)
    return PrivacySpent.of(mechanism, **rest)


def exact_gaussian_epsilon(sigma, delta):
    """One step without sampling: Balle and Wang (2018), the analytic Gaussian mechanism."""

    def excess(epsilon):
        a = norm.cdf(0.5 / sigma - epsilon * sigma)
        return a - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma) - delta

    return brentq(excess, 0, 50)


@pytest.mark.parametrize(
    ("accountant", "epsilon", "digits"),
    [("rdp", 1.71177, 5), ("pld", 1.5154, 4)],
)
def test_a_known_training_spends_what_the_accountants_are_known_to_say(accountant, epsilon, digits):
    assert round(epsilon_spent(**TRAINING, accountant=accountant), digits) == epsilon


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.8, 1.0, 4.0])
@pytest.mark.parametrize(("accountant", "slack"), [("pld", 0.001), ("rdp", 0.7)])
def test_one_step_without_sampling_spends_the_analytic_epsilon_or_little_more(
    sigma, accountant, slack
):
    exact = exact_gaussian_epsilon(sigma, 1e-5)
    spent = epsilon_spent(
        noise_multiplier=sigma, sample_rate=1.0, steps=1, delta=1e-5, accountant=accountant
    )
    assert exact - 1e-6 <= spent <= exact + slack


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_no_step_spends_nothing_and_no_noise_spends_everything(accountant):
    assert epsilon_spent(**TRAINING | {"steps": 0}, accountant=accountant) == 0
    assert epsilon_spent(**TRAINING | {"steps": 0, "noise_multiplier": 0}) == 0
    assert epsilon_spent(**TRAINING | {"noise_multiplier": 0}, accountant=accountant) == math.inf


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(st.floats(0.4, 5), st.floats(0.001, 0.5), st.integers(1, 5000))
def test_less_noise_more_data_a_step_more_steps_and_less_delta_never_spend_less(noise, rate, steps):
    def spent(**change):
        training = {"noise_multiplier": noise, "sample_rate": rate, "steps": steps, "delta": 1e-5}
        return epsilon_spent(**training | change, accountant="rdp")

    least = spent() * (1 - 1e-9)
    assert spent(noise_multiplier=noise * 0.9) >= least
    assert spent(sample_rate=min(1.0, rate * 1.1)) >= least
    assert spent(steps=steps + 1) >= least
    assert spent(delta=1e-6) >= least


@pytest.mark.slow
def test_privacy_losses_grow_with_steps_and_never_exceed_renyis():
    spent = [epsilon_spent(**TRAINING | {"steps": steps}) for steps in (1, 30, 1000)]
    assert spent == sorted(spent)
    assert spent[-1] < epsilon_spent(**TRAINING, accountant="rdp")


def test_hopeless_budgets_are_counted_in_little_memory_and_without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spent = {
            accountant: epsilon_spent(
                noise_multiplier=0.1,
                sample_rate=0.05,
                steps=5000,
                delta=1e-6,
                accountant=accountant,
            )
            for accountant in ("pld", "rdp")
        }
    assert spent["pld"] == spent["rdp"] > 500
    assert math.isfinite(spent["rdp"])


@pytest.mark.parametrize(
    ("accountant", "epsilon"),
    [("pld", 0.5), pytest.param("pld", 5.0, marks=pytest.mark.slow), ("rdp", 0.5), ("rdp", 111.0)],
)
def test_the_noise_found_keeps_the_budget_and_a_little_less_does_not(accountant, epsilon):
    training = {"sample_rate": 0.02, "steps": 100, "delta": 1e-5, "accountant": accountant}
    noise = noise_for(epsilon=epsilon, **training)
    assert epsilon_spent(noise_multiplier=noise, **training) <= epsilon
    assert epsilon_spent(noise_multiplier=noise / 1.002, **training) > epsilon


def test_a_budget_out_of_reach_says_what_to_change():
    with pytest.raises(TrainingError, match=r"0\.0001 at delta.*100000 steps.*fewer epochs"):
        noise_for(epsilon=1e-4, delta=1e-8, sample_rate=1.0, steps=100_000, accountant="rdp")


def test_the_record_says_all_that_a_reader_needs():
    spent = privacy_spent(**TRAINING, max_grad_norm=0.5, unit="user", accountant="rdp")
    assert isinstance(spent, PrivacySpent)
    assert spent.summary() == {
        "epsilon": epsilon_spent(**TRAINING, accountant="rdp"),
        "delta": 1e-5,
        "accountant": "rdp",
        "unit": "user",
        "noise_multiplier": 1.1,
        "sample_rate": 0.01,
        "steps": 1000,
        "max_grad_norm": 0.5,
    }
    nothing = privacy_spent(**TRAINING | {"noise_multiplier": 0}, max_grad_norm=1.0).summary()
    assert nothing["epsilon"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_multiplier": -1}, "noise_multiplier must be at least 0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier must be at least 0"),
        ({"sample_rate": 0}, r"sample_rate must lie in \(0, 1\]"),
        ({"sample_rate": 1.5}, r"sample_rate must lie in \(0, 1\]"),
        ({"steps": -1}, "steps must be at least 0"),
        ({"delta": 0}, r"delta must lie in \[1e-12, 1\)"),
        ({"delta": 1}, r"delta must lie in \[1e-12, 1\)"),
        ({"delta": 1e-14}, "rounding errors are larger"),
        ({"delta": math.nan}, "delta must lie in"),
        ({"delta": math.inf}, "delta must lie in"),
        ({"accountant": "moments"}, "accountant must be one of"),
    ],
)
def test_numbers_of_no_training_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        epsilon_spent(**TRAINING | change)


@pytest.mark.parametrize("change", [{"epsilon": 0}, {"epsilon": -1}, {"steps": 0}, {"delta": 2}])
def test_noise_for_no_budget_is_refused(change):
    arguments = {"epsilon": 1, "delta": 1e-5, "sample_rate": 0.1, "steps": 10} | change
    with pytest.raises(ValueError, match=next(iter(change))):
        noise_for(**arguments)


GRID = [  # the first two in every run
    pytest.param(noise, rate, steps, delta, marks=() if position < 2 else pytest.mark.slow)
    for position, (noise, rate, steps) in enumerate((
        (1.1, 0.01, 1000), (3.0, 0.2, 500), (0.7, 0.005, 300), (1.0, 0.04, 300), (2.0, 1.0, 7),
        (0.5, 0.02, 50), (4.0, 0.1, 2000), (1.3, 0.3, 60), (8.0, 0.5, 1000), (0.9, 0.002, 5000),
    ))
    for delta in (1e-5, 1e-8)
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Optimal order", "ignore:divide by zero")  # Opacus' own
@pytest.mark.parametrize(("noise", "rate", "steps", "delta"), GRID)
def test_two_other_libraries_agree(noise, rate, steps, delta):
    """dp-accounting called directly, and Opacus' PRV, whose rounding is too coarse for 1e-12."""
    ours = epsilon_spent(noise_multiplier=noise, sample_rate=rate, steps=steps, delta=delta)
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    direct = pld.PLDAccountant().compose(event, steps).get_epsilon(delta)
    assert ours == pytest.approx(direct, abs=1e-9)
    peer = pytest.importorskip("opacus.accountants").PRVAccountant()
    peer.history = [(noise, rate, steps)]
    assert ours == pytest.approx(peer.get_epsilon(delta), abs=0.03)


def test_a_delta_of_one_in_n_protects_no_one():
    check_delta(0.0099, 100)
    for delta in (0.01, 0.5):
        with pytest.raises(ValueError, match=r"below 1 / 100.*publish one of n whole"):
            check_delta(delta, 100)


FIRST = Mechanism(noise_multiplier=1.1, sample_rate=0.05, steps=200)
SECOND = Mechanism(noise_multiplier=2.0, sample_rate=0.2, steps=50)
DELTA = 1e-5


@pytest.mark.slow
def test_composition_is_what_two_other_libraries_say():
    one_by_one = pld.PLDAccountant()
    for one in (FIRST, SECOND):
        noised = dp_event.GaussianDpEvent(one.noise_multiplier)
        one_by_one.compose(dp_event.PoissonSampledDpEvent(one.sample_rate, noised), one.steps)
    both = composed_epsilon([FIRST, SECOND], delta=DELTA)
    assert both == pytest.approx(one_by_one.get_epsilon(DELTA), abs=1e-9)
    peer = pytest.importorskip("opacus.accountants").PRVAccountant()
    peer.history = [(one.noise_multiplier, one.sample_rate, one.steps) for one in (FIRST, SECOND)]
    assert both == pytest.approx(peer.get_epsilon(DELTA), abs=0.02)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_without_sampling_it_is_one_gaussian(accountant):
    whole = [
        Mechanism(noise_multiplier=noise, sample_rate=1.0, steps=steps)
        for noise, steps in ((4.0, 2), (6.0, 3))
    ]
    together = sum(one.steps * one.noise_multiplier**-2 for one in whole) ** -0.5
    exact = exact_gaussian_epsilon(together, DELTA)  # Balle and Wang (2018), Theorem 8
    result = composed_epsilon(whole, delta=DELTA, accountant=accountant)
    assert exact - 1e-6 <= result <= exact + (0.3 if accountant == "rdp" else 0.01)


@pytest.mark.slow
def test_together_costs_more_than_each_and_less_than_their_sum():
    alone = [one.epsilon(DELTA, "pld") for one in (FIRST, SECOND)]
    both = composed_epsilon([FIRST, SECOND], delta=DELTA)
    assert max(alone) < both < sum(alone)
    assert both == pytest.approx(composed_epsilon([SECOND, FIRST], delta=DELTA), abs=1e-6)


def test_one_is_itself_nothing_is_nothing_and_no_noise_is_no_guarantee():
    silent = Mechanism(noise_multiplier=1.0, sample_rate=0.1, steps=0)
    bare = Mechanism(noise_multiplier=0.0, sample_rate=0.1, steps=1)
    training = {"noise_multiplier": 1.1, "sample_rate": 0.05, "steps": 200}
    assert composed_epsilon([FIRST, silent], delta=DELTA) == epsilon_spent(**training, delta=DELTA)
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
        _ = shuffled.sample_rate


@pytest.mark.parametrize("name", ["dp-sgd", "dp-fedavg"])
@pytest.mark.parametrize("batching", ["stream", "documents", "users"])
def test_no_private_step_is_made_for_batches_that_are_shuffled(
    tiny_model, tiny_data, name, batching
):
    defence = defences()[name](noise_multiplier=1.0)
    config = TrainingConfig(seed=0, batching=batching)
    with pytest.raises(ValueError, match="batching must be poisson"):
        defence.step(tiny_model(), tiny_data(), config)


GROUP = {"noise_multiplier": 2.0, "sample_rate": 0.01, "steps": 200, "delta": 1e-5}


def delta_of_mixture(epsilon, weights, sigma):
    """One step of a mixture against no record: hockey-stick divergence, on a grid, both ways."""
    grid = np.linspace(-12 * sigma, len(weights) + 12 * sigma, 200_001)
    width = grid[1] - grid[0]
    without = norm.pdf(grid, scale=sigma)
    with_group = sum(w * norm.pdf(grid, loc=j, scale=sigma) for j, w in enumerate(weights))
    ways = ((with_group, without), (without, with_group))
    return max(np.maximum(p - math.exp(epsilon) * q, 0).sum() * width for p, q in ways)


@pytest.mark.slow
def test_more_copies_are_promised_less_and_by_more_than_in_proportion():
    promised = [epsilon_spent(**GROUP, copies=copies) for copies in (1, 2, 3)]
    assert promised == sorted(promised)
    assert promised[1] > 2 * promised[0]


@pytest.mark.slow
def test_one_step_of_two_copies_is_the_divergence_of_the_mixture():
    rate, sigma, delta = 0.3, 4.0, 1e-4
    weights = [(1 - rate) ** 2, 2 * rate * (1 - rate), rate**2]
    exact = brentq(lambda e: delta_of_mixture(e, weights, sigma) - delta, 0, 30)
    promised = epsilon_spent(
        noise_multiplier=sigma, sample_rate=rate, steps=1, delta=delta, copies=2
    )
    assert exact - 1e-4 <= promised <= exact + 0.01


def test_copies_that_are_always_sampled_are_one_record_of_their_size():
    group = epsilon_spent(
        noise_multiplier=18.0,
        sample_rate=1.0,
        steps=1,
        delta=1e-5,
        copies=3,
    )
    one = epsilon_spent(noise_multiplier=6.0, sample_rate=1.0, steps=1, delta=1e-5)
    assert group >= one - 0.02
    assert group <= one + 0.02


def test_hopeless_groups_are_bounded_without_their_sampling():
    hopeless = GROUP | {"noise_multiplier": 0.1}
    promised = [epsilon_spent(**hopeless, copies=copies) for copies in (1, 2, 20)]
    assert promised == sorted(promised)
    assert math.isfinite(promised[-1])
    assert epsilon_spent(**GROUP | {"noise_multiplier": 0}, copies=3) == math.inf
    assert epsilon_spent(**GROUP | {"steps": 0}, copies=3) == 0


def test_groups_of_nothing_are_refused():
    with pytest.raises(ValueError, match="copies must be at least 1"):
        epsilon_spent(**GROUP, copies=0)


@pytest.mark.slow
def test_groups_compose_with_single_records():
    two = Mechanism(noise_multiplier=2.0, sample_rate=0.01, steps=200, copies=2)
    both = composed_epsilon([two, FIRST], delta=DELTA)
    assert max(two.epsilon(DELTA), FIRST.epsilon(DELTA)) < both
    assert both < two.epsilon(DELTA) + FIRST.epsilon(DELTA)
