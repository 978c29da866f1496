import math
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from vestige.defences.accounting import (
    SMALLEST_DELTA,
    PrivacySpent,
    check_delta,
    epsilon_spent,
    noise_for,
    privacy_spent,
)
from vestige.defences.gaussian_dp import epsilon_of_mu
from vestige.errors import TrainingError

TRAINING = {"noise_multiplier": 1.1, "sample_rate": 0.01, "steps": 1000, "delta": 1e-5}


def exact_gaussian_epsilon(sigma, delta):
    """One step without sampling: Balle and Wang (2018), the analytic Gaussian mechanism."""

    def excess(epsilon):
        a = norm.cdf(0.5 / sigma - epsilon * sigma)
        return a - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma) - delta

    return brentq(excess, 0, 50)


@pytest.mark.parametrize(
    ("accountant", "epsilon", "digits"),
    [("rdp", 1.71177, 5), ("prv", 1.5255, 4), ("pld", 1.5154, 4)],
)
def test_a_known_training_spends_what_the_accountants_are_known_to_say(accountant, epsilon, digits):
    assert round(epsilon_spent(**TRAINING, accountant=accountant), digits) == epsilon


@pytest.mark.parametrize("sigma", [0.8, 1.0, 4.0])
@pytest.mark.parametrize(("accountant", "slack"), [("prv", 0.011), ("pld", 0.001), ("rdp", 0.7)])
def test_one_step_without_sampling_spends_the_analytic_epsilon_or_little_more(
    sigma, accountant, slack
):
    exact = exact_gaussian_epsilon(sigma, 1e-5)
    spent = epsilon_spent(
        noise_multiplier=sigma, sample_rate=1.0, steps=1, delta=1e-5, accountant=accountant
    )
    assert exact - 1e-6 <= spent <= exact + slack


@pytest.mark.parametrize("accountant", ["prv", "rdp", "pld"])
def test_no_step_spends_nothing_and_no_noise_spends_everything(accountant):
    assert epsilon_spent(**TRAINING | {"steps": 0}, accountant=accountant) == 0
    assert epsilon_spent(**TRAINING | {"steps": 0, "noise_multiplier": 0}) == 0
    assert epsilon_spent(**TRAINING | {"noise_multiplier": 0}, accountant=accountant) == math.inf


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


@pytest.mark.parametrize("accountant", ["prv", "pld"])
def test_numerical_accountants_grow_with_steps_and_never_exceed_renyis(accountant):
    spent = [
        epsilon_spent(**TRAINING | {"steps": steps}, accountant=accountant)
        for steps in (1, 30, 1000)
    ]
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
            for accountant in ("prv", "pld", "rdp")
        }
    assert spent["prv"] == spent["pld"] == spent["rdp"] > 500
    assert math.isfinite(spent["rdp"])


@pytest.mark.parametrize(
    ("accountant", "epsilon"),
    [("prv", 0.5), ("prv", 5.0), ("rdp", 0.5), ("rdp", 111.0)],
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
        "mu": pytest.approx(0.3585, abs=1e-4),
    }
    nothing = privacy_spent(**TRAINING | {"noise_multiplier": 0}, max_grad_norm=1.0).summary()
    assert nothing["epsilon"] is None
    assert nothing["mu"] is None


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
        ({"accountant": "gdp"}, "limit for many steps and no bound"),
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


def test_gaussian_differential_privacy_is_no_bound_and_counts_no_budget():
    mu = privacy_spent(**TRAINING, max_grad_norm=1.0, accountant="pld").mu
    assert epsilon_of_mu(mu, TRAINING["delta"]) < epsilon_spent(**TRAINING, accountant="pld")
    for count in (
        lambda: noise_for(epsilon=2, delta=1e-5, sample_rate=0.01, steps=1000, accountant="gdp"),
        lambda: privacy_spent(**TRAINING, max_grad_norm=1.0, accountant="gdp"),
    ):
        with pytest.raises(ValueError, match="no bound"):
            count()


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.1, 0.01, 1000), (3, 0.2, 500)])
def test_accountants_agree_down_to_the_smallest_delta(noise, rate, steps):
    training = {"noise_multiplier": noise, "sample_rate": rate, "steps": steps}
    prv, pld = (
        epsilon_spent(**training, delta=SMALLEST_DELTA, accountant=one) for one in ("prv", "pld")
    )
    assert prv == pytest.approx(pld, abs=0.02)


def test_a_delta_of_one_in_n_protects_no_one():
    check_delta(0.0099, 100)
    for delta in (0.01, 0.5):
        with pytest.raises(ValueError, match=r"below 1 / 100.*publish one of n whole"):
            check_delta(delta, 100)
