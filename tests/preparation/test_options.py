"""Options of `train` and of its defences: their tasks and their values."""

from dataclasses import dataclass, fields

import pytest
from cyclopts import Parameter

from tests.preparation.trainings import CORPUS
from vestige.cli.options import flags_of
from vestige.defences.methods.private import DPSGD
from vestige.defences.methods.regularizers import Goldfish
from vestige.defences.registry import NoDefence
from vestige.preparation.defence_options import DefenceOptions, as_defence, as_options
from vestige.preparation.options import (
    ModelOptions,
    NluOptions,
    TrainingOptions,
    reject_other_tasks,
)
from vestige.preparation.train import ONLY, train
from vestige.session import Session
from vestige.training.config import TrainingConfig


def test_training_options_are_settings_of_the_configuration():
    assert set(TrainingOptions().given) <= {field.name for field in fields(TrainingConfig)}
    assert ModelOptions().shape == {}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Shape:
    """Shape."""

    width: int | None = None
    depth: int = 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "text", "shape": Shape(width=4), "seed": 3}, None),
        ({"task": "pairs", "shape": Shape(width=4, depth=1)}, None),
        ({"task": "nlu", "shape": Shape(depth=9), "column": "words"}, None),
        ({"task": "text", "shape": Shape(), "column": "tokens"}, None),
        ({"task": "text", "column": "words"}, "`column` needs `task` nlu"),
        ({"task": "nlu", "shape": Shape(width=4)}, "`width` needs `task` text or pairs"),
    ],
)
def test_an_option_of_another_task_must_have_its_default(arguments, message):
    tasks = {("text", "pairs"): ("width",), ("nlu",): ("column",)}
    defaults = {"task": "text", "shape": Shape(), "column": "tokens", "seed": 0}
    session = Session("learn", {**defaults, **arguments}, defaults=defaults)
    if message is None:
        reject_other_tasks(session, arguments["task"], tasks)
        return
    with pytest.raises(ValueError, match=f"^{message}$"):
        reject_other_tasks(session, arguments["task"], tasks)


def test_options_of_one_task_are_options_of_train():
    known = {name.rstrip("_") for name in flags_of(train)}
    assert {name for names in ONLY.values() for name in names} <= known


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"from_": "a", "model": ModelOptions(layers=2)}, "`layers` does not go with `from_`"),
        ({"model": ModelOptions(lora_rank=2)}, "`lora_rank` needs `from_`"),
        (
            {"model": ModelOptions(vocabulary="a", vocab_size=5)},
            "`vocab_size` does not go with `vocabulary`",
        ),
        ({"task": "nlu", "nlu": NluOptions(patience=3)}, "`patience` needs `early_stopping`"),
        (
            {"task": "dialogue", "model": ModelOptions(architecture="transformer")},
            "`architecture` must be lstm or gru with `task` dialogue",
        ),
        ({"defence": DefenceOptions(epsilon=8.0)}, "`epsilon` needs `defence` dp-fedavg or dp-sgd"),
        (
            {"defence": DefenceOptions(defence="goldfish", weight=1.0)},
            "`weight` needs `defence` adversarial or triplet",
        ),
    ],
)
def test_conflicting_options_are_refused_without_files(tmp_path, options, message):
    """`tests/cli/refused` has more."""
    with pytest.raises(ValueError, match=message):
        train(CORPUS, **options, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_defence_is_made_from_its_options():
    options = DefenceOptions(defence="dp-sgd", epsilon=8.0, max_grad_norm=0.5)
    assert as_defence(options) == DPSGD(epsilon=8.0, max_grad_norm=0.5)
    assert as_defence(DefenceOptions()) == as_defence(None) == NoDefence()
    defence = Goldfish(k=3)
    assert as_defence(defence) is defence
    for defence in (DPSGD(epsilon=8.0, physical_batch_size=2), Goldfish(k=3), Goldfish()):
        assert as_defence(as_options(defence)) == defence


def test_settings_of_defences_are_options():
    names = {field.name for field in fields(DefenceOptions)}
    assert {"epsilon", "weight", "pairing", "k", "unit", "local_epochs"} <= names
    assert "context" not in names
