"""Plans of shadow models: architecture and training of the target, of presets, or as given."""

from types import SimpleNamespace

import pytest

from tests.monitors import RecordingMonitor
from vestige import results
from vestige.audits.membership.membership import ShadowOptions
from vestige.audits.membership.shadows import plan_record, plan_shadows
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.transformer import TransformerConfig
from vestige.session import Session
from vestige.training.presets import PRESETS, preset_of

CONFIG = LSTMConfig(layers=1, embedding_size=5, hidden_size=5)
PRESET = PRESETS["next-word"]


def target(config=CONFIG, path="nowhere", task="next-word"):
    model = None if config is None else SimpleNamespace(config=config)
    return SimpleNamespace(model=model, task=task, name="it", record={"path": path})


def plan(model, log=None, seed=0, shadows=4, **options):
    run = Session("membership", {}, device="cpu", seed=seed, monitor=log or RecordingMonitor())
    return plan_shadows(run, ShadowOptions(**options), model, count=shadows)


class History:
    """A training of 4 epochs whose third has the saved weights."""

    def summary(self):
        return {"epoch": 3.0, "steps": 9}

    def rows(self):
        return [{"epoch": 3.0}]


@pytest.fixture
def trained(tmp_path):
    """Makes a target of `vestige train`, with its record."""

    def make(**changes):
        settings = {"seed": 7, "epochs": 4, "batch_size": 3, "learning_rate": 0.5, "other": 1}
        results.save(History(), tmp_path / "run", run={"configuration": settings | changes})
        return target(path=tmp_path)

    return make


def test_without_a_record_the_training_is_that_of_the_preset():
    assert plan(target(), shadows=0) is None
    result = plan(target(), seed=9)
    assert (result.models, result.count, result.seed) == ((CONFIG,), 4, 9)
    assert result.training.epochs == PRESET.training.epochs
    assert plan(target(None)).models == (PRESET.model,)
    assert plan(target(None, task="dialogue")).models == (preset_of("dialogue").model,)
    record = plan_record(result)
    assert (record["models"][0]["name"], record["models"][0]["hidden_size"]) == ("LSTMConfig", 5)
    assert record["training"]["epochs"] == PRESET.training.epochs


@pytest.mark.parametrize(
    ("options", "expected", "line"),
    [
        ({}, (3, 3, 0.5), "Shadow models are trained as it was, for 3 epochs."),
        ({"epochs": 8, "batch_size": 2}, (8, 2, 0.5), "Shadow models are trained as it was, but "
         "with --epochs 8, --batch-size 2, for 8 epochs."),
    ],
)  # fmt: skip
def test_the_training_is_that_of_the_target_up_to_its_best_epoch(trained, options, expected, line):
    log = RecordingMonitor()
    result = plan(trained(), log, **options).training
    assert (result.epochs, result.batch_size, result.learning_rate) == expected
    assert log.lines == [line]


@pytest.mark.parametrize("record", [{"batching": "poisson"}, {"epochs": "many"}])
def test_a_private_training_and_a_damaged_record_are_not_imitated(trained, record):
    assert plan(trained(**record)).training.epochs == PRESET.training.epochs


def test_architectures_are_those_of_the_paper_or_of_the_given_size(trained):
    result = plan(trained(), other_shapes=True, epochs=2)
    assert [model.hidden_size for model in result.models] == list(range(64, 353, 32))
    assert {type(model) for model in result.models} == {GRUConfig}
    assert (result.training.epochs, result.training.momentum, result.count) == (2, 0.9, 4)
    [wide] = plan(target(), hidden_size=9).models
    assert (wide.hidden_size, wide.embedding_size, wide.layers) == (9, 9, 1)
    [transformer] = plan(target(TransformerConfig()), hidden_size=66).models
    assert transformer == TransformerConfig(hidden_size=66)
