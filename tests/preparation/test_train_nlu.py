"""Training of intents and slots: what is recorded, scored and told."""

from tests.preparation.jobs import Told
from vestige import results
from vestige.data.utterances import Utterance, Utterances
from vestige.models.checkpoints import load_intent_slot
from vestige.preparation.options import ModelOptions, NluOptions, TrainingOptions
from vestige.preparation.plant import plant
from vestige.preparation.train import train
from vestige.preparation.utterances import UNUSED

SONGS = Utterances.of(
    Utterance(("play", f"song{number}"), ("O", "B-song"), "Play") for number in range(40)
)
SMALL = ModelOptions(layers=1, hidden_size=4, embedding_size=4)


def trained(out, data=SONGS, **given):
    usual = {"task": "nlu", "model": SMALL, "training": TrainingOptions(epochs=2)}
    return train(data, out=out, device="cpu", **{**usual, **given})


def test_the_last_epoch_is_kept_and_told(tmp_path):
    told = Told()
    found = trained(tmp_path / "out", monitor=told)
    assert found.summary["epoch"] == 2
    assert told.tasks == ["training"]
    [line] = told.lines
    loss = found.summary["loss"]
    assert line == f"Epoch 2 kept, validation loss {loss:.3g} nats per utterance"


def test_the_record_has_the_habits_and_no_setting_that_is_not_looked_at(tmp_path):
    nlu = NluOptions(dropout=True)
    recorded = trained(tmp_path / "out", nlu=nlu).record["configuration"]
    assert {name: recorded[name] for name in nlu.recorded} == nlu.recorded
    assert not set(UNUSED) & set(recorded)
    assert (recorded["epochs"], recorded["batch_size"]) == (2, 32)


def test_the_record_says_which_utterances_were_learnt_and_which_validated(tmp_path):
    data = trained(tmp_path / "out", hold_out=0.25).record["data"]
    assert {role: one["documents"] for role, one in data.items()} == {
        "training": 30,
        "validation": 10,
    }
    alone = trained(tmp_path / "alone", hold_out=0.0).record["data"]
    assert set(alone) == {"training"}


def test_the_seal_of_what_was_planted_is_recorded(tmp_path):
    planted = tmp_path / "planted"
    manifest = plant(SONGS, task="nlu", pattern="pin:2", out=planted).manifest
    found = trained(tmp_path / "out", planted)
    run = results.load(tmp_path / "out" / "run").run
    assert run["data"]["planted"] == {"sha256": manifest.sha256}
    assert set(load_intent_slot(found.directory, device="cpu").intents) == {"Play", "PinIntent"}


def test_an_early_stop_is_told(tmp_path):
    told = Told()
    nlu = NluOptions(early_stopping=True, patience=1)
    training = TrainingOptions(epochs=40, learning_rate=5.0)
    found = trained(tmp_path / "out", nlu=nlu, training=training, monitor=told)
    assert found.summary["stopped"]
    assert found.summary["steps"] < 40 * 2
    assert told.lines[0].startswith(f"Stopped after {found.summary['steps']:,} steps")
