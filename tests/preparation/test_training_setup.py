"""A model before its first step: settings of the preset and of the caller, and refusals."""

from copy import deepcopy
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from tests.monitors import RecordingMonitor
from tests.preparation.trainings import CORPUS, LINES, SMALL, SONGS, session
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus
from vestige.data.sources import planted_secrets
from vestige.data.utterances import Utterance, Utterances
from vestige.defences.methods.private import DPSGD
from vestige.defences.methods.regularizers import Goldfish
from vestige.defences.registry import NoDefence
from vestige.models.checkpoints import save_model
from vestige.models.folders import fingerprint
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.transformer import TransformerConfig
from vestige.preparation.options import ModelOptions, NluOptions, TrainingOptions
from vestige.preparation.plant import plant
from vestige.preparation.run_training import record_inputs
from vestige.preparation.texts import Texts, read_texts, read_utterances
from vestige.preparation.training_setup import _word_frequency_scores, text_setup
from vestige.preparation.utterance_setup import (
    CHAR_FILTERS,
    DROPOUT_RATES,
    labels_of,
    utterance_setup,
)
from vestige.training.config import TrainingConfig
from vestige.training.history import EarlyStopping, StopAtPerplexity
from vestige.training.presets import PRESETS
from vestige.training.word_frequencies import frequency_perplexity


@pytest.fixture
def prepared(tmp_path):
    """Makes the model and configuration of a training on text."""

    def make(*, texts=None, start=None, seed=0, **options):
        defaults = {
            "task": "text", "preset": None, "defence": NoDefence(), "model": ModelOptions(),
            "training": TrainingOptions(),
        }  # fmt: skip
        call = session(tmp_path / "out", RecordingMonitor(), start=start, seed=seed)
        texts = texts or read_texts(CORPUS, hold_out=0.0)
        setup = text_setup(call, texts, start, **defaults | options)
        return setup.model, setup.config

    return make


@pytest.fixture
def small(prepared):
    return prepared(model=SMALL)[0]


@pytest.mark.parametrize(
    ("architecture", "preset"),
    [(None, "ptb-lstm"), ("lstm", "ptb-lstm"), ("transformer", "reddit-transformer")],
)
def test_the_architecture_determines_the_default_preset(prepared, architecture, preset):
    model, config = prepared(model=ModelOptions(architecture=architecture))
    assert model.config == PRESETS[preset].model
    assert config == PRESETS[preset].training


def test_options_override_single_settings_of_the_preset(prepared):
    training = TrainingOptions(epochs=2, learning_rate=0.25)
    assert training.chosen == {"epochs": 2, "learning_rate": 0.25}
    model, config = prepared(
        preset="demo", model=ModelOptions(hidden_size=6), training=training, seed=7
    )
    assert model.config == replace(PRESETS["demo"].model, hidden_size=6)
    assert config == replace(PRESETS["demo"].training, epochs=2, learning_rate=0.25, seed=7)


@pytest.mark.parametrize(
    ("preset", "architecture", "kind"),
    [
        ("demo", "gru", GRUConfig),
        ("demo", "transformer", TransformerConfig),
        ("reddit-transformer", "lstm", LSTMConfig),
    ],
)
def test_only_recurrent_models_share_sizes(prepared, preset, architecture, kind):
    model, config = prepared(preset=preset, model=ModelOptions(architecture=architecture))
    expected = kind(**asdict(PRESETS[preset].model)) if architecture == "gru" else kind()
    assert model.config == expected
    assert config == PRESETS[preset].training


def test_next_word_models_have_equal_embedding_and_hidden_sizes(prepared):
    model, config = prepared(task="next-word", model=ModelOptions(hidden_size=6))
    assert (model.config.embedding_size, model.config.hidden_size) == (6, 6)
    assert config == PRESETS["next-word"].training
    both = ModelOptions(hidden_size=6, embedding_size=4)
    assert prepared(task="next-word", model=both)[0].config.embedding_size == 4


@pytest.mark.parametrize(
    ("options", "batching"),
    [
        ({}, "documents"),
        ({"defence": Goldfish()}, "documents"),
        ({"defence": DPSGD(noise_multiplier=1.0)}, "poisson"),
        ({"defence": DPSGD(noise_multiplier=1.0, unit="user")}, "poisson-users"),
        ({"training": TrainingOptions(batching="users")}, "users"),
    ],
)
def test_defences_determine_the_batches_of_next_word_models(prepared, options, batching):
    assert prepared(task="next-word", model=SMALL, **options)[1].batching == batching


def test_the_seed_determines_the_initial_weights(prepared):
    first, same, other = (prepared(model=SMALL, seed=seed)[0].state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_vocabulary_has_all_words_of_canaries(prepared, tmp_path):
    shape = replace(SMALL, vocab_size=7)
    plant(CORPUS, phrase="quiet 33", out=tmp_path / "planted")
    texts = read_texts(tmp_path / "planted", hold_out=0.0)
    assert "33" not in prepared(model=shape)[0].vocabulary.words
    assert {"quiet", "33"} <= set(prepared(texts=texts, model=shape)[0].vocabulary.words)


def test_a_given_vocabulary_is_used_unchanged(prepared, small, tmp_path):
    save_model(small, tmp_path / "saved")
    texts = read_texts(Corpus.from_texts(["nothing of it is known"]), hold_out=0.0)
    for vocabulary in (small, tmp_path / "saved", str(tmp_path / "saved")):
        model, _ = prepared(texts=texts, model=replace(SMALL, vocabulary=vocabulary))
        assert model.vocabulary.fingerprint() == small.vocabulary.fingerprint()


def test_a_loaded_model_is_copied_and_has_its_own_default_settings(prepared, small):
    model, config = prepared(start=small, seed=3)
    assert model is not small
    after = model.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in small.state_dict().items())
    assert config == TrainingConfig(seed=3, epochs=3)
    assert prepared(start=small, preset="demo")[1] == PRESETS["demo"].training


def test_models_that_cannot_be_continued_are_refused(prepared, small):
    class Adapter(torch.nn.Module):
        adapted = True

    with pytest.raises(ValueError, match="needs a Hugging Face model in `from_`, got LSTM"):
        prepared(start=small, model=ModelOptions(lora_rank=2))
    with pytest.raises(ValueError, match="`from_` must be a model whose weights can be trained"):
        prepared(start=Adapter())


def test_the_context_of_the_model_limits_the_sequence_length(prepared, small):
    start = deepcopy(small)
    start.longest = 35
    assert prepared(start=start)[1].sequence_length == 35
    with pytest.raises(ValueError, match=r"`sequence_length` must be at most 35, .* got 36$"):
        prepared(start=start, training=TrainingOptions(sequence_length=36))


def test_the_record_has_the_continued_model(small, tmp_path, monitor):
    save_model(small, tmp_path / "saved")
    new = session(tmp_path / "out", monitor, data="lines.txt")
    record_inputs(new, Texts(CORPUS, Corpus.from_texts([])), small)
    assert set(new.models) == {"trained"}
    assert set(new.data) == {"training"}
    continued = session(tmp_path / "out", monitor, start=tmp_path / "saved", validation="v.txt")
    record_inputs(continued, Texts(CORPUS, CORPUS), small)
    assert continued.models["from"]["sha256"] == fingerprint(tmp_path / "saved")
    assert continued.data["training"]["documents"] == len(LINES)
    assert continued.data["validation"]["path"] == "v.txt"


def test_word_frequencies_are_scored_on_the_validation_text():
    text, held_out = (
        EncodedCorpus(np.array(ids, np.int32), np.array([0, len(ids)]))
        for ids in ([0, 0, 0, 1, 2, 2], [3, 1])
    )
    for validation, name in ((None, "training"), (held_out, "validation")):
        assert _word_frequency_scores(text, validation, 4) == {
            "word_frequency_perplexity": frequency_perplexity(text, validation or text, size=4),
            "judged_by": name,
        }


def test_early_stopping_needs_validation_text():
    at_perplexity = TrainingOptions(stop_at_perplexity=3.0)
    patient = NluOptions(early_stopping=True)
    assert at_perplexity.stop(validated=True) == StopAtPerplexity(3.0)
    assert patient.stop(validated=True) == EarlyStopping(20)  # the paper's
    assert replace(patient, patience=3).stop(validated=True) == EarlyStopping(3)
    assert TrainingOptions().stop(validated=False) is NluOptions().stop(validated=False) is None
    with pytest.raises(ValueError, match="`stop_at_perplexity` needs validation text"):
        at_perplexity.stop(validated=False)
    with pytest.raises(ValueError, match="`early_stopping` needs validation utterances"):
        patient.stop(validated=False)


STOPS = Utterances.of([Utterance(("Stop", "now"), ("O", "O"), "Stop")] * 3)
UTTERANCES = Texts(SONGS, STOPS, Utterances.of([]))


@pytest.fixture
def prepared_nlu(tmp_path):
    """Makes the model and configuration of a training on utterances."""

    def make(parts=UTTERANCES, *, start=None, **options):
        shape = ModelOptions(layers=1, hidden_size=4, embedding_size=6)
        defaults = {"model": shape, "training": TrainingOptions(), "nlu": NluOptions()}
        call = session(tmp_path / "out", RecordingMonitor(), start=start)
        setup = utterance_setup(call, parts, start, **defaults | options)
        return setup.model, setup.config

    return make


def test_planted_secrets_add_their_labels_and_candidates(prepared_nlu, tmp_path):
    plant(SONGS, task="nlu", pattern="pin:2", copies=20, hold_out=0.25, out=tmp_path / "planted")
    secrets = planted_secrets(str(tmp_path / "planted"))
    parts = read_utterances(tmp_path / "planted", seed=0)
    assert parts.planted.sha256 == secrets.sha256
    labels = labels_of(parts)
    assert set(labels.intents) == {"Play", "PinIntent"}
    assert {"O", "B-song", "B-canary", "I-canary"} <= set(labels.tags)
    assert set(secrets.words) <= set(prepared_nlu(parts)[0].vocabulary.words)
    of_test_part = labels_of(Texts(SONGS, Utterances.of([]), STOPS))
    assert set(of_test_part.intents) == {"Play"}


def test_a_new_model_has_the_sizes_and_defences_of_the_options(prepared_nlu):
    plain, config = prepared_nlu()
    assert config == TrainingConfig(seed=0, keep="last", epochs=30, batch_size=32)
    shape = plain.config
    assert (shape.layers, shape.hidden_size, shape.embedding_size) == (1, 4, 6)
    assert (shape.input_dropout, shape.hidden_dropout, shape.char_filters) == (0, 0, 0)
    nlu = NluOptions(dropout=True, char_embeddings=True, early_stopping=True)
    defended, config = prepared_nlu(nlu=nlu)
    assert config.keep == "best"
    assert {name: getattr(defended.config, name) for name in DROPOUT_RATES} == DROPOUT_RATES
    assert defended.config.char_filters == CHAR_FILTERS


def test_the_vocabulary_has_validation_words_but_no_test_words(prepared_nlu):
    test = Utterances.of([Utterance(("never",), ("O",), "Play")])
    words = set(prepared_nlu(Texts(SONGS, STOPS, test))[0].vocabulary.words)
    assert {"play", "Stop", "song7"} <= words
    assert "never" not in words
    lower = prepared_nlu(nlu=NluOptions(lowercase=True))[0].vocabulary.words
    assert "stop" in lower
    assert "Stop" not in lower


def test_vectors_determine_the_width_and_add_test_words(prepared_nlu, tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{word} 1 2 3\n" for word in ("play", "stop", "never", "nowhere")))
    test = Utterances.of([Utterance(("never", "ever"), ("O", "O"), "Play")])
    parts, nlu = Texts(SONGS, STOPS, test), NluOptions(vectors=str(file), vectors_frozen=True)
    model, _ = prepared_nlu(parts, nlu=nlu, model=ModelOptions(hidden_size=4))
    words = model.vocabulary.words
    assert model.config.embedding_size == 3
    assert model.config.frozen_embeddings
    assert "never" in words
    assert not {"ever", "nowhere"} & set(words)
    assert model.embedding.weight[words.index("play")].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match=r"`embedding_size` must be 3, the width of .*, got 6"):
        prepared_nlu(parts, nlu=nlu)


def test_a_model_is_continued_from_a_copy_or_its_folder(prepared_nlu, tmp_path):
    start, _ = prepared_nlu()
    save_model(start, tmp_path / "saved")
    for source in (start, tmp_path / "saved"):
        model, config = prepared_nlu(start=source, training=TrainingOptions(batch_size=5))
        assert config == TrainingConfig(seed=0, keep="last", epochs=10, batch_size=5)
        assert model is not start
        after = model.state_dict()
        assert all(torch.equal(tensor, after[name]) for name, tensor in start.state_dict().items())
