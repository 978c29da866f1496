"""Noise that falls over a training: which step gets which, what is spent, and who says so."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from dp_accounting import dp_event, pld
from hypothesis import given
from hypothesis import strategies as st

from vestige.audits.comparison.guarantee import Guarantee, mechanism_of
from vestige.defences.accounting import (
    epsilon_spent,
    noise_for,
    privacy_spent,
    renyi_curve,
)
from vestige.defences.composition import Mechanism, composed_epsilon
from vestige.defences.dp_sgd import DPSGDStep
from vestige.defences.gaussian_dp import epsilon_of_mu, gdp_mu
from vestige.defences.group_privacy import group_epsilon
from vestige.defences.methods.dp_sgd import DPSGD
from vestige.defences.noise_schedule import NoiseSchedule, falling, noise_at, stages_of
from vestige.defences.noisy_step import NoisyStep
from vestige.defences.privacy_ancestry import Ancestry, Share
from vestige.defences.privacy_ledger import LedgerEntry, from_json, to_json
from vestige.defences.privacy_statement import PrivacyStatement, drowned
from vestige.metrics.f_dp_epsilon import Curves
from vestige.training.config import TrainingConfig
from vestige.training.secret import Secret

RATE, DELTA = 0.1, 1e-5
FALLS = NoiseSchedule(first=2.0, decay=0.5, steps=20)

decays = st.floats(1e-3, 1.0)


def each_step(noise: NoiseSchedule, steps: int, rate: float = RATE) -> dp_event.DpEvent:
    """All steps one by one, as dp-accounting names them."""
    return dp_event.ComposedDpEvent(
        [
            dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise.at(step)))
            for step in range(steps)
        ]
    )


def naive_epsilon(*events: dp_event.DpEvent, interval: float = 1e-4) -> float:
    accountant = pld.PLDAccountant(value_discretization_interval=interval)
    for event in events:
        accountant.compose(event)
    return float(accountant.get_epsilon(DELTA))


# which step gets which noise


@given(st.integers(1, 500), decays, st.data())
def test_stages_are_the_steps_by_their_noise(steps, decay, data):
    noise = NoiseSchedule(first=1.5, decay=decay, steps=steps)
    taken = data.draw(st.integers(0, steps))
    stages = noise.stages(taken)
    assert [one for one, some in stages for _ in range(some)] == list(map(noise.at, range(taken)))
    every = noise.stages()
    assert len(every) == min(8, steps)
    assert max(some for _, some in every) - min(some for _, some in every) <= 1
    assert noise.at(0) == 1.5
    if steps > 1:
        assert noise.at(steps - 1) == pytest.approx(1.5 * decay)


def test_noise_falls_geometrically():
    found = [noise for noise, _ in NoiseSchedule(first=3.0, decay=0.25, steps=64).stages()]
    assert found == pytest.approx(np.geomspace(3.0, 0.75, 8))


def test_what_does_not_fall_is_a_number():
    assert falling(1.25, 1.0, 100) == 1.25
    assert falling(0.0, 0.5, 100) == 0.0
    assert stages_of(1.25, 100) == ((1.25, 100),)
    assert noise_at(1.25, 7) == 1.25


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DPSGD(epsilon=8, noise_decay=0.0), r"`noise_decay` must lie in \(0, 1\], got 0"),
        (lambda: DPSGD(epsilon=8, noise_decay=1.5), r"`noise_decay` must lie in \(0, 1\], got 1.5"),
        (lambda: DPSGD(epsilon=8, noise_decay=math.nan), "`noise_decay` must lie in"),
        (lambda: DPSGD(epsilon=8, noise_decay=0.5, bands=2), "leave out one of the two"),
        (lambda: NoisyStep(FALLS, 1.0, 4, bands=2), "bands must be 1 where the noise falls, got 2"),
        (lambda: NoiseSchedule(first=0.0, decay=0.5, steps=9), "first must be positive"),
        (lambda: NoiseSchedule(first=1.0, decay=0.5, steps=0), "steps must be at least 1"),
        (lambda: falling(1.0, 2.0, 10), "noise_decay must lie in"),
        (lambda: FALLS.at(20), r"step must lie in \[0, 20\), got 20: the noise was planned for 20"),
        (lambda: FALLS.stages(21), r"steps must lie in \[0, 20\], got 21"),
        (
            lambda: epsilon_spent(noise_multiplier=FALLS, sample_rate=0.1, steps=21, delta=DELTA),
            "got 21",
        ),
        (lambda: Curves(0.1, 4, ((1.0, 2),)), "must have 4 steps in all"),
    ],
)
def test_values_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# what is spent


@pytest.mark.parametrize("steps", [3, 12])
@pytest.mark.parametrize(("accountant", "within"), [("pld", 1e-3), ("prv", 0.03)])
def test_epsilon_is_that_of_all_steps_one_by_one(accountant, within, steps):
    """A training that ends early has spent what its steps spent."""
    expected = naive_epsilon(each_step(FALLS, steps))
    found = epsilon_spent(
        noise_multiplier=FALLS, sample_rate=RATE, steps=steps, delta=DELTA, accountant=accountant
    )
    assert found == pytest.approx(expected, abs=within)


def test_renyi_divergences_add_up_to_the_closed_form():
    """Of a Gaussian that is not sampled: Mironov (2017), Proposition 7."""
    orders, spent = renyi_curve(FALLS, 1.0, 13)
    total = sum(1 / FALLS.at(step) ** 2 for step in range(13))
    np.testing.assert_allclose(spent, np.array(orders) * total / 2, rtol=1e-9)


def test_whole_batches_are_one_gaussian():
    """Squares of mu add up, so that epsilon has a closed form."""
    mu = math.sqrt(sum(1 / FALLS.at(step) ** 2 for step in range(20)))
    training = {"noise_multiplier": FALLS, "sample_rate": 1.0, "steps": 20, "delta": DELTA}
    for accountant in ("pld", "prv"):
        found = epsilon_spent(**training, accountant=accountant)
        assert found == pytest.approx(epsilon_of_mu(mu, DELTA), abs=0.02)
    group = group_epsilon(**training, copies=3)
    assert group == pytest.approx(epsilon_of_mu(3 * mu, DELTA), rel=1e-6)
    curves = Curves(1.0, 20, tuple((one / 2, n) for one, n in FALLS.stages()))
    assert curves.epsilon(1 / 2, DELTA) == pytest.approx(epsilon_of_mu(mu, DELTA), abs=1e-6)


def test_mu_is_that_of_all_steps():
    squares = [RATE**2 * math.expm1(FALLS.at(step) ** -2) for step in range(15)]
    found = gdp_mu(noise_multiplier=FALLS, sample_rate=RATE, steps=15)
    assert found == pytest.approx(math.sqrt(sum(squares)))


@pytest.mark.parametrize("accountant", ["prv", "rdp"])
def test_the_least_first_noise_that_keeps_within_epsilon_is_found(accountant):
    asked = {"sample_rate": 0.05, "steps": 3, "delta": DELTA, "accountant": accountant}
    first = noise_for(epsilon=3.0, decay=0.5, **asked)
    constant = noise_for(epsilon=3.0, **asked)
    assert noise_for(epsilon=3.0, decay=1.0, **asked) == constant
    assert 0.5 * first < constant < first
    near = (first, first / 1.004)
    spent = [epsilon_spent(noise_multiplier=falling(one, 0.5, 3), **asked) for one in near]
    assert spent[0] <= 3.0 < spent[1]


def test_a_record_that_stands_twice_spends_what_the_mixtures_of_all_steps_do():
    """Two copies that come into a batch together or alone: Ganesh (2024), step by step."""
    noise, rate = NoiseSchedule(first=6.0, decay=0.5, steps=3), 0.2
    chances = [(1 - rate) ** 2, 2 * rate * (1 - rate), rate**2]
    steps = [
        dp_event.MixtureOfGaussiansDpEvent(noise.at(step), [0, 1, 2], chances) for step in range(3)
    ]
    found = group_epsilon(noise_multiplier=noise, sample_rate=rate, steps=3, delta=DELTA, copies=2)
    assert found == pytest.approx(naive_epsilon(*steps, interval=1e-3), abs=2e-3)


def test_trainings_of_one_text_are_composed_stage_by_stage():
    other = Mechanism(noise_multiplier=1.5, sample_rate=0.02, steps=30)
    own = Mechanism(noise_multiplier=FALLS, sample_rate=RATE, steps=6)
    plain = dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.5))
    expected = naive_epsilon(each_step(FALLS, 6), dp_event.SelfComposedDpEvent(plain, 30))
    assert composed_epsilon([own, other], delta=DELTA) == pytest.approx(expected, abs=2e-3)


def test_the_trade_off_curve_of_a_claim_is_that_of_its_stages():
    """An audit tests the mechanism that is stated, at the noise that is stated."""
    summary = {
        "epsilon": 1.0, "delta": DELTA, "unit": "sequence", "noise_multiplier": 2.0,
        "noise_decay": 0.5, "sample_rate": RATE, "steps_planned": 2,
    }  # fmt: skip
    claim = Guarantee.of(summary)
    noise = NoiseSchedule(first=2.0, decay=0.5, steps=2)
    assert claim.noise_multiplier == noise
    assert claim.of_group(2) == group_epsilon(
        noise_multiplier=noise, sample_rate=RATE, steps=2, delta=DELTA, copies=2
    )
    curves = mechanism_of(claim)
    assert "in 2 stages of noise" in curves.name
    assert curves.epsilon(1 / 2, DELTA) == pytest.approx(
        naive_epsilon(each_step(noise, 2)), abs=0.01
    )
    # Late steps have less noise than the first ones, and tell more.
    late = Curves(RATE, 2).curve(1 / 2)
    assert curves.curve(1 / 2)(0.9) < late(0.9) - 1e-3
    without = Guarantee.of({**summary, "noise_decay": 1.0})
    assert mechanism_of(without) == Curves(RATE, 2)


# what comes out


def noise_of(step: NoisyStep, model, secret: Secret, number: int) -> torch.Tensor:
    step.draw_from(secret, number)
    step.begin(model, None)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])


@pytest.mark.parametrize("quantile", [None, 0.5])
def test_the_noise_that_comes_out_has_the_deviation_of_its_stage(quantile):
    """And with a noisy count, gradients and count together have it."""
    model = torch.nn.Linear(200, 200)
    noise = NoiseSchedule(first=2.0, decay=0.25, steps=16)
    step = NoisyStep(noise, 0.5, 10, clip_quantile=quantile)
    for number in range(16):
        expected = 2.0 * 0.25 ** (number // 2 / 7)
        found = noise_of(step, model, Secret.of_seed(1), number) * 10 / 0.5
        of_gradients = found.double().std().item()
        if quantile is not None:  # Andrew et al. (2021), Theorem 1, with a count moved by a half
            of_count = max(10 / 20, 5 * expected)
            of_gradients = (of_gradients**-2 + (2 * of_count) ** -2) ** -0.5
        assert of_gradients == pytest.approx(expected, rel=5 / math.sqrt(2 * len(found)))


def test_the_noise_of_a_step_follows_from_its_number():
    model, secret = torch.nn.Linear(5, 4), Secret.of_seed(3)
    in_order = NoisyStep(FALLS, 1.0, 4)
    every = [noise_of(in_order, model, secret, number) for number in range(20)]
    for number in (19, 4, 11):
        assert noise_of(NoisyStep(FALLS, 1.0, 4), model, secret, number).equal(every[number])
    with pytest.raises(ValueError, match="the noise was planned for 20 steps"):
        noise_of(in_order, model, secret, 20)


@pytest.mark.parametrize("quantile", [None, 0.5])
def test_without_decay_everything_is_as_it_was(tiny_model, tiny_data, quantile):
    """The same settings, by which an old training is known again, and the same noise."""
    config = TrainingConfig(seed=0, epochs=2, batch_size=2, sequence_length=8, batching="poisson")
    given = {"noise_multiplier": 1.5, "clip_quantile": quantile}
    step = DPSGD(**given, noise_decay=1.0).step(tiny_model(), tiny_data(), config)
    settings = {
        "noise_multiplier": 1.5, "max_grad_norm": 1.0, "expected_units": 2, "sequence_length": 8,
        "unit": "sequence",
    }  # fmt: skip
    assert step.settings == settings | ({} if quantile is None else {"clip_quantile": 0.5})
    assert step.noise_multiplier == 1.5
    spent = privacy_spent(
        noise_multiplier=falling(1.5, 1.0, 9), sample_rate=0.1, steps=9, delta=DELTA,
        max_grad_norm=1.0, accountant="rdp",
    )  # fmt: skip
    assert "noise_decay" not in spent.summary()
    schedule = NoiseSchedule(first=1.5, decay=1.0, steps=9)
    of_stages = epsilon_spent(
        noise_multiplier=schedule, sample_rate=0.1, steps=9, delta=DELTA, accountant="rdp"
    )
    assert of_stages == pytest.approx(spent.epsilon, rel=1e-9)


def test_a_planned_training_steps_with_the_noise_that_was_accounted_for(tiny_model, tiny_data):
    config = TrainingConfig(seed=0, epochs=5, batch_size=2, sequence_length=8, batching="poisson")
    plan = DPSGD(epsilon=4, accountant="rdp", noise_decay=0.5).planned(tiny_data(), config)
    step = plan.defence.step(tiny_model(), tiny_data(), config)
    assert isinstance(step, DPSGDStep)
    assert step.noise_multiplier == NoiseSchedule(
        first=plan.defence.noise_multiplier, decay=0.5, steps=plan.steps
    )
    assert step.settings["noise_decay"] == 0.5
    assert step.settings["noise_steps"] == plan.steps
    half = plan.steps // 2
    for steps in (half, plan.steps):
        orders, _ = renyi_curve(1.0, plan.sample_rate, 1)
        total = sum(
            renyi_curve(step.noise_multiplier.at(one), plan.sample_rate, 1)[1]
            for one in range(steps)
        )
        spent = plan.spent(steps)
        expected = epsilon_spent(
            noise_multiplier=step.noise_multiplier, sample_rate=plan.sample_rate, steps=steps,
            delta=plan.defence.delta, accountant="rdp",
        )  # fmt: skip
        assert spent.epsilon == expected
        # Mironov (2017), Proposition 3, is what any tighter conversion is below.
        simple = min(
            t + math.log(1 / spent.delta) / (a - 1) for a, t in zip(orders, total, strict=True)
        )
        assert 0.5 * simple < spent.epsilon <= simple
    assert 3.9 < plan.spent(plan.steps).epsilon <= 4
    assert plan.spent(half).epsilon < 3


# who says so

ENTRY = LedgerEntry(
    id="1" * 32, defence="dp-sgd", unit="sequence", sequence_length=32, noise_multiplier=2.0,
    sample_rate=RATE, steps_planned=20, max_grad_norm=1.0, accountant="pld", epsilon=1.0,
    delta=DELTA, noise_decay=0.5,
)  # fmt: skip


def test_a_ledger_names_the_decay_only_where_there_is_one():
    text = to_json([ENTRY])
    assert '"noise_decay": 0.5' in text
    assert from_json(text.encode(), where="privacy.json") == (ENTRY,)
    assert ENTRY.mechanism == Mechanism(noise_multiplier=FALLS, sample_rate=RATE, steps=20)
    constant = replace(ENTRY, noise_decay=1.0)
    assert "noise_decay" not in to_json([constant])
    assert from_json(to_json([constant]).encode(), where="privacy.json") == (constant,)
    for wrong in (0.0, 1.5):
        with pytest.raises(ValueError, match="noise_decay must lie in"):
            replace(ENTRY, noise_decay=wrong)
    with pytest.raises(ValueError, match="noise_decay must be 1 with bands 2"):
        replace(ENTRY, bands=2)
    assert asdict(ENTRY)["noise_decay"] == 0.5
    json.loads(text)


def statement(**changes) -> PrivacyStatement:
    planned = privacy_spent(
        noise_multiplier=FALLS, sample_rate=RATE, steps=20, delta=DELTA, max_grad_norm=0.5,
        accountant="pld",
    )  # fmt: skip
    fresh = Share(units=100, earlier=(), epsilon=planned.epsilon)
    return PrivacyStatement(
        defence="dp-sgd", planned=planned, units=100, sequence_length=32, held_out=0,
        ancestry=Ancestry(shares=(fresh,)), **changes,
    )  # fmt: skip


def test_a_statement_says_the_noise_and_the_steps_of_every_stage():
    own = statement()
    said = own.terms()["mechanism"]
    assert ", ".join(f"{2 * 0.5 ** (k / 7):.4g}" for k in range(8)) in said
    assert "do not depend on the text: 3, 2, 3, 2, 3, 2, 3, 2 steps." in said
    assert own.summary()["noise_decay"] == 0.5
    assert own.summary()["noise_multiplier"] == 2.0
    constant = replace(own, planned=replace(own.planned, noise_decay=1.0))
    assert "falls" not in constant.terms()["mechanism"]


def test_a_statement_says_what_gradients_and_count_have_in_every_stage():
    said = statement(clip_quantile=0.5).terms()["mechanism"]
    for k in (0, 7):
        both = 2 * 0.5 ** (k / 7)
        alone = (both**-2 - (2 * max(10 / 20, 5 * both)) ** -2) ** -0.5
        assert f"{both:.4g}" in said
        assert f"{alone:.4g}" in said


def test_noise_that_falls_drowns_a_batch_if_the_least_of_it_does():
    planned = statement().planned
    assert drowned(planned, 4.0) is None
    assert "the sum of 1 sequences" in drowned(planned, 3.9)
