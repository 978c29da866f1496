"""The paper's four architectures, section 3.1."""

import pytest

from vestige.data.vocabulary import WordVocabulary
from vestige.models.recurrent_network import GRUConfig, GRULanguageModel
from vestige.training.new_models import new_model
from vestige.training.presets import PAIR_PRESETS, PRESETS, preset, preset_of


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # embedding + LSTM (4 gates, two biases) + head, by hand
        ("ptb-lstm", 100 * 200 + 2 * 4 * 200 * (200 + 200 + 2) + 201 * 100),
        ("reddit-lstm", 100 * 160 + 4 * 512 * (160 + 512 + 2) + 513 * 100),
        ("wikitext-lstm", 100 * 512 + 2 * 4 * 512 * (512 + 512 + 2) + 513 * 100),
    ],
)
def test_recurrent_presets_have_the_papers_sizes(name, parameters):
    vocabulary = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(98))))
    model = new_model(vocabulary, preset(name).model, seed=0)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_the_transformer_preset_has_the_papers_layers_heads_and_width():
    shape = preset("reddit-transformer").model
    assert (shape.layers, shape.heads, shape.hidden_size) == (4, 6, 192)
    assert preset("reddit-transformer").training.sequence_length <= shape.max_length


def test_the_paper_keeps_nine_tenths_of_inputs_and_outputs():
    for name in ("reddit-lstm", "wikitext-lstm"):
        assert (preset(name).model.dropout_in, preset(name).model.dropout_out) == (0.1, 0.1)
    assert (preset("ptb-lstm").model.dropout_in, preset("ptb-lstm").model.dropout_out) == (0, 0)


def test_an_unknown_preset_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"preset must be one of.*ptb-lstm.*got 'lstm'"):
        preset("lstm")
    assert set(PRESETS) == {
        "ptb-lstm",
        "reddit-lstm",
        "reddit-transformer",
        "wikitext-lstm",
        "demo",
        "next-word",
    }


def test_a_seed_decides_the_fresh_weights(make_model):
    first, same, other = (make_model(seed=s).head.weight for s in (0, 0, 1))
    assert first.equal(same)
    assert not first.equal(other)


def test_the_audit_tasks_have_the_papers_sizes_and_trainings():
    found = {"next-word": preset("next-word"), **PAIR_PRESETS}
    for name, made in found.items():
        assert made.vocabulary_size == 5_000
        assert (made.model.embedding_size, made.model.hidden_size) == (128, 128)
        assert made.model.dropout_out == 0.5
        training = made.training
        assert (training.optimizer, training.learning_rate, training.epochs) == ("adam", 1e-3, 30)
        assert training.batch_size == (35 if name == "next-word" else 20)
        assert training.batching == "documents"
    assert found["next-word"].model.layers == 1
    assert found["translation"].model.attention
    assert not found["dialogue"].model.attention


def test_an_unknown_task_of_pairs_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"task must be one of.*dialogue.*got 'text'"):
        preset_of("text")


def test_a_gru_is_made_as_an_lstm_is(make_model):
    model = make_model("gru")
    assert isinstance(model, GRULanguageModel)
    assert isinstance(model.config, GRUConfig)
