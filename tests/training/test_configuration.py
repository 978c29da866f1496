"""What a training is asked to do, and the fresh models that it begins with."""

import math

import numpy as np
import pytest
import torch

from tests.training.worlds import WORDS, language_model
from vestige.data.utterances import Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.data.word_vectors import WordVectors
from vestige.errors import DataError
from vestige.models.recurrent_network import GRUConfig, GRULanguageModel
from vestige.training.config import TrainingConfig, learning_rate
from vestige.training.new_models import new_intent_slot_model, new_model, with_vectors, words_of
from vestige.training.presets import PAIR_PRESETS, PRESETS, gentle, preset, preset_of

COSINE = [1 + math.cos(math.pi * step / 20) for step in range(20)]
RATES = {
    "constant": ({"schedule": "constant"}, [2.0] * 20),
    "step": (
        {"schedule": "step", "decay": 0.5, "decay_after": 2},
        [2.0] * 10 + [1.0] * 5 + [0.5] * 5,
    ),
    "cosine": ({"schedule": "cosine"}, COSINE),
    "warm-up": ({"warmup_steps": 4}, [0.5, 1.0, 1.5] + [2.0] * 17),
}


@pytest.mark.parametrize(("settings", "expected"), RATES.values(), ids=RATES)
def test_the_rate_of_each_of_twenty_steps_in_four_epochs(settings, expected):
    config = TrainingConfig(seed=0, epochs=4, learning_rate=2.0, **settings)
    rates = [learning_rate(config, step, steps_per_epoch=5) for step in range(20)]
    assert rates == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("batch_size", 0),
        ("sequence_length", 0),
        ("checkpoint_every", 0),
        ("evaluate_every", 0),
        ("seed", -1),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("decay", 0.0),
        ("max_grad_norm", -1.0),
        ("optimizer", "lion"),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("schedule", "linear"),
        ("precision", "float16"),
    ],
)
def test_a_value_out_of_range_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        TrainingConfig(**{"seed": 0, name: value})


def test_momentum_belongs_to_sgd():
    assert TrainingConfig(seed=0, optimizer="sgd", momentum=0.9).momentum == 0.9
    with pytest.raises(ValueError, match='momentum must come with optimizer="sgd"'):
        TrainingConfig(seed=0, momentum=0.9)


# Presets


@pytest.mark.parametrize(
    ("name", "parameters", "dropout"),
    [
        # embedding + LSTM (4 gates, two biases) + head, by hand
        ("ptb-lstm", 100 * 200 + 2 * 4 * 200 * (200 + 200 + 2) + 201 * 100, 0),
        ("reddit-lstm", 100 * 160 + 4 * 512 * (160 + 512 + 2) + 513 * 100, 0.1),
        ("wikitext-lstm", 100 * 512 + 2 * 4 * 512 * (512 + 512 + 2) + 513 * 100, 0.1),
    ],
)
def test_recurrent_presets_have_the_papers_sizes(name, parameters, dropout):
    vocabulary = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(98))))
    shape = preset(name).model
    model = new_model(vocabulary, shape, seed=0)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert (shape.dropout_in, shape.dropout_out) == (dropout, dropout)


def test_the_transformer_preset_has_the_papers_layers_heads_and_width():
    shape = preset("reddit-transformer").model
    assert (shape.layers, shape.heads, shape.hidden_size) == (4, 6, 192)
    assert preset("reddit-transformer").training.sequence_length <= shape.max_length


def test_the_audit_tasks_have_the_papers_sizes_and_trainings():
    result = {"next-word": preset("next-word"), **PAIR_PRESETS}
    for name, made in result.items():
        assert made is preset_of(name)
        assert made.vocabulary_size == 5_000
        assert (made.model.embedding_size, made.model.hidden_size) == (128, 128)
        assert made.model.dropout_out == 0.5
        training = made.training
        assert (training.optimizer, training.learning_rate, training.epochs) == ("adam", 1e-3, 30)
        assert training.batch_size == (35 if name == "next-word" else 20)
        assert training.batching == "documents"
    assert result["next-word"].model.layers == 1
    assert result["translation"].model.attention
    assert not result["dialogue"].model.attention


def test_an_unknown_preset_or_task_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"preset must be one of.*ptb-lstm.*got 'lstm'"):
        preset("lstm")
    with pytest.raises(ValueError, match=r"task must be one of.*dialogue.*got 'text'"):
        preset_of("text")
    recurrent = {"ptb-lstm", "reddit-lstm", "wikitext-lstm"}
    assert set(PRESETS) == recurrent | {"reddit-transformer", "demo", "next-word"}


def test_a_model_is_continued_gently(gpt2):
    own, whole, adapter = (gentle(make()) for make in
                           (language_model, gpt2("gpt2").fresh, gpt2("adapter").fresh))  # fmt: skip
    assert (own.epochs, own.learning_rate, own.schedule) == (3, 1e-3, "constant")
    assert (whole.learning_rate, adapter.learning_rate) == (5e-5, 1e-3)
    assert (whole.sequence_length, whole.schedule) == (16, "cosine")
    assert gentle(gpt2("gpt2").fresh(), adapter=True) == adapter


# Fresh models


def test_a_seed_decides_the_fresh_weights_of_any_shape():
    for architecture in ("lstm", "gru", "transformer"):
        one, same, other = (
            next(language_model(architecture, seed=seed).parameters()) for seed in (0, 0, 1)
        )
        assert one.equal(same)
        assert not one.equal(other)
    gru = language_model("gru")
    assert isinstance(gru, GRULanguageModel)
    assert isinstance(gru.config, GRUConfig)
    assert gru.vocabulary == WORDS


SAID = Utterances.of(
    [
        Utterance(("to", "York"), ("O", "B-city"), "Fly"),
        Utterance(("to", "to", "bath"), ("O", "O", "B-city"), "Fly"),
    ]
)


def vectors(**words):
    return WordVectors(tuple(words), np.array(list(words.values()), np.float32))


def row(model, word):
    return model.embedding.weight[model.vocabulary.encode(word)[0]].tolist()


def test_words_stand_in_alphabetical_order_however_often_they_come():
    often = new_intent_slot_model(SAID + SAID.take([1, 1]), words=["zoo", "a"], seed=0)
    once = new_intent_slot_model(SAID, words=["a", "zoo"], seed=0)
    assert often.vocabulary.words == ("<unk>", "<eos>", "York", "a", "bath", "to", "zoo")
    assert often.vocabulary == once.vocabulary
    assert torch.equal(often.embedding.weight, once.embedding.weight)
    lower = new_intent_slot_model(SAID, words=["YORK", "Zoo"], lowercase=True, seed=0)
    assert lower.vocabulary.words[2:] == ("bath", "to", "york", "zoo")
    assert lower.read(["YORK"]) == lower.read(["york"])


def test_a_seed_decides_the_weights_and_leaves_the_callers_numbers_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, second, other = (
        new_intent_slot_model(SAID, seed=seed).state_dict().values() for seed in (0, 0, 1)
    )
    assert torch.equal(torch.rand(3), expected)
    for one, same, different in zip(first, second, other, strict=True):
        assert torch.equal(one, same)
        assert not one.any() or not torch.equal(one, different)


def test_labels_may_come_from_elsewhere():
    model = new_intent_slot_model(SAID, intents=["Call"], tags=["O", "B-canary"], seed=0)
    assert model.intents == ("Call", "Fly")
    assert model.tags == ("O", "B-canary", "I-canary", "B-city", "I-city")


def test_a_word_has_its_own_vector_or_that_of_its_lower_case(tmp_path):
    given = vectors(york=[1, 2], to=[3, 4], bath=[5, 6], Bath=[7, 8])
    model = new_intent_slot_model(SAID, vectors=given, words=["Bath"], seed=0)
    result = [row(model, word) for word in ("York", "to", "bath", "Bath", "<unk>")]
    assert result == [[1, 2], [3, 4], [5, 6], [7, 8], [4, 5]]  # the mean of all
    assert model.config.embedding_size == 2
    (tmp_path / "some.txt").write_text("to 1 2\nyork 3 4\nhaus 5 6\n")
    model = new_intent_slot_model(SAID, vectors=str(tmp_path / "some.txt"), seed=0)
    assert (row(model, "to"), row(model, "York")) == ([1, 2], [3, 4])
    assert with_vectors(words_of(SAID), vectors(york=[1], bath=[2])) == {"York", "bath"}


def test_the_unknown_word_has_the_mean_of_vectors_that_were_drawn():
    drawn = new_intent_slot_model(SAID, words=map(str, range(500)), seed=0).embedding.weight
    assert drawn[0].tolist() == pytest.approx(drawn[1:].mean(0).tolist(), abs=0.02)


def test_words_without_a_vector_are_drawn_with_the_spread_of_the_others():
    names = [f"w{n}" for n in range(4000)]
    said = Utterances.of([Utterance(tuple(names), ("O",) * len(names), "List")])
    chance = np.random.default_rng(0)
    drawn = chance.normal([5, -3], [0.1, 2], (2000, 2)).astype(np.float32)
    model = new_intent_slot_model(said, vectors=WordVectors(tuple(names[:2000]), drawn), seed=0)
    others = torch.stack([torch.tensor(row(model, name)) for name in names[2000:]])
    assert others.mean(0).tolist() == pytest.approx([5, -3], abs=0.2)
    assert others.std(0).tolist() == pytest.approx([0.1, 2], rel=0.1)


def test_vectors_of_no_word_or_of_another_size_are_refused():
    with pytest.raises(DataError, match="none of the 3 words"):
        new_intent_slot_model(SAID, vectors=vectors(haus=[1, 2]), seed=0)
    with pytest.raises(ValueError, match="embedding_size must be 2, as vectors have, got 3"):
        new_intent_slot_model(SAID, vectors=vectors(to=[1, 2]), embedding_size=3, seed=0)
