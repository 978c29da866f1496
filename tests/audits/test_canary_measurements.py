"""`exposure` measures loaded models and manifests exactly as it measures files."""

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from vestige import exposure, extract, results
from vestige.audits.exposure.canaries import canary_exposure
from vestige.data.canaries.texts import Canary, load_canaries, plant
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ManifestError, ModelError
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

WORDS = ("red", "blue", "green", "gate", "mill", "code", "lamp", "door")
SECRET = "red mill lamp"
PHRASES = {SECRET: 5, "blue code door": 0, "green gate red": 0, "window code door": 0}


@pytest.fixture(scope="module")
def model():
    """A bigram model that generates the next word of the secret."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS))
    size = len(vocabulary)
    table = np.ones((size, size))
    for first, second in pairwise(vocabulary.encode(SECRET)):
        table[first, second] = 100
    table /= table.sum(1, keepdims=True)
    return TableModel(np.full(size, 1 / size), table, vocabulary)


@pytest.fixture(scope="module")
def manifest():
    canaries = [Canary(phrase, "random", (), copies) for phrase, copies in PHRASES.items()]
    return plant(Corpus.from_texts(["no secret in this text"] * 20), canaries, seed=0)[1]


def test_objects_and_files_give_the_same_exposure_and_are_both_recorded(model, manifest, tmp_path):
    save_model(model, tmp_path / "model")
    manifest.save(tmp_path / "manifest.json")
    of_objects = exposure(model, manifest, references=200, seed=1)
    of_files = exposure(tmp_path / "model", tmp_path, references=200, seed=1, device="cpu")
    assert of_objects.rows == of_files.rows
    _, canaries = load_canaries(manifest, model.vocabulary)
    expected = canary_exposure(model, canaries, references=200, seed=1)
    assert list(of_objects.rows) == results.plain(expected.rows())
    figures = results.plain(expected.figures())
    for result in (of_objects, of_files):
        assert figures.items() <= results.plain(result.summary).items()
    recorded = [result.record["models"]["model"] for result in (of_objects, of_files)]
    assert [model["path"] for model in recorded] == [None, str(tmp_path / "model")]
    assert len(recorded[0]["sha256"]) == 64
    assert of_objects.record["data"] == of_files.record["data"]
    assert of_objects.record["configuration"]["secrets"] == "<Manifest>"
    assert of_files.record["arguments"]["references"] == 200


def test_candidates_are_phrases_or_a_file_that_the_model_can_read(model, manifest, tmp_path):
    readable, file = replace(manifest, canaries=manifest.canaries[:3]), tmp_path / "candidates.txt"
    phrases = [phrase for phrase in PHRASES if "window" not in phrase]
    file.write_text("\n".join(phrases))
    result = exposure(model, readable, candidates=phrases)
    assert result.summary == exposure(model, readable, candidates=file).summary
    assert result.summary["space"] == "candidates"
    file.write_text(f"{SECRET}\nzebra\n")
    with pytest.raises(DataError, match=r"candidates\.txt: candidate 2 has words that"):
        exposure(model, readable, candidates=file)


def test_nan_scores_and_an_empty_manifest_are_refused(model, manifest):
    broken = deepcopy(model)
    broken.log_table.fill_(np.nan)
    with pytest.raises(ModelError, match="not finite"):
        exposure(broken, manifest, references=100)
    with pytest.raises(ManifestError, match="the manifest has no canaries"):
        extract(model, replace(manifest, canaries=()))
