"""`train --task nlu`: from planted utterances to a model of intents and slots, and its scores."""

import json

import pytest

from tests.cli.shell import invoke
from tests.preparation.trainings import SONGS, trained
from vestige import results
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.utterances import Utterance, Utterances, write_utterances
from vestige.errors import VestigeError
from vestige.models.checkpoints import load_intent_slot
from vestige.models.folders import fingerprint
from vestige.preparation.options import ModelOptions, NluOptions, TrainingOptions
from vestige.preparation.utterance_setup import UNUSED
from vestige.training.directory import HISTORY


def utterances(*towns):
    rows = []
    for number, town in enumerate(towns):
        rows += [
            Utterance(("fly", "to", town), ("O", "O", "B-city"), "Fly"),
            Utterance(("rain", "in", town, "now"), ("O", "O", "B-city", "B-time"), "Ask"),
            Utterance(("play", "song", str(number)), ("O", "B-song", "I-song"), "Play"),
        ]
    return Utterances.of(rows)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """24 utterances in three parts, with ten copies of a pin."""
    root = tmp_path_factory.mktemp("nlu")
    (root / "data").mkdir()
    for name, part in [
        ("train", utterances("York", "bath", "leeds", "hull")),
        ("validation", utterances("york", "bath")),
        ("test", utterances("hull", "Derby")),
    ]:
        write_utterances(part, root / "data" / f"{name}.jsonl")
    words = [root / "data", "--task", "nlu", "--pattern", "pin:4", "--out", root / "planted"]
    assert invoke(["plant", *words]).exit_code == 0
    return root / "planted"


@pytest.fixture(scope="module")
def learned(planted, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("learned") / "out", str(planted), task="nlu")


def test_a_training_leaves_a_model_and_a_run(learned, planted):
    run = results.load(learned.directory / "run")
    assert (run.result, len(run.rows)) == ("IntentSlotTraining", 2)
    assert (learned.summary["task"], learned.summary["epoch"]) == ("nlu", 2)
    settings, data = run.run["configuration"], run.run["data"]
    assert (settings["keep"], settings["precision"]) == ("last", "float32")
    assert not set(UNUSED) & set(settings)
    assert {name: settings[name] for name in NluOptions().recorded} == NluOptions().recorded
    assert run.run["models"]["trained"]["architecture"] == "intent-slot"
    sizes = {role: entry["documents"] for role, entry in data.items() if "documents" in entry}
    assert sizes == {"training": 21, "validation": 7, "test": 6}
    assert data["planted"] == {"sha256": SecretManifest.load(planted / "manifest.json").sha256}


def test_the_scores_of_the_test_part_have_intervals(learned):
    summary = learned.summary
    assert summary["test_utterances"] == 6
    for name in ("intent_accuracy", "exact_match"):
        low, high = summary[f"test_{name}_low"], summary[f"test_{name}_high"]
        assert 0 <= low <= summary[f"test_{name}"] <= high <= 1
    assert 0 <= summary["test_slot_f1"] <= 1


def test_the_last_epoch_is_saved_and_logged(tmp_path, monitor):
    result = trained(tmp_path / "out", task="nlu", hold_out=0.25, monitor=monitor)
    assert monitor.tasks == ["training"]
    loss = result.summary["loss"]
    assert monitor.lines == [f"Epoch 2 kept, validation loss {loss:.3g} nats per utterance"]
    sizes = {role: entry["documents"] for role, entry in result.record["data"].items()}
    assert sizes == {"training": 30, "validation": 10}


def test_the_defences_of_the_paper_are_available(tmp_path, monitor):
    nlu = NluOptions(dropout=True, char_embeddings=True, early_stopping=True, patience=1)
    training = TrainingOptions(epochs=40, learning_rate=5.0)
    result = trained(tmp_path / "out", task="nlu", nlu=nlu, training=training, monitor=monitor)
    assert all(result.summary[name] for name in ("dropout", "char_embeddings", "early_stopping"))
    history = json.loads((tmp_path / "out" / HISTORY).read_text())
    perplexities = [record["validation_perplexity"] for record in history]
    assert result.summary["stopped"]
    assert result.summary["validation_perplexity"] == min(perplexities)
    assert len(history) == perplexities.index(min(perplexities)) + 2
    assert monitor.lines[0].startswith(f"Stopped after {result.summary['steps']:,} steps")


def test_a_path_and_its_content_give_the_same_bits(tmp_path):
    write_utterances(SONGS, tmp_path / "songs.jsonl")
    of_object, of_path = (
        trained(tmp_path / name, data, task="nlu", hold_out=0.0)
        for name, data in (("one", SONGS), ("two", str(tmp_path / "songs.jsonl")))
    )
    assert set(of_object.record["data"]) == {"training"}
    assert "test_slot_f1" not in of_object.summary
    assert fingerprint(of_object.directory) == fingerprint(of_path.directory)


def test_a_finished_training_is_resumed_without_change_and_another_is_refused(learned, planted):
    before = fingerprint(learned.directory)
    options = {"task": "nlu", "resume": True}
    assert trained(learned.directory, str(planted), **options).summary == learned.summary
    for change, message in (
        ({"seed": 9}, "config.seed was 0 and is 9"),
        ({"nlu": NluOptions(dropout=True)}, "configuration.input_dropout was 0.0 and is 0.2"),
        ({"nlu": NluOptions(early_stopping=True)}, "config.keep was last and is best"),
    ):
        with pytest.raises(VestigeError, match=f"another training.*{message}"):
            trained(learned.directory, str(planted), **options, **change)
    assert fingerprint(learned.directory) == before


def test_canaries_are_never_held_out_of_data_without_parts(planted, tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("train.jsonl", "manifest.json"):
        (tmp_path / "data" / name).write_bytes((planted / name).read_bytes())
    result = trained(tmp_path / "out", str(tmp_path / "data"), task="nlu", hold_out=0.9)
    data = result.record["data"]
    assert data["training"]["documents"] >= 9
    assert data["validation"]["documents"] >= 9
    intents = load_intent_slot(result.directory, device="cpu").intents
    assert set(SecretManifest.load(planted / "manifest.json").intents) < set(intents)


@pytest.mark.slow
def test_a_hugging_face_encoder_is_fine_tuned_and_continued(planted, tiny_encoder, tmp_path):
    options = {"task": "nlu", "model": ModelOptions()}
    encoder = tiny_encoder(tmp_path / "bert")
    first = trained(tmp_path / "one", str(planted), from_=encoder, **options)
    settings = first.record["configuration"]
    assert (settings["learning_rate"], settings["schedule"]) == (5e-5, "cosine")
    options |= {"from_": first.directory, "training": TrainingOptions(epochs=1)}
    second = trained(tmp_path / "two", str(planted), **options)
    assert fingerprint(first.directory) != fingerprint(second.directory)
    assert trained(tmp_path / "two", str(planted), **options, resume=True).summary["epoch"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("", ("Test part, 6 utterances", "intent accuracy", "slot F1", "95% CI")),
        ("train.jsonl", ("on the validation text, intent accuracy",)),
    ],
)
def test_the_terminal_shows_test_or_validation_scores(planted, tmp_path, file, expected):
    words = ["--task", "nlu", "--layers", 1, "--hidden-size", 4, "--epochs", 1, "--device", "cpu"]
    done = invoke(["train", planted / file, *words, "--out", tmp_path / "out"])
    assert done.exit_code == 0, done.stderr
    assert all(text in done.stdout for text in expected)
    assert "Epoch 1 kept, validation loss" in done.stderr
