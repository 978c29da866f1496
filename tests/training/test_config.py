"""The schedule against its closed forms."""

import math

import pytest

from vestige.training.config import TrainingConfig, learning_rate


def rates(epochs=4, steps_per_epoch=5, **settings):
    config = TrainingConfig(seed=0, epochs=epochs, learning_rate=2.0, **settings)
    steps = range(epochs * steps_per_epoch)
    return [learning_rate(config, step, steps_per_epoch=steps_per_epoch) for step in steps]


def test_a_constant_rate_stays():
    assert rates(schedule="constant") == [2.0] * 20


def test_a_step_schedule_halves_the_rate_once_an_epoch_after_the_given_ones():
    expected = [2.0] * 10 + [1.0] * 5 + [0.5] * 5
    assert rates(schedule="step", decay=0.5, decay_after=2) == expected


def test_a_cosine_begins_at_the_full_rate_and_ends_near_zero():
    found = rates(schedule="cosine")
    assert found[0] == 2.0
    assert found[10] == pytest.approx(1.0)
    assert found[19] == pytest.approx(1 + math.cos(math.pi * 19 / 20))
    assert found == sorted(found, reverse=True)


def test_a_warm_up_climbs_in_equal_steps_to_the_full_rate():
    assert rates(warmup_steps=4)[:6] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("batch_size", 0),
        ("sequence_length", 0),
        ("checkpoint_every", 0),
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
