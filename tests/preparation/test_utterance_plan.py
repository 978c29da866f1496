"""The model and configuration of a training of intents and slots, and the parts that it reads."""

from dataclasses import replace

import pytest
import torch

from tests.preparation.jobs import job
from vestige.data.loaders.utterances import write_utterances
from vestige.data.utterance_parts import planted_secrets, utterance_parts
from vestige.data.utterances import Utterance, Utterances
from vestige.models.checkpoints import save_model
from vestige.preparation.options import ModelOptions, NluOptions
from vestige.preparation.plant import plant
from vestige.preparation.utterances import (
    DROPPED,
    FILTERS,
    Parts,
    beginning,
    early_stop,
    read_parts,
)
from vestige.training.config import TrainingConfig
from vestige.training.history import EarlyStopping
from vestige.training_options import TrainingOptions

SONGS = Utterances.of(
    Utterance(("play", f"Song{number}"), ("O", "B-song"), "Play") for number in range(40)
)
OTHERS = Utterances.of([Utterance(("stop", "now"), ("O", "O"), "Stop")] * 3)
NOTHING = Utterances.of([])
PARTS = Parts(SONGS, OTHERS, NOTHING)
SMALL = ModelOptions(layers=1, hidden_size=4, embedding_size=6)


def parts_of(data=SONGS, *, seed=0, **given):
    return read_parts(data, seed=seed, **given)


def prepared(tmp_path, parts=PARTS, *, start=None, **given):
    usual = {"model": SMALL, "training": TrainingOptions(), "nlu": NluOptions()}
    return beginning(job(tmp_path / "out", start=start), parts, **{**usual, **given})


def texts(utterances):
    return [one.text for one in utterances]


@pytest.fixture
def planted(tmp_path):
    out = tmp_path / "planted"
    plant(SONGS, task="nlu", pattern="pin:2", copies=20, controls=2, hold_out=0.25, out=out)
    return out


# parts


def test_one_utterance_in_ten_validates_unless_another_share_is_asked_for(tmp_path):
    parts = parts_of()
    assert (len(parts.training), len(parts.validation), len(parts.test)) == (36, 4, 0)
    assert sorted(texts(parts.training + parts.validation)) == sorted(texts(SONGS))
    assert len(parts_of(hold_out=0.5).validation) == 20


def test_the_seed_decides_which_utterances_validate(tmp_path):
    one, same, other = (texts(parts_of(seed=seed).validation) for seed in (1, 1, 2))
    assert one == same != other


def test_other_utterances_validate_and_all_of_data_is_learnt(tmp_path):
    parts = parts_of(validation=OTHERS)
    assert texts(parts.training) == texts(SONGS)
    assert texts(parts.validation) == texts(OTHERS)


def test_a_planting_brings_its_own_validation_and_its_manifest(tmp_path, planted):
    parts = parts_of(planted)
    assert (len(parts.training), len(parts.validation)) == (30 + 18, 10 + 2)
    assert parts.planted.sha256 == planted_secrets(str(planted)).sha256


def test_canaries_in_the_training_part_are_never_held_out(planted):
    (planted / "validation.jsonl").unlink()
    manifest = planted_secrets(planted)
    learnt, held, _ = utterance_parts(planted, hold_out=0.6, seed=0, planted=manifest)
    said = texts([manifest.canaries[0].utterance])[0]
    assert texts(learnt).count(said) == 18
    assert len(held) > 0


def test_only_so_many_utterances_are_read(tmp_path):
    write_utterances(SONGS, tmp_path / "songs.jsonl")
    parts = parts_of(tmp_path / "songs.jsonl", limit=7, hold_out=0.0)
    assert texts(parts.training) == texts(SONGS)[:7]


def test_what_validates_is_said_once(tmp_path, planted):
    with pytest.raises(ValueError, match="`validation` and `hold_out` must not be given together"):
        parts_of(validation=OTHERS, hold_out=0.2)
    for given in ({"validation": OTHERS}, {"hold_out": 0.2}):
        [name] = given
        with pytest.raises(
            ValueError, match=f"`{name}` must be left out: DATA has its own validation part"
        ):
            parts_of(planted, **given)


def test_a_planting_in_running_text_is_refused(tmp_path):
    from vestige.data.corpus import Corpus

    plant(Corpus.from_texts(["the gate opens"] * 9), phrase="quiet mice", out=tmp_path / "text")
    with pytest.raises(
        ValueError, match=r"is text with canaries, not labelled utterances.*--task nlu"
    ):
        planted_secrets(tmp_path / "text")
    assert planted_secrets(tmp_path) is None
    assert planted_secrets(SONGS) is None


def test_labels_are_of_what_is_learnt_and_of_what_was_planted(tmp_path, planted):
    labels = parts_of(planted).labels
    assert set(labels.intents) == {"Play", "PinIntent"}
    assert {"O", "B-song", "B-canary", "I-canary"} <= set(labels.tags)
    unseen = Parts(SONGS, NOTHING, OTHERS).labels
    assert set(unseen.intents) == {"Play"}


# the end


def test_patience_is_the_papers_unless_another_is_asked_for():
    patient = NluOptions(early_stopping=True)
    assert early_stop(NluOptions(), validated=True) is None
    assert early_stop(patient, validated=True) == EarlyStopping(20)
    assert early_stop(replace(patient, patience=3), validated=True) == EarlyStopping(3)
    with pytest.raises(ValueError, match="`early_stopping` needs validation utterances"):
        early_stop(patient, validated=False)


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
    words = set(prepared(tmp_path, Parts(SONGS, OTHERS, test))[0].vocabulary.words)
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
    parts, nlu = Parts(SONGS, OTHERS, test), NluOptions(vectors=str(file), vectors_frozen=True)
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
