"""The model and configuration of a training: what the preset decides, and what the caller does."""

from copy import deepcopy
from dataclasses import asdict, replace

import pytest
import torch

from tests.workflows.asked import LINES, request
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.defences.methods.goldfish import Goldfish
from vestige.models.checkpoints import fingerprint, save_model
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.transformer import TransformerConfig
from vestige.training.config import TrainingConfig
from vestige.training.presets import PRESETS
from vestige.workflows.training_plan import prepare, provenance_of, vocabulary_of
from vestige.workflows.training_settings import ModelSettings, TrainingSettings

CORPUS = Corpus.from_texts(LINES)
SMALL = ModelSettings(layers=1, hidden_size=6)


def prepared(tmp_path, keep=(), **given):
    return prepare(request(tmp_path / "out", **given), CORPUS, keep)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("small"), model=SMALL)[0]


@pytest.mark.parametrize(
    ("architecture", "suits"),
    [(None, "ptb-lstm"), ("lstm", "ptb-lstm"), ("transformer", "reddit-transformer")],
)
def test_without_a_preset_the_architecture_chooses_one(tmp_path, architecture, suits):
    model, config = prepared(tmp_path, model=ModelSettings(architecture=architecture))
    assert model.config == PRESETS[suits].model
    assert config == PRESETS[suits].training


def test_a_size_that_was_asked_for_replaces_the_presets_and_no_other(tmp_path):
    model, _ = prepared(tmp_path, preset="demo", model=ModelSettings(hidden_size=6))
    assert model.config == replace(PRESETS["demo"].model, hidden_size=6)


def test_a_gru_takes_the_lstms_sizes(tmp_path):
    model, _ = prepared(tmp_path, preset="demo", model=ModelSettings(architecture="gru"))
    assert isinstance(model.config, GRUConfig)
    assert asdict(model.config) == asdict(PRESETS["demo"].model)


@pytest.mark.parametrize(
    ("preset", "architecture", "kind"),
    [("demo", "transformer", TransformerConfig), ("reddit-transformer", "lstm", LSTMConfig)],
)
def test_sizes_do_not_pass_between_recurrent_and_attending_models(
    tmp_path, preset, architecture, kind
):
    model, config = prepared(
        tmp_path, preset=preset, model=ModelSettings(architecture=architecture)
    )
    assert model.config == kind()
    assert config == PRESETS[preset].training


def test_the_caller_decides_over_the_presets_training(tmp_path):
    asked = TrainingSettings(epochs=2, learning_rate=0.25)
    _, config = prepared(tmp_path, model=SMALL, training=asked, seed=7)
    expected = replace(PRESETS["ptb-lstm"].training, epochs=2, learning_rate=0.25, seed=7)
    assert config == expected


def test_texts_one_by_one_have_as_wide_vectors_as_layers(tmp_path):
    model, config = prepared(tmp_path, task="next-word", model=ModelSettings(hidden_size=6))
    assert (model.config.embedding_size, model.config.hidden_size) == (6, 6)
    assert config == PRESETS["next-word"].training
    both = ModelSettings(hidden_size=6, embedding_size=4)
    assert prepared(tmp_path, task="next-word", model=both)[0].config.embedding_size == 4


def test_a_defence_of_texts_one_by_one_starts_from_a_stream(tmp_path):
    settings = {"task": "next-word", "model": ModelSettings(hidden_size=6)}
    assert prepared(tmp_path, **settings)[1].batching == "documents"
    assert prepared(tmp_path, defence=Goldfish(), **settings)[1].batching == "stream"
    asked = TrainingSettings(batching="users")
    assert prepared(tmp_path, training=asked, **settings)[1].batching == "users"


def test_the_seed_decides_the_first_weights(tmp_path):
    one, same, other = (
        prepared(tmp_path, model=SMALL, seed=seed)[0].state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_words_of_canaries_are_known_however_rare(tmp_path):
    asked = replace(SMALL, vocab_size=7)
    words = prepared(tmp_path, model=asked)[0].vocabulary.words
    kept = prepared(tmp_path, keep=("line 33",), model=asked)[0].vocabulary.words
    assert "33" not in words
    assert "33" in kept


def test_a_vocabulary_that_was_given_is_taken_as_it_is(tmp_path, small):
    save_model(small, tmp_path / "saved")
    for given in (small, tmp_path / "saved", str(tmp_path / "saved")):
        assert vocabulary_of(given).fingerprint() == small.vocabulary.fingerprint()
    other = Corpus.from_texts(["nothing of it is known"])
    asked = request(tmp_path / "out", model=replace(SMALL, vocabulary=small))
    model, _ = prepare(asked, other)
    assert model.vocabulary.fingerprint() == small.vocabulary.fingerprint()


def test_subwords_are_learnt_where_they_are_asked_for(tmp_path):
    asked = replace(SMALL, tokenizer="bpe", vocab_size=270)
    vocabulary = prepared(tmp_path, model=asked)[0].vocabulary
    assert isinstance(vocabulary, SubwordVocabulary)
    assert len(vocabulary) <= 270


def test_a_loaded_model_is_continued_as_a_copy_and_gently(tmp_path, small):
    model, config = prepared(tmp_path, start=small, seed=3)
    assert model is not small
    assert all(torch.equal(small.state_dict()[n], one) for n, one in model.state_dict().items())
    assert config == TrainingConfig(seed=3, epochs=3)
    assert prepared(tmp_path, start=small, preset="demo")[1] == PRESETS["demo"].training


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (ModelSettings(layers=2), "`layers` must not be given with `start`"),
        (ModelSettings(tokenizer="bpe"), "`tokenizer` must not be given with `start`"),
        (ModelSettings(lora_rank=2), "`lora_rank` needs a Hugging Face model in `start`, got LSTM"),
    ],
)
def test_settings_of_another_start_are_refused(tmp_path, small, model, says):
    with pytest.raises(ValueError, match=says):
        prepared(tmp_path, start=small, model=model)


def test_an_adapter_is_not_trained_further(tmp_path):
    class Adapter(torch.nn.Module):
        adapted = True

    with pytest.raises(ValueError, match="`start` must name a model whose weights can be trained"):
        prepared(tmp_path, start=Adapter())


def test_a_window_longer_than_the_model_reads_is_refused(tmp_path, small):
    start = deepcopy(small)
    start.longest = 35
    assert prepared(tmp_path, start=start)[1].sequence_length == 35
    asked = TrainingSettings(sequence_length=36)
    with pytest.raises(ValueError, match=r"`sequence_length` must be at most 35, all .* got 36$"):
        prepared(tmp_path, start=start, training=asked)


def test_provenance_names_the_model_that_was_gone_on_from(tmp_path, small):
    save_model(small, tmp_path / "saved")
    read = {"training": ("lines.txt", CORPUS)}
    fresh = provenance_of(request(tmp_path / "out"), small, read)
    assert set(fresh["models"]) == {"trained"}
    asked = request(tmp_path / "out", start=tmp_path / "saved")
    found = provenance_of(asked, small, read)
    assert found["models"]["from"]["sha256"] == fingerprint(tmp_path / "saved")
    assert found["data"]["training"]["documents"] == len(LINES)
