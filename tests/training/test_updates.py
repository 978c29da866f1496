"""Each update is the training that Table 2 of the paper names."""

from dataclasses import replace

import pytest
import torch

from vestige.training.loop import TrainingConfig, train
from vestige.training.updates import continued, joined, retrain, two_stage

CONFIG = TrainingConfig(seed=3, epochs=2, batch_size=4, sequence_length=5, learning_rate=0.01)


def weights(model) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_joined_corpora_keep_every_document(make_text):
    parts = [make_text(n, seed=n) for n in (20, 30, 40)]
    whole = joined(*parts)
    assert len(whole) == 3
    for index, part in enumerate(parts):
        assert whole.document(index).tolist() == part.tokens.tolist()
    assert whole.tokens.dtype == parts[0].tokens.dtype
    assert joined(parts[0]).offsets.tolist() == parts[0].offsets.tolist()


def test_retraining_learns_both_texts_from_fresh_weights(make_model, make_text):
    original, update = make_text(80, seed=1), make_text(60, seed=2)
    expected, fresh = make_model(seed=5), make_model(seed=5)
    train(expected, joined(original, update), config=CONFIG)
    assert retrain(fresh, original, update, config=CONFIG) is fresh
    assert weights(fresh).equal(weights(expected))


def test_continued_training_learns_the_new_text_and_leaves_the_old_model(make_model, make_text):
    before, expected = make_model(), make_model()
    train(expected, make_text(60, seed=2), config=CONFIG)
    after = continued(before, make_text(60, seed=2), config=CONFIG)
    assert weights(after).equal(weights(expected))
    assert weights(before).equal(weights(make_model()))


def test_two_stages_are_two_continuations(make_model, make_text):
    update, later = make_text(60, seed=2), make_text(70, seed=3)
    expected = continued(continued(make_model(), update, config=CONFIG), later, config=CONFIG)
    assert weights(two_stage(make_model(), update, later, config=CONFIG)).equal(weights(expected))


def test_an_interrupted_second_stage_goes_on_to_the_same_bits(make_model, make_text, tmp_path):
    class Killed(BaseException):
        pass

    def dying(step, total, loss, speed):
        told.append(step)
        if told.count(10) == 2:  # the second stage's tenth step
            raise Killed

    config = replace(CONFIG, sequence_length=1, checkpoint_every=3)
    texts, told = (make_text(60, seed=2), make_text(70, seed=3)), []
    expected = two_stage(make_model(), *texts, config=config, directory=tmp_path / "whole")
    directory = tmp_path / "cut"
    with pytest.raises(Killed):
        two_stage(make_model(), *texts, config=config, directory=directory, progress=dying)
    assert (directory / "first" / "model").exists()
    assert (directory / "second" / "checkpoint.safetensors").exists()
    resumed = two_stage(make_model(), *texts, config=config, directory=directory, resume=True)
    assert weights(resumed).equal(weights(expected))
