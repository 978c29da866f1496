"""Training of text, of intents and slots, and of pairs: what is recorded, told and left behind."""

import json
from dataclasses import replace

import pytest
import torch

from tests.preparation.jobs import LINES, Told
from vestige import results
from vestige.data.corpus import Corpus
from vestige.data.utterances import Utterance, Utterances
from vestige.defences.methods.regularizers import Goldfish
from vestige.errors import DataError
from vestige.models.checkpoints import load_intent_slot, load_model, load_seq2seq
from vestige.preparation.options import ModelOptions, NluOptions, TrainingOptions
from vestige.preparation.plant import plant
from vestige.preparation.train import train
from vestige.preparation.utterances import UNUSED
from vestige.training.presets import PAIR_PRESETS

CORPUS = Corpus.from_texts(LINES, users=[f"user {number % 8}" for number in range(40)])
SMALL = ModelOptions(layers=1, hidden_size=4)
SHORT = TrainingOptions(epochs=2, batch_size=4, sequence_length=5)


def trained(out, data=CORPUS, **given):
    usual = {"model": SMALL, "training": SHORT, "hold_out": 0.3, "device": "cpu"}
    return train(data, out=out, **{**usual, **given})


def test_the_record_says_what_was_held_out_and_left_out(tmp_path):
    found = trained(tmp_path / "out", max_documents_per_user=3, hold_out=0.4)
    division = results.load(tmp_path / "out" / "run").run["division"]
    assert division["left_out_documents"] == 40 - 8 * 3
    sizes = {role: one["documents"] for role, one in found.record["data"].items()}
    assert division["held_out_documents"] == sizes["validation"] > 0
    assert sizes["training"] + sizes["validation"] == 24


@pytest.mark.slow
@pytest.mark.parametrize("hold_out", [0.0, 0.3])
def test_word_frequencies_are_of_the_text_that_judges(tmp_path, hold_out):
    summary = trained(tmp_path / "out", hold_out=hold_out).summary
    assert summary["judged_by"] == ("validation" if hold_out else "training")
    assert (summary["validation_perplexity"] is None) == (not hold_out)


def test_a_defence_batches_texts_as_it_needs_and_is_recorded(tmp_path):
    found = trained(tmp_path / "out", defence=Goldfish(k=3))
    recorded = found.record["configuration"]
    assert recorded["defence"]["name"] == "goldfish"
    assert recorded["defence"]["k"] == 3
    [entry] = json.loads((found.model / "privacy.json").read_text())["trainings"]
    assert entry["defence"] == "goldfish"
    assert entry["steps"] == found.summary["steps"]


def test_each_part_is_encoded_before_training_and_the_kept_epoch_is_told(tmp_path):
    told = Told()
    trained(tmp_path / "out", monitor=told)
    assert told.tasks == ["encoding", "encoding", "training"]
    assert told.lines[0].startswith("Validation: ")
    assert told.lines[1].split(" kept, ")[0] in ("Epoch 1", "Epoch 2")


def test_batches_of_users_hold_out_whole_users(tmp_path):
    training = TrainingOptions(epochs=1, batch_size=4, sequence_length=5, batching="poisson-users")
    told = Told()
    trained(tmp_path / "out", training=training, hold_out=0.7, monitor=told)
    assert "chosen by the hash of each user" in told.lines[0]
    with pytest.raises(DataError, match="no user column"):
        trained(tmp_path / "other", Corpus.from_texts(LINES), training=training)
    assert not (tmp_path / "other").exists()


SONGS = Utterances.of(
    Utterance(("play", f"song{number}"), ("O", "B-song"), "Play") for number in range(40)
)
SMALL_NLU = ModelOptions(layers=1, hidden_size=4, embedding_size=4)


def trained_nlu(out, data=SONGS, **given):
    usual = {"task": "nlu", "model": SMALL_NLU, "training": TrainingOptions(epochs=2)}
    return train(data, out=out, device="cpu", **{**usual, **given})


def test_the_last_epoch_is_kept_and_told(tmp_path):
    told = Told()
    found = trained_nlu(tmp_path / "out", monitor=told)
    assert found.summary["epoch"] == 2
    assert told.tasks == ["training"]
    [line] = told.lines
    loss = found.summary["loss"]
    assert line == f"Epoch 2 kept, validation loss {loss:.3g} nats per utterance"


def test_the_record_has_the_habits_and_no_setting_that_is_not_looked_at(tmp_path):
    nlu = NluOptions(dropout=True)
    recorded = trained_nlu(tmp_path / "out", nlu=nlu).record["configuration"]
    assert {name: recorded[name] for name in nlu.recorded} == nlu.recorded
    assert not set(UNUSED) & set(recorded)
    assert (recorded["epochs"], recorded["batch_size"]) == (2, 32)


def test_the_record_says_which_utterances_were_learnt_and_which_validated(tmp_path):
    data = trained_nlu(tmp_path / "out", hold_out=0.25).record["data"]
    assert {role: one["documents"] for role, one in data.items()} == {
        "training": 30,
        "validation": 10,
    }
    alone = trained_nlu(tmp_path / "alone", hold_out=0.0).record["data"]
    assert set(alone) == {"training"}


def test_the_seal_of_what_was_planted_is_recorded(tmp_path):
    planted = tmp_path / "planted"
    manifest = plant(SONGS, task="nlu", pattern="pin:2", out=planted).manifest
    found = trained_nlu(tmp_path / "out", planted)
    run = results.load(tmp_path / "out" / "run").run
    assert run["data"]["planted"] == {"sha256": manifest.sha256}
    assert set(load_intent_slot(found.directory, device="cpu").intents) == {"Play", "PinIntent"}


def test_an_early_stop_is_told(tmp_path):
    told = Told()
    nlu = NluOptions(early_stopping=True, patience=1)
    training = TrainingOptions(epochs=40, learning_rate=5.0)
    found = trained_nlu(tmp_path / "out", nlu=nlu, training=training, monitor=told)
    assert found.summary["stopped"]
    assert found.summary["steps"] < 40 * 2
    assert told.lines[0].startswith(f"Stopped after {found.summary['steps']:,} steps")


NUMBERS = ["one", "two", "three", "four", "five", "six"]
PAIRS = Corpus.from_texts(
    [f"say {word} now" for word in NUMBERS] * 4,
    sources=[f"dites {word} vite" for word in NUMBERS] * 4,
)
SMALL_PAIRS = ModelOptions(hidden_size=4)
SHORT_PAIRS = TrainingOptions(epochs=1, batch_size=8, sequence_length=6)


def trained_pairs(out, data=PAIRS, **given):
    usual = {"task": "dialogue", "model": SMALL_PAIRS, "training": SHORT_PAIRS, "hold_out": 0.3}
    return train(data, out=out, device="cpu", **{**usual, **given})


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return trained_pairs(tmp_path_factory.mktemp("pairs") / "small")


def test_sources_and_targets_have_vocabularies_of_their_own(small):
    model = load_seq2seq(small.directory, device="cpu")
    assert {"dites", "vite"} <= set(model.source_vocabulary.words)
    assert {"say", "now"} <= set(model.vocabulary.words)
    assert not {"say", "now"} & set(model.source_vocabulary.words)


def test_what_was_not_asked_for_is_the_presets(small):
    model, plan = load_seq2seq(small.directory, device="cpu"), PAIR_PRESETS["dialogue"]
    assert model.config == replace(plan.model, hidden_size=4, embedding_size=4)
    recorded = small.record["configuration"]
    assert recorded["learning_rate"] == plan.training.learning_rate
    assert (recorded["epochs"], recorded["batch_size"]) == (1, 8)


def test_a_record_says_what_was_held_out_and_both_vocabularies(small):
    run = results.load(small.directory / "run").run
    model = load_seq2seq(small.directory, device="cpu")
    found = run["models"]["trained"]
    assert found["vocabulary"] == model.vocabulary.fingerprint()
    assert found["source_vocabulary"] == model.source_vocabulary.fingerprint()
    parts = [run["data"][role]["documents"] for role in ("training", "validation")]
    assert sum(parts) == len(PAIRS)
    assert run["division"]["held_out_documents"] == parts[1] > 0


def test_nothing_held_out_has_no_validation(tmp_path):
    found = trained_pairs(tmp_path / "out", hold_out=0.0)
    assert set(found.record["data"]) == {"training"}
    assert found.summary["validation_perplexity"] is None


def test_the_vocabularies_of_another_training_are_taken_as_they_are(tmp_path, small):
    model = load_seq2seq(small.directory, device="cpu")
    other = Corpus.from_texts(["good day"] * 9, sources=["bon jour"] * 9)
    for number, given in enumerate((small.directory, model)):
        settings = replace(SMALL_PAIRS, vocabulary=given)
        out = trained_pairs(tmp_path / str(number), other, model=settings, hold_out=0.0).directory
        again = load_seq2seq(out, device="cpu")
        assert again.vocabulary.fingerprint() == model.vocabulary.fingerprint()
        assert again.source_vocabulary.fingerprint() == model.source_vocabulary.fingerprint()


def test_a_loaded_model_is_continued_as_a_copy(tmp_path, small):
    start = load_seq2seq(small.directory, device="cpu")
    before = {name: one.clone() for name, one in start.state_dict().items()}
    out = trained_pairs(tmp_path / "out", from_=start, model=ModelOptions()).directory
    after = load_seq2seq(out, device="cpu").state_dict()
    assert all(torch.equal(before[name], one) for name, one in start.state_dict().items())
    assert not all(torch.equal(before[name], after[name]) for name in before)


def test_a_vocabulary_without_sources_is_refused(tmp_path):
    text = ModelOptions(layers=1, hidden_size=4)
    plain = train(
        Corpus.from_texts(list(PAIRS)), out=tmp_path / "plain", model=text, training=SHORT_PAIRS
    )
    for given in (plain.directory, load_model(plain.directory)):
        settings = replace(SMALL_PAIRS, vocabulary=given)
        with pytest.raises(ValueError, match="`vocabulary` must be a model of `task` translation"):
            trained_pairs(tmp_path / "out", model=settings)
    assert not (tmp_path / "out").exists()
