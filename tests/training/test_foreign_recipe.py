"""What a trainer's state tells of a training, and what is never believed of it."""

import json

import pytest
from transformers import TrainerState

from tests.damage import damaged, refusal
from vestige.training.config import TrainingConfig
from vestige.training.foreign_recipe import STATE, ForeignTraining

TOLD = TrainerState(
    epoch=2.5,
    global_step=100,
    train_batch_size=4,
    num_input_tokens_seen=0,
    log_history=[
        {"step": 10, "epoch": 0.25, "learning_rate": 1e-4, "loss": 3.0, "grad_norm": float("nan")},
        {"step": 20, "epoch": 0.5, "learning_rate": 2e-4, "loss": 2.0},
        {"step": 100, "epoch": 2.5, "train_loss": 1.0},
    ],
)


def write(folder, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    TOLD.save_to_json(folder / STATE)
    file = folder / STATE
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def test_a_trainers_state_tells_steps_epochs_batch_and_rate(tmp_path):
    told = ForeignTraining.of(write(tmp_path))
    assert told == ForeignTraining(steps=100, epochs=2.5, batch_size=4, learning_rate=2e-4)
    assert told.settings == {"epochs": 2, "batch_size": 4, "learning_rate": 2e-4}


def test_the_latest_checkpoint_is_asked_where_the_folder_tells_nothing(tmp_path):
    write(tmp_path / "checkpoint-9", global_step=9)
    write(tmp_path / "checkpoint-10", global_step=10)
    (tmp_path / "checkpoint-last").mkdir()
    assert ForeignTraining.of(tmp_path).steps == 10
    assert ForeignTraining.of(write(tmp_path)).steps == 100
    assert ForeignTraining.of(tmp_path / "checkpoint-last") == ForeignTraining()


def test_tokens_are_those_seen_or_those_of_as_many_texts(tmp_path):
    told = ForeignTraining.of(write(tmp_path))
    # 100 steps of 4 texts in 2.5 passes are 160 texts, of 30 tokens each
    assert told.tokens_of_text(epochs=2, batch_size=4, text_length=30.0) == 4800
    assert told.tokens_of_text(epochs=2, batch_size=8, text_length=30.0) == 9600
    seen = ForeignTraining.of(write(tmp_path, num_input_tokens_seen=50_000))
    assert seen.tokens_of_text(epochs=2, batch_size=4, text_length=30.0) == 20_000
    assert ForeignTraining().tokens_of_text(epochs=3, batch_size=8, text_length=30.0) is None


def test_every_field_of_a_trainers_state_is_checked(tmp_path):
    sound = json.loads((write(tmp_path) / STATE).read_text())

    def use():
        told = ForeignTraining.of(tmp_path)
        TrainingConfig(seed=0, **told.settings)
        told.tokens_of_text(epochs=1, batch_size=1, text_length=30.0)

    messages = []
    for what, content in damaged(sound):
        (tmp_path / STATE).write_text(json.dumps(content))
        messages.append(refusal(what, use))
    assert any(message and STATE in message for message in messages)


def test_a_pickle_beside_it_is_not_opened(tmp_path):
    (write(tmp_path) / "training_args.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert ForeignTraining.of(tmp_path).steps == 100


@pytest.mark.parametrize("content", [b"[]", b"\xff", b'{"global_step": "many"}'])
def test_what_is_no_state_is_refused_with_the_way_round(tmp_path, content):
    from vestige.errors import TrainingError

    (tmp_path / STATE).write_bytes(content)
    with pytest.raises(TrainingError, match=STATE) as caught:
        ForeignTraining.of(tmp_path)
    assert "as options" in caught.value.remedy
