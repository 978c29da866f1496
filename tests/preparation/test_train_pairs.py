"""Training of a model that predicts texts from their sources."""

from dataclasses import replace

import pytest
import torch

from vestige import results
from vestige.data.corpus import Corpus
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.preparation.options import ModelOptions, TrainingOptions
from vestige.preparation.train import train
from vestige.training.presets import PAIR_PRESETS

NUMBERS = ["one", "two", "three", "four", "five", "six"]
PAIRS = Corpus.from_texts(
    [f"say {word} now" for word in NUMBERS] * 4,
    sources=[f"dites {word} vite" for word in NUMBERS] * 4,
)
SMALL = ModelOptions(hidden_size=4)
SHORT = TrainingOptions(epochs=1, batch_size=8, sequence_length=6)


def trained(out, data=PAIRS, **given):
    usual = {"task": "dialogue", "model": SMALL, "training": SHORT, "hold_out": 0.3}
    return train(data, out=out, device="cpu", **{**usual, **given})


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("pairs") / "small")


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
    found = trained(tmp_path / "out", hold_out=0.0)
    assert set(found.record["data"]) == {"training"}
    assert found.summary["validation_perplexity"] is None


def test_the_vocabularies_of_another_training_are_taken_as_they_are(tmp_path, small):
    model = load_seq2seq(small.directory, device="cpu")
    other = Corpus.from_texts(["good day"] * 9, sources=["bon jour"] * 9)
    for number, given in enumerate((small.directory, model)):
        settings = replace(SMALL, vocabulary=given)
        out = trained(tmp_path / str(number), other, model=settings, hold_out=0.0).directory
        again = load_seq2seq(out, device="cpu")
        assert again.vocabulary.fingerprint() == model.vocabulary.fingerprint()
        assert again.source_vocabulary.fingerprint() == model.source_vocabulary.fingerprint()


def test_a_loaded_model_is_continued_as_a_copy(tmp_path, small):
    start = load_seq2seq(small.directory, device="cpu")
    before = {name: one.clone() for name, one in start.state_dict().items()}
    out = trained(tmp_path / "out", from_=start, model=ModelOptions()).directory
    after = load_seq2seq(out, device="cpu").state_dict()
    assert all(torch.equal(before[name], one) for name, one in start.state_dict().items())
    assert not all(torch.equal(before[name], after[name]) for name in before)


def test_a_vocabulary_without_sources_is_refused(tmp_path):
    text = ModelOptions(layers=1, hidden_size=4)
    plain = train(
        Corpus.from_texts(list(PAIRS)), out=tmp_path / "plain", model=text, training=SHORT
    )
    for given in (plain.directory, load_model(plain.directory)):
        settings = replace(SMALL, vocabulary=given)
        with pytest.raises(ValueError, match="`vocabulary` must be a model of `task` translation"):
            trained(tmp_path / "out", model=settings)
    assert not (tmp_path / "out").exists()
