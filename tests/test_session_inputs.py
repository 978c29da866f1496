"""Paths are read and objects stand for themselves; manifests and planted folders by either name."""

from dataclasses import replace

import numpy as np
import pytest

from vestige.data.canaries.planting import manifest_file
from vestige.data.canaries.texts import Canary, load_canaries, plant
from vestige.data.canaries.utterances import load_secrets
from vestige.data.corpus import Corpus
from vestige.data.files import read_lines
from vestige.data.formats.reading import read_source
from vestige.data.sources import planting
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


def model(words=WORDS):
    size = len(words) + 2
    flat = np.full((size, size), 1 / size)
    return TableModel(flat[0], flat, WordVocabulary(("<unk>", "<eos>", *words)))


class Log:
    """A monitor that keeps its lines."""

    def __init__(self):
        self.lines = []

    def log(self, text):
        self.lines.append(text)


@pytest.fixture
def planted(tmp_path):
    """A directory as `vestige plant` leaves it."""
    corpus, manifest = plant(TEXT, CANARIES, seed=0)
    manifest.save(tmp_path / "manifest.json")
    rows = "".join(f'{{"text": "{text}"}}\n' for text in corpus)
    (tmp_path / "corpus.jsonl").write_text(rows)
    return tmp_path


# models


def test_a_loaded_model_is_given_back_in_evaluation_mode():
    one, run = model().train(), Session("exposure", {}, device="cpu")
    assert run.model("model", one) is one
    assert not one.training
    assert run.models["model"]["path"] is None


def test_a_model_of_pairs_predicts_no_next_words(tmp_path):
    vocabulary = model().vocabulary
    config = Seq2SeqConfig(embedding_size=3, hidden_size=3)
    save_model(Seq2SeqModel(vocabulary, vocabulary, config), tmp_path / "pairs")
    with pytest.raises(AccessDenied):
        Session("exposure", {}, device="cpu").model("model", tmp_path / "pairs")


def test_a_missing_model_is_named_by_every_reader(tmp_path):
    run = Session("exposure", {}, device="cpu")
    for read in (run.model, run.intent_slot):
        with pytest.raises(ModelError, match="nowhere"):
            read("model", tmp_path / "nowhere")
    assert run.models == {}


# lines


def test_lines_are_those_of_the_file_whatever_ends_them(tmp_path):
    (tmp_path / "words").write_bytes("rot\r\nblau\n\ngrün".encode())
    assert read_lines(tmp_path / "words", one="word") == ["rot", "blau", "", "grün"]


def test_what_is_no_utf8_is_told_with_its_byte_and_what_to_do(tmp_path):
    (tmp_path / "words").write_bytes(b"ab\xff")
    with pytest.raises(DataError, match=r"words: not UTF-8 at byte 2") as caught:
        read_lines(tmp_path / "words", one="phrase")
    assert "one phrase per line" in caught.value.remedy


# corpora


def test_a_corpus_stands_for_itself():
    run = Session("exposure", {})
    assert run.corpus("texts", TEXT) is TEXT
    assert run.data["texts"] == {"path": None, "documents": 10, "sha256": TEXT.fingerprint()}


def test_a_planted_directory_is_its_corpus_and_not_its_manifest(planted):
    expected, _ = plant(TEXT, CANARIES, seed=0)
    assert list(read_source(str(planted))) == list(expected)
    assert len(Session("exposure", {}).corpus("texts", planted, limit=4)) == 4


def test_a_planted_directory_of_utterances_is_no_running_text(planted):
    (planted / "train.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match="is labelled utterances with planted secrets, not text"):
        read_source(str(planted))


def test_only_a_planted_directory_has_a_manifest(planted):
    assert planting(str(planted)).canaries == plant(TEXT, CANARIES, seed=0)[1].canaries
    assert planting(str(planted / "corpus.jsonl")) is None
    assert planting(str(planted / "nowhere")) is None


# manifests


def test_a_manifest_is_named_by_its_file_or_its_directory(planted):
    assert manifest_file(planted) == manifest_file(planted / "manifest.json")
    by = [
        load_canaries(given, model().vocabulary)[1]
        for given in (planted, planted / "manifest.json")
    ]
    assert by[0] == by[1] == load_canaries(plant(TEXT, CANARIES, seed=0)[1], model().vocabulary)[1]


def test_canaries_have_the_ids_of_the_models_vocabulary(planted):
    for words in (WORDS, WORDS[::-1]):
        one = model(words)
        _, found = load_canaries(planted, one.vocabulary)
        assert [c.ids for c in found] == [tuple(one.vocabulary.encode(c.phrase)) for c in CANARIES]


def test_controls_with_words_that_the_model_lacks_are_left_out_and_counted(planted):
    log = Log()
    _, found = load_canaries(planted, model(("red", "blue", "gate")).vocabulary, log)
    assert [canary.phrase for canary in found] == ["red blue", "gate red"]
    assert log.lines == ["1 of 2 controls left out: the model lacks their words"]


@pytest.mark.parametrize(
    ("words", "number", "lacking"),
    [(("red", "green", "gate"), 1, "2"), (("red", "blue"), 2, "1, 2")],
)
def test_a_canary_that_cannot_be_read_is_told_by_number_and_not_by_phrase(
    planted, words, number, lacking
):
    with pytest.raises(DataError, match=f"canary {number} of .* lacks: {lacking} of 2") as caught:
        load_canaries(planted, model(words).vocabulary)
    assert not any(canary.phrase in str(caught.value) for canary in CANARIES)


def test_canaries_of_another_vocabulary_are_refused():
    own = model(WORDS[::-1]).vocabulary
    canaries = [replace(one, ids=tuple(own.encode(one.phrase))) for one in CANARIES]
    _, manifest = plant(TEXT, canaries, seed=0, vocabulary=own)
    assert len(load_canaries(manifest, model(WORDS[::-1]).vocabulary)[1]) == 3
    with pytest.raises(
        IncompatibleModels, match="its canaries were planted for another vocabulary"
    ):
        load_canaries(manifest, model().vocabulary)


def test_a_changed_manifest_is_refused(planted):
    file = planted / "manifest.json"
    file.write_text(file.read_text().replace("green gate", "green lamp"))
    with pytest.raises(ManifestError):
        load_canaries(planted, model().vocabulary)


def test_a_manifest_of_running_text_holds_no_secrets_in_utterances(planted):
    with pytest.raises(
        ManifestError, match="has canaries in text, not in labelled utterances"
    ) as caught:
        load_secrets(planted)
    assert "language model" in caught.value.remedy
