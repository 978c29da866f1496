"""Units of privacy in edge cases: users without words, and steps that sample no user."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from vestige.data.encoded import EncodedCorpus
from vestige.errors import TrainingError
from vestige.privacy.dp_fedavg import DPFedAvgStep
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.sequences import SequenceBatches, Sequences

CPU = torch.device("cpu")


def encoded(texts: list[tuple[str, list[int]]]) -> EncodedCorpus:
    names = tuple(sorted({user for user, _ in texts}))
    offsets = np.cumsum([0, *(len(tokens) for _, tokens in texts)])
    users = np.array([names.index(user) for user, _ in texts], np.int32)
    tokens = np.concatenate([tokens for _, tokens in texts]).astype(np.int32)
    return EncodedCorpus(tokens, offsets, users, names)


TEXTS = [("ann", [3, 4, 1]), ("bob", [5, 1]), ("cy", [6, 7, 8, 9, 1]), ("ann", [4, 4, 1])]


def batches(texts, draw, size):
    return SequenceBatches(Sequences.of(encoded(texts), length=3), size, draw, 1, CPU)


@pytest.mark.parametrize("draw", ["poisson", "poisson-users"])
def test_users_without_words_are_no_units_and_change_no_sample(draw):
    with_empty_users = [("aa", [1]), *TEXTS, ("zoe", [1])]
    expected, result = batches(TEXTS, draw, 2), batches(with_empty_users, draw, 2)
    assert (result.units, result.sample_rate) == (expected.units, expected.sample_rate)
    for epoch in range(10):
        first, second = (
            [b.targets.tolist() for b in sampler.epoch(7, epoch)] for sampler in (expected, result)
        )
        assert first == second


@pytest.mark.parametrize("draw", ["poisson", "poisson-users"])
def test_a_corpus_whose_users_have_no_words_is_refused(draw):
    with pytest.raises(TrainingError, match="No document has a word"):
        batches([("ann", [1]), ("bob", [1])], draw, 1)


@pytest.mark.parametrize("federated", [False, True])
def test_steps_that_sample_no_user_add_only_noise_and_are_counted(tiny_model, federated):
    shared = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_units": 1}
    step = (
        DPFedAvgStep(**shared) if federated else DPSGDStep(**shared, sequence_length=3, unit="user")
    )
    weights_before = []

    class EmptySample:
        def draw_from(self, secret, number):
            step.draw_from(secret, number)

        def __call__(self, model, batch, state):
            weights_before.append(weights(model))
            return step(model, batch.select(torch.empty(0, dtype=torch.int64)), state)

    model = tiny_model()
    config = TrainingConfig(
        seed=0,
        epochs=2,
        batch_size=1,
        sequence_length=3,
        batching="poisson-users",
        optimizer="sgd",
        learning_rate=0.1,
    )
    history = train(model, encoded(TEXTS), config=config, step=EmptySample())
    assert (len(weights_before), history.epochs[-1].step) == (6, 6)
    for before, after in pairwise([*weights_before, weights(model)]):
        assert float((after - before).std()) == pytest.approx(0.1, rel=0.2)
        assert float((after - before).abs().max()) < 0.1 * 6


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
