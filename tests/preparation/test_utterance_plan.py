"""The model and configuration of a training of intents and slots, and the parts that it reads."""

from dataclasses import replace

import pytest
import torch

from tests.preparation.jobs import job
from vestige.data.sources import planted_secrets
from vestige.data.utterances import Utterance, Utterances
from vestige.models.checkpoints import save_model
from vestige.preparation.options import ModelOptions, NluOptions, TrainingOptions
from vestige.preparation.plant import plant
from vestige.preparation.texts import Texts, read_utterances
from vestige.preparation.utterances import DROPPED, FILTERS, labels_of, prepared_utterances
from vestige.training.config import TrainingConfig
from vestige.training.history import EarlyStopping

SONGS = Utterances.of(
    Utterance(("play", f"Song{number}"), ("O", "B-song"), "Play") for number in range(40)
)
OTHERS = Utterances.of([Utterance(("stop", "now"), ("O", "O"), "Stop")] * 3)
NOTHING = Utterances.of([])
PARTS = Texts(SONGS, OTHERS, NOTHING)
SMALL = ModelOptions(layers=1, hidden_size=4, embedding_size=6)


def parts_of(data=SONGS, *, seed=0, **given):
    return read_utterances(data, seed=seed, **given)


def prepared(tmp_path, parts=PARTS, *, start=None, **given):
    usual = {"model": SMALL, "training": TrainingOptions(), "nlu": NluOptions()}
    made = prepared_utterances(
        job(tmp_path / "out", start=start), parts, start=start, **{**usual, **given}
    )
    return made.model, made.config


def texts(utterances):
    return [one.text for one in utterances]


@pytest.fixture
def planted(tmp_path):
    out = tmp_path / "planted"
    plant(SONGS, task="nlu", pattern="pin:2", copies=20, controls=2, hold_out=0.25, out=out)
    return out


def test_labels_are_of_what_is_learnt_and_of_what_was_planted(tmp_path, planted):
    parts = parts_of(planted)
    assert parts.planted.sha256 == planted_secrets(str(planted)).sha256
    labels = labels_of(parts)
    assert set(labels.intents) == {"Play", "PinIntent"}
    assert {"O", "B-song", "B-canary", "I-canary"} <= set(labels.tags)
    unseen = labels_of(Texts(SONGS, NOTHING, OTHERS))
    assert set(unseen.intents) == {"Play"}


# the end


def test_patience_is_the_papers_unless_another_is_asked_for():
    patient = NluOptions(early_stopping=True)
    assert NluOptions().stop(validated=True) is None
    assert patient.stop(validated=True) == EarlyStopping(20)
    assert replace(patient, patience=3).stop(validated=True) == EarlyStopping(3)
    with pytest.raises(ValueError, match="`early_stopping` needs validation utterances"):
        patient.stop(validated=False)


# model and configuration


def test_a_fresh_model_has_the_sizes_and_defences_that_were_asked_for(tmp_path):
    plain, config = prepared(tmp_path)
    assert config == TrainingConfig(seed=0, keep="last", epochs=30, batch_size=32)
    shape = plain.config
    assert (shape.layers, shape.hidden_size, shape.embedding_size) == (1, 4, 6)
    assert (shape.input_dropout, shape.hidden_dropout, shape.char_filters) == (0, 0, 0)
    nlu = NluOptions(dropout=True, char_embeddings=True, early_stopping=True)
    defended, config = prepared(tmp_path, nlu=nlu)
    assert config.keep == "best"
    found = defended.config
    assert {name: getattr(found, name) for name in DROPPED} == DROPPED
    assert found.char_filters == FILTERS


def test_words_of_what_validates_are_known_and_of_a_test_are_not(tmp_path):
    test = Utterances.of([Utterance(("never",), ("O",), "Play")])
    words = set(prepared(tmp_path, Texts(SONGS, OTHERS, test))[0].vocabulary.words)
    assert {"play", "stop", "Song7"} <= words
    assert "never" not in words
    lower = prepared(tmp_path, nlu=NluOptions(lowercase=True))[0].vocabulary.words
    assert "song7" in lower
    assert "Song7" not in lower


def test_words_that_a_secret_could_have_had_are_known(tmp_path, planted):
    words = prepared(tmp_path, parts_of(planted))[0].vocabulary.words
    assert set(planted_secrets(planted).words) <= set(words)


def test_vectors_decide_the_width_and_bring_words_of_the_test(tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{word} 1 2 3\n" for word in ("play", "stop", "never", "nowhere")))
    test = Utterances.of([Utterance(("never", "ever"), ("O", "O"), "Play")])
    parts, nlu = Texts(SONGS, OTHERS, test), NluOptions(vectors=str(file), vectors_frozen=True)
    model, _ = prepared(tmp_path, parts, nlu=nlu, model=ModelOptions(hidden_size=4))
    words = set(model.vocabulary.words)
    assert model.config.embedding_size == 3
    assert "never" in words
    assert not {"ever", "nowhere"} & words
    play = model.vocabulary.words.index("play")
    assert model.embedding.weight[play].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match=r"`embedding_size` must be 3, the width of .*, got 6"):
        prepared(tmp_path, parts, nlu=nlu)


def test_a_model_is_continued_as_a_copy_of_it_or_of_its_folder(tmp_path):
    start, _ = prepared(tmp_path)
    save_model(start, tmp_path / "saved")
    for given in (start, tmp_path / "saved"):
        model, config = prepared(tmp_path, start=given, training=TrainingOptions(batch_size=5))
        assert config == TrainingConfig(seed=0, keep="last", epochs=10, batch_size=5)
        assert model is not start
        new, old = model.state_dict(), start.state_dict()
        assert all(torch.equal(new[name], old[name]) for name in old)
