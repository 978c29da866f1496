"""`null` called from Python: what it trains goes into `diff` as it is."""

import pytest

from vestige.data.corpus import Corpus
from vestige.errors import TrainingError
from vestige.models.checkpoints import load_model
from vestige.workflows.diff import diff
from vestige.workflows.null import null
from vestige.workflows.train import train
from vestige.workflows.training_settings import ModelSettings, TrainingSettings

LINES = [f"the code of the gate is {word}" for word in ("one", "two", "three", "four")] * 4


@pytest.fixture(scope="module")
def update(tmp_path_factory):
    """A model and its update, each the directory of a training."""
    root = tmp_path_factory.mktemp("null")
    training = TrainingSettings(epochs=1, batch_size=2, sequence_length=8)
    small = {"training": training, "hold_out": 0}
    texts, later = Corpus.from_texts(LINES), Corpus.from_texts(LINES[:3])
    shape = ModelSettings(layers=1, hidden_size=8)
    train(texts, out=root / "before", model=shape, **small)
    train(later, out=root / "after", start=root / "before", **small)
    return root


def test_null_models_of_loaded_text_go_into_diff(update, tmp_path):
    clean = Corpus.from_texts(LINES)
    made = null(update / "before", update / "after", clean, tmp_path / "nulls", count=2)
    assert made.models == (tmp_path / "nulls" / "null-00", tmp_path / "nulls" / "null-01")
    assert [row["tokens"] for row in made.rows()] == [24, 24]
    assert made.record["arguments"]["data"] == "<Corpus>"
    found = diff(update / "before", update / "after", null=made, length=3, min_length=2)
    assert len(found.nulls) == 2
    assert found.record["models"]["nulls"]["path"] == [str(model) for model in made.models]


def test_a_model_that_is_loaded_can_be_continued(update, tmp_path):
    before = load_model(update / "before")
    made = null(before, update / "after", Corpus.from_texts(LINES), tmp_path / "nulls", count=1)
    assert load_model(made.models[0]).vocabulary.fingerprint() == before.vocabulary.fingerprint()


def test_an_update_of_another_model_is_refused(update, tmp_path):
    with pytest.raises(TrainingError, match="did not start from the weights"):
        null(
            update / "after",
            update / "after",
            Corpus.from_texts(LINES),
            tmp_path / "nulls",
            count=1,
        )
    assert not (tmp_path / "nulls").exists()
