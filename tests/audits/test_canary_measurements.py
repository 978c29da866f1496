"""`exposure` and `extract` measure loaded models and manifests as they do files."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.monitors import RecordingMonitor
from vestige import exposure, extract, results
from vestige.audits.exposure.canaries import canary_exposure
from vestige.data.canaries.texts import Canary, load_canaries, plant
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ManifestError
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

WORDS = ("red", "blue", "green", "gate", "mill", "code", "lamp", "door")
SECRET = "red mill lamp"
PHRASES = {SECRET: 5, "blue code door": 0, "green gate red": 0, "window code door": 0}
TEXT = Corpus.from_texts(["nothing of it stands here"] * 20)


@pytest.fixture(scope="module")
def model():
    """A bigram model that goes on with the secret's next word."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS))
    size = len(vocabulary)
    table = np.ones((size, size))
    for one, other in pairwise(vocabulary.encode(SECRET)):
        table[one, other] = 100
    table /= table.sum(1, keepdims=True)
    return TableModel(np.full(size, 1 / size), table, vocabulary)


@pytest.fixture(scope="module")
def manifest():
    canaries = [Canary(phrase, "random", (), copies) for phrase, copies in PHRASES.items()]
    return plant(TEXT, canaries, seed=0)[1]


@pytest.fixture
def files(model, manifest, tmp_path):
    save_model(model, tmp_path / "model")
    (tmp_path / "planted").mkdir()
    manifest.save(tmp_path / "planted" / "manifest.json")
    return tmp_path


def test_a_model_in_memory_is_as_exposed_as_its_file(model, manifest, files):
    of_objects = exposure(model, manifest, references=200, seed=1)
    of_files = exposure(files / "model", files / "planted", references=200, seed=1, device="cpu")
    assert of_objects.rows == of_files.rows
    _, canaries = load_canaries(manifest, model.vocabulary)
    found = canary_exposure(model, canaries, references=200, seed=1)
    assert list(of_objects.rows) == results.plain(found.rows())
    figures = results.plain(found.figures())
    for result in (of_objects, of_files):  # the files' model also read the corpus beside them
        assert figures.items() <= results.plain(result.summary).items()


def test_the_record_names_files_and_hashes_objects(model, manifest, files):
    of_objects = exposure(model, manifest, references=200).record
    of_files = exposure(files / "model", files / "planted", references=200, device="cpu").record
    assert of_files["models"]["model"]["path"] == str(files / "model")
    assert of_objects["models"]["model"]["path"] is None
    assert len(of_objects["models"]["model"]["sha256"]) == 64
    assert of_objects["data"] == of_files["data"]
    assert of_files["arguments"]["references"] == 200
    assert "seed" not in of_files["arguments"]
    assert of_objects["configuration"]["secrets"] == "<Manifest>"


def test_another_tensor_is_another_hash(model, manifest):
    size = len(model.vocabulary)
    changed = TableModel([1 / size] * size, [[1 / size] * size] * size, model.vocabulary)
    one, other = (
        extract(each, manifest).record["models"]["model"]["sha256"] for each in (model, changed)
    )
    assert one != other


def test_candidates_may_be_phrases_or_a_file_of_them(model, manifest, files):
    read = replace(manifest, canaries=manifest.canaries[:3])
    phrases = [phrase for phrase in PHRASES if "window" not in phrase]
    (files / "said.txt").write_text("\n".join(phrases))
    one = exposure(model, read, candidates=phrases)
    other = exposure(model, read, candidates=files / "said.txt")
    assert one.summary == other.summary
    assert one.summary["space"] == "candidates"


def test_a_file_that_cannot_be_measured_is_named(model, files):
    (files / "said.txt").write_text(f"{SECRET}\nzebra\n")
    with pytest.raises(DataError, match=r"planted with .*said\.txt"):
        exposure(model, files / "planted", candidates=files / "said.txt")


def test_controls_that_the_model_lacks_are_counted_in_the_log(model, manifest):
    log = RecordingMonitor()
    found = extract(model, manifest, monitor=log)
    assert log.lines == ["1 of 3 controls left out: the model lacks their words"]
    assert log.tasks == ["completing canaries"]
    assert sum(row["kind"] == "control" for row in found.rows) == 2


def test_the_secret_is_completed_and_saved_with_its_record(model, manifest, tmp_path):
    found = extract(model, manifest, beam=4)
    assert found.summary["greedy_completed"] == 1
    found.save(tmp_path / "run")
    run = results.load(tmp_path / "run")
    assert (run.result, run.run["verb"]) == ("Completion", "extract")
    assert run.run["arguments"]["beam"] == 4
    assert run.rows == list(found.rows)


def test_an_empty_manifest_is_refused_by_what_it_is(model, manifest):
    with pytest.raises(ManifestError, match="the manifest has no canaries"):
        extract(model, replace(manifest, canaries=()))
