"""Training of running text: what is recorded, told and left behind."""

import json

import pytest

from tests.preparation.jobs import LINES, Told
from vestige import results
from vestige.data.corpus import Corpus
from vestige.defences.methods.regularizers import Goldfish
from vestige.errors import DataError
from vestige.preparation.options import ModelOptions, TrainingOptions
from vestige.preparation.train import train

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
