"""`train --task nlu`: from planted utterances to a model of intents and slots, and its scores."""

import json

import pytest

from tests.cli.shell import invoke
from tests.preparation.trainings import SONGS, trained
from vestige import results
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.formats.utterances import read_utterances
from vestige.data.utterances import Utterance, Utterances, write_utterances
from vestige.errors import VestigeError
from vestige.models.checkpoints import load_intent_slot
from vestige.models.folders import fingerprint
from vestige.preparation.options import ModelOptions, NluOptions, TrainingOptions
from vestige.preparation.utterance_setup import UNUSED
from vestige.training.directory import HISTORY
from vestige.training.new_models import words_of


def spoken(*towns):
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
    """A dozen utterances in three parts, with ten copies of a pin."""
    root = tmp_path_factory.mktemp("nlu")
    (root / "spoken").mkdir()
    for name, part in [
        ("train", spoken("York", "bath", "leeds", "hull")),
        ("validation", spoken("york", "bath")),
        ("test", spoken("hull", "Derby")),
    ]:
        write_utterances(part, root / "spoken" / f"{name}.jsonl")
    words = [root / "spoken", "--task", "nlu", "--pattern", "pin:4", "--out", root / "planted"]
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
    sizes = {role: one["documents"] for role, one in data.items() if "documents" in one}
    assert sizes == {"training": 21, "validation": 7, "test": 6}
    assert data["planted"] == {"sha256": SecretManifest.load(planted / "manifest.json").sha256}


def test_the_scores_of_the_test_part_have_intervals(learned):
    summary = learned.summary
    assert summary["test_utterances"] == 6
    for name in ("intent_accuracy", "exact_match"):
        low, high = summary[f"test_{name}_low"], summary[f"test_{name}_high"]
        assert 0 <= low <= summary[f"test_{name}"] <= high <= 1
    assert 0 <= summary["test_slot_f1"] <= 1


def test_the_model_has_all_candidates_and_labels_of_the_secret(learned, planted):
    model = load_intent_slot(learned.directory, device="cpu")
    manifest, parts = SecretManifest.load(planted / "manifest.json"), read_utterances(planted)
    learnt = {"<unk>", "<eos>", *words_of(parts.train, parts.validation)}
    assert set(model.vocabulary.words) == learnt | set(manifest.words)
    assert set("0123456789") < set(model.vocabulary.words)
    assert "PinIntent" in model.intents
    assert {"B-canary", "I-canary"} < set(model.tags)


def test_the_last_epoch_is_saved_and_logged(tmp_path, told):
    found = trained(tmp_path / "out", task="nlu", hold_out=0.25, monitor=told)
    assert told.tasks == ["training"]
    loss = found.summary["loss"]
    assert told.lines == [f"Epoch 2 kept, validation loss {loss:.3g} nats per utterance"]
    sizes = {role: one["documents"] for role, one in found.record["data"].items()}
    assert sizes == {"training": 30, "validation": 10}


def test_the_defences_of_the_paper_are_available(tmp_path, told):
    nlu = NluOptions(dropout=True, char_embeddings=True, early_stopping=True, patience=1)
    training = TrainingOptions(epochs=40, learning_rate=5.0)
    found = trained(tmp_path / "out", task="nlu", nlu=nlu, training=training, monitor=told)
    assert all(found.summary[name] for name in ("dropout", "char_embeddings", "early_stopping"))
    history = json.loads((tmp_path / "out" / HISTORY).read_text())
    perplexities = [record["validation_perplexity"] for record in history]
    assert found.summary["stopped"]
    assert found.summary["validation_perplexity"] == min(perplexities)
    assert len(history) == perplexities.index(min(perplexities)) + 2
    assert told.lines[0].startswith(f"Stopped after {found.summary['steps']:,} steps")


def test_vectors_and_lower_case_determine_the_vocabulary(planted, tmp_path):
    (tmp_path / "some.vec").write_text("".join(f"{w} 1 0.5\n" for w in ("derby", "york", "fly")))
    nlu = NluOptions(vectors=str(tmp_path / "some.vec"), vectors_frozen=True)
    shape = ModelOptions(layers=1, hidden_size=4)
    found = trained(tmp_path / "out", str(planted), task="nlu", nlu=nlu, model=shape)
    model = load_intent_slot(found.directory, device="cpu")
    assert "Derby" in model.vocabulary.words  # of the test part, by its vector
    assert (model.config.embedding_size, model.config.frozen_embeddings) == (2, True)
    assert found.summary["vectors"].endswith("some.vec")
    lower = trained(tmp_path / "lower", str(planted), task="nlu", nlu=NluOptions(lowercase=True))
    words = load_intent_slot(lower.directory, device="cpu").vocabulary.words
    assert "york" in words
    assert "York" not in words


def test_a_path_and_its_content_give_the_same_bits(tmp_path):
    write_utterances(SONGS, tmp_path / "songs.jsonl")
    one, two = (
        trained(tmp_path / name, data, task="nlu", hold_out=0.0)
        for name, data in (("one", SONGS), ("two", str(tmp_path / "songs.jsonl")))
    )
    assert set(one.record["data"]) == {"training"}
    assert "test_slot_f1" not in one.summary
    assert fingerprint(one.directory) == fingerprint(two.directory)


def test_a_model_continues_from_another_training(learned, planted, tmp_path):
    again = trained(
        tmp_path / "out", str(planted), task="nlu", from_=learned.directory, model=ModelOptions()
    )
    one, other = (load_intent_slot(found.directory, device="cpu") for found in (learned, again))
    assert (one.config, one.vocabulary) == (other.config, other.vocabulary)
    assert again.record["models"]["from"]["sha256"] == fingerprint(learned.directory)
    assert fingerprint(learned.directory) != fingerprint(again.directory)


def test_a_finished_training_is_resumed_without_change_and_another_is_refused(learned, planted):
    before = fingerprint(learned.directory)
    again = {"task": "nlu", "resume": True}
    assert trained(learned.directory, str(planted), **again).summary == learned.summary
    for other, name in (
        ({"seed": 9}, "config.seed was 0 and is 9"),
        ({"nlu": NluOptions(dropout=True)}, "configuration.input_dropout was 0.0 and is 0.2"),
        ({"nlu": NluOptions(early_stopping=True)}, "config.keep was last and is best"),
    ):
        with pytest.raises(VestigeError, match=f"another training.*{name}"):
            trained(learned.directory, str(planted), **again, **other)
    assert fingerprint(learned.directory) == before


def test_canaries_are_never_held_out_of_data_without_parts(planted, tmp_path):
    (tmp_path / "spoken").mkdir()
    for name in ("train.jsonl", "manifest.json"):
        (tmp_path / "spoken" / name).write_bytes((planted / name).read_bytes())
    found = trained(tmp_path / "out", str(tmp_path / "spoken"), task="nlu", hold_out=0.9)
    data = found.record["data"]
    assert data["training"]["documents"] >= 9
    assert data["validation"]["documents"] >= 9
    intents = load_intent_slot(found.directory, device="cpu").intents
    assert set(SecretManifest.load(planted / "manifest.json").intents) < set(intents)


@pytest.mark.slow
def test_a_hugging_face_encoder_is_fine_tuned_and_continued(planted, tiny_encoder, tmp_path):
    encoder, shape = tiny_encoder(tmp_path / "bert"), {"model": ModelOptions()}
    one = trained(tmp_path / "one", str(planted), task="nlu", from_=encoder, **shape)
    settings = one.record["configuration"]
    assert (settings["learning_rate"], settings["schedule"]) == (5e-5, "cosine")
    more = {"task": "nlu", "from_": one.directory, **shape, "training": TrainingOptions(epochs=1)}
    two = trained(tmp_path / "two", str(planted), **more)
    assert fingerprint(one.directory) != fingerprint(two.directory)
    assert trained(tmp_path / "two", str(planted), **more, resume=True).summary["epoch"] == 1


@pytest.mark.slow
def test_the_terminal_shows_test_or_validation_scores(planted, tmp_path):
    words = ["--task", "nlu", "--layers", 1, "--hidden-size", 4, "--epochs", 1, "--device", "cpu"]
    for number, (data, shown) in enumerate(
        [
            (planted, ("Test part, 6 utterances", "intent accuracy", "slot F1", "95% CI")),
            (planted / "train.jsonl", ("on the validation text, intent accuracy",)),
        ]
    ):
        done = invoke(["train", data, *words, "--out", tmp_path / str(number)])
        assert done.exit_code == 0, done.stderr
        assert all(text in done.stdout for text in shown)
        assert "Epoch 1 kept, validation loss" in done.stderr


def test_an_intent_slot_model_is_refused_as_a_language_model(learned, tmp_path):
    done = invoke(
        ["compare", f"a={learned.directory}", f"b={learned.directory}", "--out", tmp_path / "o"]
    )
    assert done.exit_code == 2
