"""Defences by name: their registry, their records and their default batches."""

import importlib.metadata
import json
import textwrap
from dataclasses import asdict, is_dataclass, replace

import pytest

from vestige.defences.methods.private import DPSGD, DPFedAvg
from vestige.defences.methods.regularizers import Adversarial, Goldfish, Triplet
from vestige.defences.registry import DEFENCES, Defence, NoDefence, defences, settings_of
from vestige.preparation import defence_options
from vestige.privacy.accounting import Mechanism, PrivacySpent, default_delta
from vestige.registry import Registry
from vestige.training.config import TrainingConfig
from vestige.training.loop import train

NAMES = {
    "adversarial": Adversarial,
    "dp-fedavg": DPFedAvg,
    "dp-sgd": DPSGD,
    "goldfish": Goldfish,
    "triplet": Triplet,
}


@pytest.mark.parametrize(("name", "cls"), NAMES.items())
def test_a_defence_is_made_again_from_its_record(name, cls):
    assert defences()[name] is cls
    defence = cls(**({"noise_multiplier": 1.0} if name.startswith("dp") else {}))
    assert isinstance(defence, Defence)
    assert is_dataclass(defence)
    assert hash(defence) == hash(replace(defence))
    record = json.loads(json.dumps(settings_of(defence)))
    assert record.pop("name") == name
    assert cls(**record) == defence


def test_no_defence_changes_nothing(tiny_model, tiny_data):
    config = TrainingConfig(seed=0)
    assert NoDefence().suited(config) is config
    assert NoDefence().step(tiny_model(), tiny_data(), config) is None
    assert settings_of(NoDefence()) == {"name": "none"}


PLUGIN = '''
    from dataclasses import dataclass
    from typing import ClassVar

    from vestige.defences.registry import register

    @register
    @dataclass(frozen=True, kw_only=True)
    class Halved:
        """Half of every gradient.

        Attributes:
            share: Factor of the gradient.
            begin: First step with the defence.
        """

        name: ClassVar[str] = "halved"
        begin: int
        share: float = 0.5

        def suited(self, config, options=None):
            return config

        def step(self, model, data, config):
            from vestige.training.steps import plain_step

            plain = plain_step(max_grad_norm=config.max_grad_norm)

            def halved(model, batch, state):
                result = plain(model, batch, state)
                for parameter in model.parameters():
                    parameter.grad *= self.share
                return result

            return halved
'''


def test_another_package_adds_a_defence_by_an_entry_point(
    tmp_path, monkeypatch, tiny_model, tiny_data
):
    (tmp_path / "plugin_defence.py").write_text(textwrap.dedent(PLUGIN))
    monkeypatch.syspath_prepend(tmp_path)
    point = importlib.metadata.EntryPoint("halved", "plugin_defence", "vestige.defences")
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [point] if "defences" in group else []
    )
    fresh = Registry("defence", package="vestige.defences.methods", group="vestige.defences")
    for name in DEFENCES.names():
        fresh.add(name, DEFENCES[name])
    monkeypatch.setattr("vestige.defences.registry.DEFENCES", fresh)

    options = defence_options.options_class()
    defence = defence_options.as_defence(options(defence="halved", share=0.25, begin=3))
    with pytest.raises(ValueError, match="`defence` halved needs `begin`"):
        defence_options.as_defence(options(defence="halved"))
    parameter = options.__dataclass_fields__["share"].type.__metadata__[-1]
    assert parameter.help == "halved: Factor of the gradient. [0.5]"

    model, data, config = tiny_model(), tiny_data(), TrainingConfig(seed=0, epochs=1)
    history = train(model, data, config=config, step=defence.step(model, data, config))
    assert history.epochs[-1].step > 0
    assert settings_of(defence) == {"name": "halved", "share": 0.25, "begin": 3}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DPSGD(), "one of `epsilon` and `noise_multiplier`, got neither"),
        (lambda: DPSGD(epsilon=8, noise_multiplier=1), "got both"),
        (lambda: DPSGD(epsilon=0), "`epsilon` must be positive and finite, got 0"),
        (lambda: DPFedAvg(noise_multiplier=-1), "`noise_multiplier` must be at least 0"),
        (lambda: DPSGD(epsilon=8, max_grad_norm=0), "`max_grad_norm` must be positive"),
        (lambda: DPSGD(epsilon=8, delta=2), r"`delta` must lie in \[1e-12, 1\), got 2"),
        (lambda: DPSGD(epsilon=8, accountant="gdp"), "accountant must be one of"),
        (lambda: DPFedAvg(epsilon=8, local_learning_rate=0), "`local_learning_rate` must be posit"),
        (lambda: Adversarial(weight=-1), "`weight` must be at least 0"),
        (lambda: Triplet(weight=float("nan")), "`weight` must be at least 0"),
        (lambda: Triplet(pairing="across"), "pairing must be one of"),
        (lambda: Goldfish(k=1), "k must be at least 2"),
        (lambda: Goldfish(context=0), "context must be at least 1"),
        (lambda: DPSGD(epsilon=8).noise, "noise_multiplier must be given for a step of dp-sgd"),
    ],
)
def test_invalid_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "unit"), [(DPSGD, "sequence"), (DPFedAvg, "user")])
def test_a_plan_spends_almost_all_of_epsilon(tiny_data, cls, unit):
    data, config = tiny_data(), TrainingConfig(seed=0, epochs=2, batch_size=2, sequence_length=8)
    config = cls(epsilon=4).suited(config)
    plan = cls(epsilon=4, accountant="rdp").planned(data, config)
    assert (plan.unit, plan.defence.delta) == (unit, default_delta(plan.units))
    assert plan.steps == 2 * -(-plan.units // 2)
    spent = plan.spent(plan.steps)
    assert 3.9 < spent.epsilon <= 4
    noise = plan.defence.noise_multiplier
    assert spent == PrivacySpent.of(
        Mechanism(noise_multiplier=noise, sample_rate=2 / plan.units, steps=plan.steps),
        delta=plan.defence.delta,
        max_grad_norm=1.0,
        unit=unit,
        accountant="rdp",
    )
    assert cls(**asdict(plan.defence)) == plan.defence


@pytest.mark.parametrize(
    ("defence", "options", "expected"),
    [
        (DPSGD(epsilon=8), {}, ("poisson", "adam", 1e-3)),
        (DPSGD(epsilon=8), {"learning_rate": 0.2}, ("poisson", "adam", 0.2)),
        (DPSGD(epsilon=8), {"optimizer": "sgd"}, ("poisson", "sgd", 20.0)),
        (DPSGD(epsilon=8, unit="user"), {}, ("poisson-users", "adam", 1e-3)),
        (DPSGD(epsilon=8), None, ("poisson", "sgd", 20.0)),
        (DPFedAvg(epsilon=8), {}, ("poisson-users", "sgd", 1.0)),
        (DPFedAvg(epsilon=8), {"learning_rate": 3.0}, ("poisson-users", "sgd", 3.0)),
        (DPFedAvg(epsilon=8), {"optimizer": "adam"}, ("poisson-users", "sgd", 20.0)),
        (Adversarial(), {}, ("users", "sgd", 20.0)),
        (Triplet(), {}, ("users", "sgd", 20.0)),
        (Triplet(pairing="in-batch"), {}, ("documents", "sgd", 20.0)),
        (Goldfish(), {}, ("documents", "sgd", 20.0)),
    ],
)
def test_a_defence_determines_default_batches_and_optimizer(defence, options, expected):
    config = TrainingConfig(seed=0, optimizer="sgd", learning_rate=20.0)
    result = defence.suited(config, options)
    assert (result.batching, result.optimizer, result.learning_rate) == expected


@pytest.mark.parametrize(
    ("defence", "batching", "message"),
    [
        (Triplet(), "stream", "`batching` stream must not come with `defence` triplet"),
        (
            DPSGD(epsilon=8, unit="sequence"),
            "poisson-users",
            "`unit` sequence must not come with `batching` poisson-u",
        ),
    ],
)
def test_batches_that_conflict_with_the_defence_are_refused(defence, batching, message):
    config = TrainingConfig(seed=0, batching=batching)
    with pytest.raises(ValueError, match=message):
        defence.suited(config, {"batching": batching})
