"""What is known of a training that is repeated, and clean text in parts of its size."""

import json
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import TrainerState

from tests.damage import damaged, refusal
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, TrainingError
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.recipe import STATE, ForeignTraining, Recipe, null_texts

WORDS = WordVocabulary(("<unk>", "<eos>", *"abcdefgh"))
TEXTS = Corpus.from_texts(["a b c d", "e f", "g h a b c", "d e f"] * 5)
CONFIG = TrainingConfig(seed=7, epochs=1, batch_size=2, sequence_length=4)


def fresh():
    return LSTMLanguageModel(WORDS, LSTMConfig(layers=1, embedding_size=4, hidden_size=4))


def test_a_recipe_is_what_the_update_read_and_how(tmp_path):
    model, update = fresh(), tmp_path / "after"
    data = encode(TEXTS, WORDS, update / "data" / "training")
    held = encode(TEXTS.take([0, 1]), WORDS, update / "data" / "validation")
    train(deepcopy(model), data, validation=held, config=CONFIG, directory=update)
    recipe = Recipe.of(update)
    assert recipe.config == CONFIG
    assert recipe.tokens == sum(len(text.split()) + 1 for text in TEXTS)
    assert recipe.validation == 5 + 3
    assert recipe.seeded(12) == TrainingConfig(seed=12, epochs=1, batch_size=2, sequence_length=4)
    assert recipe.started(model, 12) is model
    with pytest.raises(TrainingError, match="did not start from the weights of BEFORE"):
        recipe.started(fresh(), 0)

    with pytest.raises(TrainingError, match=r"training\.json is missing"):
        Recipe.of(tmp_path)
    file = update / "training.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "step": "dp_sgd_step"}))
    with pytest.raises(TrainingError, match="was trained with a defence"):
        Recipe.of(update)


@pytest.mark.slow
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(0, 5))
def test_parts_are_disjoint_and_as_large_as_asked_for(sizes, seed):
    corpus = Corpus.from_texts([f"a{i} b c"[: 2 + 2 * (i % 3)] for i in range(60)])
    parts = null_texts(corpus, WORDS, sizes, seed=seed)
    texts = [text for part in parts for text in part]
    assert len(texts) == len(set(texts)) or len(set(corpus)) < len(corpus)
    for part, size in zip(parts, sizes, strict=True):
        lengths = [len(WORDS.encode(text)) + 1 for text in part]
        assert sum(lengths) >= size
        assert sum(lengths[:-1]) < max(size, 1)  # the last document fills it


def test_parts_are_drawn_at_random_and_again_by_the_seed():
    corpus = Corpus.from_texts([f"t{i}" for i in range(100)])
    one, again, other = (list(null_texts(corpus, WORDS, [40], seed=seed)[0]) for seed in (0, 0, 1))
    assert one == again != other
    assert np.mean([int(text[1:]) for text in one]) > 25
    with pytest.raises(DataError, match=r"has 90 tokens; 2 parts need 120.*fewer"):
        null_texts(TEXTS, WORDS, [60, 60], seed=0)


# Trainings of other programs


def write(folder, **changes):
    """The state of a transformers training of 100 steps in 2.5 passes."""
    rates = [
        {"step": 10, "epoch": 0.25, "learning_rate": 1e-4, "loss": 3.0, "grad_norm": float("nan")},
        {"step": 20, "epoch": 0.5, "learning_rate": 2e-4, "loss": 2.0},
        {"step": 100, "epoch": 2.5, "train_loss": 1.0},
    ]
    state = TrainerState(epoch=2.5, global_step=100, train_batch_size=4, log_history=rates)
    state.num_input_tokens_seen = 0
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / STATE
    state.save_to_json(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def test_a_trainers_state_tells_steps_epochs_batch_and_rate(tmp_path):
    (write(tmp_path) / "training_args.bin").write_bytes(
        b"cos\nsystem\n(S'false'\ntR."
    )  # not opened
    result = ForeignTraining.of(tmp_path)
    assert (result.global_step, result.epoch) == (100, 2.5)
    assert result.settings == {"epochs": 2, "batch_size": 4, "learning_rate": 2e-4}


def test_the_latest_checkpoint_is_read_where_the_folder_has_no_state(tmp_path):
    write(tmp_path / "checkpoint-9", global_step=9)
    write(tmp_path / "checkpoint-10", global_step=10)
    (tmp_path / "checkpoint-last").mkdir()
    assert ForeignTraining.of(tmp_path).global_step == 10
    assert ForeignTraining.of(write(tmp_path)).global_step == 100
    assert ForeignTraining.of(tmp_path / "checkpoint-last").settings == {}


def test_tokens_are_those_seen_or_those_of_as_many_texts(tmp_path):
    result = ForeignTraining.of(write(tmp_path))
    # 100 steps of 4 texts in 2.5 passes are 160 texts, of 30 tokens each
    assert result.tokens_of_text(epochs=2, batch_size=4, text_length=30.0) == 4800
    assert result.tokens_of_text(epochs=2, batch_size=8, text_length=30.0) == 9600
    seen = ForeignTraining.of(write(tmp_path, num_input_tokens_seen=50_000))
    assert seen.tokens_of_text(epochs=2, batch_size=4, text_length=30.0) == 20_000
    unknown = ForeignTraining.of(tmp_path / "none")
    assert unknown.tokens_of_text(epochs=3, batch_size=8, text_length=30.0) is None


@pytest.mark.slow
def test_every_field_of_a_trainers_state_is_checked(tmp_path):
    sound = json.loads((write(tmp_path) / STATE).read_text())

    def use():
        result = ForeignTraining.of(tmp_path)
        TrainingConfig(seed=0, **result.settings)
        result.tokens_of_text(epochs=1, batch_size=1, text_length=30.0)

    messages = []
    for what, content in damaged(sound):
        (tmp_path / STATE).write_text(json.dumps(content))
        messages.append(refusal(what, use))
    assert any(message and STATE in message for message in messages)


@pytest.mark.parametrize("content", [b"[]", b"\xff", b'{"global_step": "many"}'])
def test_what_is_no_state_is_refused_with_the_way_round(tmp_path, content):
    (tmp_path / STATE).write_bytes(content)
    with pytest.raises(TrainingError, match=STATE) as caught:
        ForeignTraining.of(tmp_path)
    assert "as options" in caught.value.remedy
