"""Verbs read inputs from paths or accept objects, and encode canaries for the model."""

from dataclasses import replace

import numpy as np
import pytest

from tests.monitors import RecordingMonitor
from vestige.data.canaries.planting import manifest_file
from vestige.data.canaries.texts import Canary, load_canaries, plant
from vestige.data.canaries.utterances import load_secrets
from vestige.data.corpus import Corpus
from vestige.data.files import read_lines
from vestige.data.formats.reading import read_source
from vestige.data.sources import planted_manifest
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import AccessDenied, DataError, IncompatibleModels, ManifestError, ModelError
from vestige.models.checkpoints import save_model
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel
from vestige.session import Session

WORDS = ("red", "blue", "green", "gate")
TEXT = Corpus.from_texts(["nothing of it", "stands here"] * 5)
CANARIES = (
    Canary("red blue", "random", (), 3),
    Canary("green gate", "random", (), 0),
    Canary("gate red", "random", (), 0),
)


def uniform_model(words=WORDS):
    size = len(words) + 2
    table = np.full((size, size), 1 / size)
    return TableModel(table[0], table, WordVocabulary(("<unk>", "<eos>", *words)))


@pytest.fixture
def run():
    return Session("exposure", {}, device="cpu")


@pytest.fixture
def planted(tmp_path):
    """A directory as `vestige plant` writes it."""
    corpus, manifest = plant(TEXT, CANARIES, seed=0)
    manifest.save(tmp_path / "manifest.json")
    rows = "".join(f'{{"text": "{text}"}}\n' for text in corpus)
    (tmp_path / "corpus.jsonl").write_text(rows)
    return tmp_path


# Models


def test_a_loaded_model_is_returned_in_evaluation_mode(run):
    model = uniform_model().train()
    assert run.model("model", model) is model
    assert not model.training
    assert run.models["model"]["path"] is None


def test_a_missing_model_is_named_and_a_pair_model_is_refused(run, tmp_path):
    for read in (run.model, run.intent_slot):
        with pytest.raises(ModelError, match="nowhere"):
            read("model", tmp_path / "nowhere")
    assert run.models == {}
    vocabulary = uniform_model().vocabulary
    config = Seq2SeqConfig(embedding_size=3, hidden_size=3)
    save_model(Seq2SeqModel(vocabulary, vocabulary, config), tmp_path / "pairs")
    with pytest.raises(AccessDenied):
        run.model("model", tmp_path / "pairs")


# Texts


def test_lines_are_read_from_a_utf8_file(tmp_path):
    (tmp_path / "words").write_bytes("rot\r\nblau\n\ngrün".encode())
    assert read_lines(tmp_path / "words", item="word") == ["rot", "blau", "", "grün"]
    (tmp_path / "words").write_bytes(b"ab\xff")
    with pytest.raises(DataError, match=r"words: not UTF-8 at byte 2.*one phrase per line"):
        read_lines(tmp_path / "words", item="phrase")


def test_a_corpus_is_accepted_and_a_planted_directory_is_read(run, planted):
    assert run.corpus("texts", TEXT) is TEXT
    assert run.data["texts"] == {"path": None, "documents": 10, "sha256": TEXT.fingerprint()}
    expected, _ = plant(TEXT, CANARIES, seed=0)
    assert list(read_source(str(planted))) == list(expected)
    assert len(run.corpus("texts", planted, limit=4)) == 4
    (planted / "train.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match="is labelled utterances with planted secrets, not text"):
        read_source(str(planted))


# Manifests


def test_a_manifest_is_read_from_its_file_or_directory(planted):
    file, vocabulary = planted / "manifest.json", uniform_model().vocabulary
    assert manifest_file(planted) == manifest_file(file)
    manifest = plant(TEXT, CANARIES, seed=0)[1]
    expected = load_canaries(manifest, vocabulary)[1]
    assert load_canaries(planted, vocabulary)[1] == load_canaries(file, vocabulary)[1] == expected
    assert planted_manifest(str(planted)).canaries == manifest.canaries
    assert planted_manifest(str(planted / "corpus.jsonl")) is None
    assert planted_manifest(str(planted / "nowhere")) is None


def test_canaries_are_encoded_with_the_models_vocabulary(planted):
    for words in (WORDS, WORDS[::-1]):
        vocabulary = uniform_model(words).vocabulary
        _, canaries = load_canaries(planted, vocabulary)
        assert [c.ids for c in canaries] == [tuple(vocabulary.encode(c.phrase)) for c in CANARIES]


def test_controls_with_unknown_words_are_left_out_and_counted(planted):
    monitor, vocabulary = RecordingMonitor(), uniform_model(("red", "blue", "gate")).vocabulary
    _, canaries = load_canaries(planted, vocabulary, monitor)
    assert [canary.phrase for canary in canaries] == ["red blue", "gate red"]
    assert monitor.lines == ["1 of 2 controls left out: the model lacks their words"]


@pytest.mark.parametrize(
    ("words", "number", "unknown"),
    [(("red", "green", "gate"), 1, "2"), (("red", "blue"), 2, "1, 2")],
)
def test_an_unreadable_canary_is_named_by_number_only(planted, words, number, unknown):
    with pytest.raises(DataError, match=f"canary {number} of .* lacks: {unknown} of 2") as error:
        load_canaries(planted, uniform_model(words).vocabulary)
    assert not any(canary.phrase in str(error.value) for canary in CANARIES)


def test_canaries_of_another_vocabulary_or_a_changed_manifest_are_refused(planted):
    reversed_vocabulary = uniform_model(WORDS[::-1]).vocabulary
    canaries = [replace(c, ids=tuple(reversed_vocabulary.encode(c.phrase))) for c in CANARIES]
    _, manifest = plant(TEXT, canaries, seed=0, vocabulary=reversed_vocabulary)
    assert len(load_canaries(manifest, reversed_vocabulary)[1]) == 3
    with pytest.raises(IncompatibleModels, match="canaries were planted for another vocabulary"):
        load_canaries(manifest, uniform_model().vocabulary)
    match = "has canaries in text, not in labelled utterances.*language model"
    with pytest.raises(ManifestError, match=match):
        load_secrets(planted)
    file = planted / "manifest.json"
    file.write_text(file.read_text().replace("green gate", "green lamp"))
    with pytest.raises(ManifestError):
        load_canaries(planted, uniform_model().vocabulary)
