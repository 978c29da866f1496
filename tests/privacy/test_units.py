"""What is claimed of units at the edges: all drawn, nobody drawn, nothing to draw."""

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


def made(texts: list[tuple[str, list[int]]]) -> EncodedCorpus:
    names = tuple(sorted({user for user, _ in texts}))
    offsets = np.cumsum([0, *(len(tokens) for _, tokens in texts)])
    users = np.array([names.index(user) for user, _ in texts], np.int32)
    tokens = np.concatenate([tokens for _, tokens in texts]).astype(np.int32)
    return EncodedCorpus(tokens, offsets, users, names)


TEXTS = [("ann", [3, 4, 1]), ("bob", [5, 1]), ("cy", [6, 7, 8, 9, 1]), ("ann", [4, 4, 1])]


def batches(texts, draw, size):
    return SequenceBatches(Sequences.of(made(texts), length=3), size, draw, 1, CPU)


@pytest.mark.parametrize("draw", ["poisson", "poisson-users"])
def test_a_user_without_a_word_is_no_unit_and_moves_no_lot(draw):
    nobody = [("aa", [1]), *TEXTS, ("zoe", [1])]
    one, other = batches(TEXTS, draw, 2), batches(nobody, draw, 2)
    assert (one.units, one.sample_rate) == (other.units, other.sample_rate)
    for epoch in range(10):
        lots = [[b.targets.tolist() for b in every.epoch(7, epoch)] for every in (one, other)]
        assert lots[0] == lots[1]


@pytest.mark.parametrize("draw", ["poisson", "poisson-users"])
def test_text_of_nobody_but_users_without_a_word_is_refused(draw):
    with pytest.raises(TrainingError, match="No document has a word"):
        batches([("ann", [1]), ("bob", [1])], draw, 1)


@pytest.mark.parametrize("federated", [False, True])
def test_steps_that_draw_nobody_are_noise_alone_and_count(tiny_model, federated):
    shared = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_units": 1}
    step = (
        DPFedAvgStep(**shared) if federated else DPSGDStep(**shared, sequence_length=3, unit="user")
    )
    path = []

    class Nobody:
        def draw_from(self, secret, number):
            step.draw_from(secret, number)

        def __call__(self, model, batch, state):
            path.append(weights(model))
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
    history = train(model, made(TEXTS), config=config, step=Nobody())
    assert (len(path), history.epochs[-1].step) == (6, 6)
    for before, after in pairwise([*path, weights(model)]):
        assert float((after - before).std()) == pytest.approx(0.1, rel=0.2)
        assert float((after - before).abs().max()) < 0.1 * 6


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
