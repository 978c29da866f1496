"""Clipping, noise and the step, each against its definition written naively."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.models.transformer import TransformerConfig
from vestige.privacy import randomness, unit_gradients
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.privacy.randomness import scale
from vestige.training.batches import IGNORED, Batch
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.new_models import new_model
from vestige.training.secret import Secret
from vestige.training.sequences import SequenceBatches, Sequences

SIZE, LENGTH = 12, 7
LSTMS = {
    "one layer": LSTMConfig(layers=1, embedding_size=5, hidden_size=6),
    "two layers": LSTMConfig(layers=2, embedding_size=5, hidden_size=6),
    "three layers": LSTMConfig(layers=3, embedding_size=5, hidden_size=6),
    "tied": LSTMConfig(layers=2, embedding_size=6, hidden_size=6, tied=True),
}
OTHERS = {
    "transformer": TransformerConfig(layers=2, heads=2, hidden_size=8, feed_forward=16, dropout=0.0)
}
SHAPES = {**LSTMS, **OTHERS}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_model(name: str, dtype: torch.dtype = torch.float64) -> LanguageModel:
    vocabulary = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, SIZE))))
    return new_model(vocabulary, SHAPES[name], seed=1).to(dtype).train()


def make_data(documents: int = 9, *, equal: bool = False) -> EncodedCorpus:
    """Documents of two to seven tokens in which words repeat, of three users."""
    rng = np.random.default_rng(0)
    sizes = np.full(documents, LENGTH) if equal else rng.integers(2, LENGTH + 1, documents)
    ids = [np.append(rng.integers(2, 6, size - 1), 1) for size in sizes]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    users = (np.arange(documents) % 3).astype(np.int32)
    tokens = np.concatenate(ids).astype(np.int32)
    return EncodedCorpus(tokens, offsets, users, ("ann", "bob", "cy"))


def make_batch(data: EncodedCorpus) -> Batch:
    sequences = Sequences.of(data, length=LENGTH)
    return sequences.batch(np.arange(len(sequences)), 1, torch.device("cpu"))


def gradient(model: LanguageModel, batch: Batch, rows: list[int]) -> list[torch.Tensor]:
    """The summed gradient of some rows, each read by itself, without padding."""
    total = [torch.zeros_like(p) for p in model.parameters()]
    for row in rows:
        model.zero_grad()
        n = int((batch.targets[row] != IGNORED).sum())
        logits, _ = model(batch.inputs[row : row + 1, :n], None)
        targets = batch.targets[row, :n]
        (cross_entropy(logits[0], targets, reduction="sum") / LENGTH).backward()
        for sum_, parameter in zip(total, model.parameters(), strict=True):
            sum_ += parameter.grad
    return total


def naive(model: LanguageModel, batch: Batch, units: list[list[int]], norm: float):
    """The clipped sum and the norms, a unit at a time."""
    total, norms = [torch.zeros_like(p) for p in model.parameters()], []
    for rows in units:
        own = gradient(model, batch, rows)
        norms.append(math.sqrt(sum(float(g.square().sum()) for g in own)))
        for sum_, g in zip(total, own, strict=True):
            sum_ += g * min(1.0, norm / norms[-1])
    return total, torch.tensor(norms)


def step_of(**settings) -> DPSGDStep:
    given = {
        "noise_multiplier": 0.0,
        "max_grad_norm": 0.3,
        "expected_units": 4,
        "sequence_length": LENGTH,
    }
    return DPSGDStep(**{**given, **settings})


@pytest.mark.slow
@pytest.mark.parametrize("physical", [None, 4, 1])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
def test_norms_and_clipped_sum_are_those_of_a_loop_over_examples(name, dtype, tolerance, physical):
    model, batch = make_model(name, dtype), make_batch(make_data())
    rows = [[row] for row in range(len(batch.inputs))]
    bound = 2.0 if name == "transformer" else 0.3
    expected, norms = naive(make_model(name), batch, rows, bound)
    assert 0 < (norms > bound).sum() < len(norms)  # some are cut, some are not

    step = step_of(max_grad_norm=bound, physical_batch_size=physical)
    loss, state = step(model, batch, None)

    order = batch.lengths.argsort() if physical else torch.arange(len(rows))
    torch.testing.assert_close(
        torch.cat(step.norms).double(), norms[order].double(), rtol=tolerance, atol=0
    )
    for parameter, sum_ in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(
            parameter.grad.double() * 4, sum_, rtol=tolerance, atol=tolerance * 0.1
        )
    assert state is None
    assert math.isfinite(loss)


@pytest.mark.parametrize("name", LSTMS)
def test_onednns_products_give_the_same_norms_and_sums(name, monkeypatch):
    """What large models take."""
    monkeypatch.setattr(unit_gradients, "_ONEDNN", unit_gradients._onednn())
    monkeypatch.setattr(unit_gradients, "_LARGE", 0)
    test_norms_and_clipped_sum_are_those_of_a_loop_over_examples(name, torch.float32, 1e-4, None)


@pytest.mark.parametrize("name", ["two layers", "transformer"])
@pytest.mark.parametrize("physical", [None, 2])
def test_a_user_is_clipped_with_all_that_is_theirs(name, physical):
    model, batch = make_model(name), make_batch(make_data())
    units = [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    expected, norms = naive(make_model(name), batch, units, 0.5)
    step = step_of(unit="user", max_grad_norm=0.5, physical_batch_size=physical)
    step(model, batch, None)
    torch.testing.assert_close(torch.stack([*step.norms[0]]).double(), norms.double())
    for parameter, sum_ in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad * 4, sum_)


@pytest.mark.parametrize("name", LSTMS)
def test_dropout_enters_the_gradient_as_in_a_plain_pass(name, monkeypatch):
    """With the same masks in both."""

    def drawn(probability, width):
        chance = torch.Generator().manual_seed(int(100 * probability))
        return torch.rand(len(batch.inputs), LENGTH, width, generator=chance) >= probability

    def masked(values, probability, training=True):
        return values * drawn(probability, values.shape[2]) * scale(probability)

    def kept(keys, call, shape, probability):
        return drawn(probability, shape[2])[: shape[0]]

    monkeypatch.setattr(randomness, "kept", kept)
    monkeypatch.setattr(torch.nn.functional, "dropout", masked)
    config = replace(SHAPES[name], dropout_in=0.3, dropout_out=0.4)
    model = new_model(make_model(name).vocabulary, config, seed=1).double().train()
    batch = make_batch(make_data(equal=True))
    assert len(batch.inputs) != LENGTH
    logits, _ = model(batch.inputs, None)
    losses = cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none").sum(1) / LENGTH
    own = [
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True) for loss in losses
    ]
    norms = torch.stack([torch.nn.utils.get_total_norm(grads) for grads in own])
    scales = (0.3 / norms).clamp(max=1.0)
    step = step_of(expected_units=1)
    step(model, batch, None)
    torch.testing.assert_close(torch.cat(step.norms), norms)
    for position, parameter in enumerate(model.parameters()):
        expected = sum(scale * grads[position] for scale, grads in zip(scales, own, strict=True))
        torch.testing.assert_close(parameter.grad, expected)


def test_dropout_drops_nothing_in_evaluation():
    batch = make_batch(make_data())
    model = new_model(
        make_model("one layer").vocabulary,
        replace(SHAPES["one layer"], dropout_in=0.3, dropout_out=0.4),
        seed=1,
    )
    result = []
    for active in (True, False):
        step = step_of()
        step(model.train(active), batch, None)
        result.append(torch.cat(step.norms))
    step = step_of()
    plain = new_model(model.vocabulary, SHAPES["one layer"], seed=1)
    step(plain, batch, None)
    torch.testing.assert_close(result[1], torch.cat(step.norms))
    assert not torch.allclose(result[0], result[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_without_noise_and_clipping_a_run_equals_plain_training(name, plain_but_private):
    data = make_data(8, equal=True)
    config = TrainingConfig(
        seed=0,
        epochs=3,
        batch_size=4,
        sequence_length=LENGTH,
        batching="documents",
        learning_rate=0.01,
        max_grad_norm=None,
        precision="float32",
    )
    plain, private = make_model(name), make_model(name)
    secret = Secret.of_seed(0)
    train(plain, data, config=config, step=plain_but_private, secret=secret)
    train(private, data, config=config, step=step_of(max_grad_norm=1e9), secret=secret)
    for one, other in zip(plain.parameters(), private.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_noise_has_the_deviation_that_was_asked_for():
    model, batch = make_model("two layers"), make_batch(make_data())
    step_of()(model, batch, None)
    without = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.manual_seed(0)
    drawn = []
    for _ in range(100):
        step_of(noise_multiplier=1.5)(model, batch, None)
        drawn.append(torch.cat([p.grad.flatten() for p in model.parameters()]) - without)
    noise = torch.stack(drawn)
    expected = 1.5 * 0.3 / 4
    count = noise.numel()
    assert noise.std().item() == pytest.approx(expected, rel=4 / math.sqrt(2 * count))
    assert noise.mean().item() == pytest.approx(0, abs=4 * expected / math.sqrt(count))


@pytest.mark.parametrize("name", ["two layers", "transformer"])
def test_a_lot_that_draws_nothing_still_makes_noise(name):
    model = make_model(name)
    empty = Sequences.of(make_data(), length=LENGTH).batch(
        np.empty(0, np.int64), 1, torch.device("cpu")
    )
    loss, _ = step_of(noise_multiplier=1.0)(model, empty, None)
    assert loss == 0
    assert all(p.grad.std() > 0 for p in model.parameters())


def test_frozen_parameters_stay_and_count_for_nothing():
    model, batch = make_model("two layers"), make_batch(make_data())
    model.embedding.weight.requires_grad_(False)
    model.lstm.weight_hh_l0.requires_grad_(False)
    model.lstm.bias_ih_l1.requires_grad_(False)
    learning = [p for p in model.parameters() if p.requires_grad]
    norms = []
    for row in range(len(batch.inputs)):
        model.zero_grad()
        n = int(batch.lengths[row])
        logits, _ = model(batch.inputs[row : row + 1, :n], None)
        (cross_entropy(logits[0], batch.targets[row, :n], reduction="sum") / LENGTH).backward()
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in learning]))
    step = step_of()
    step(model, batch, None)
    torch.testing.assert_close(torch.cat(step.norms), torch.stack(norms))
    assert model.embedding.weight.grad is None


def test_hooks_leave_nothing_on_the_model():
    model, batch = make_model("transformer"), make_batch(make_data())
    before = set(model.state_dict())
    step_of()(model, batch, None)
    assert set(model.state_dict()) == before
    assert not any(m._backward_hooks or m._forward_hooks for m in model.modules())
    assert not any("grad_sample" in p.__dict__ for p in model.parameters())


def test_a_gradient_that_is_not_finite_ends_the_training():
    model, batch = make_model("one layer"), make_batch(make_data())
    with torch.no_grad():
        model.head.weight[0, 0] = math.inf
    with pytest.raises(FloatingPointError, match="norms must be finite"):
        step_of()(model, batch, None)


@pytest.mark.parametrize("draw", ["documents", "users", "poisson", "poisson-users"])
def test_an_epoch_goes_on_where_it_was_left(draw):
    sequences = Sequences.of(make_data(30), length=4)
    batches = SequenceBatches(sequences, 2, draw, 1, torch.device("cpu"))
    whole = list(batches.epoch(3, 1))
    rest = list(batches.epoch(3, 1, first=2))
    assert len(whole) == len(batches)
    for one, other in zip(whole[2:], rest, strict=True):
        torch.testing.assert_close(one.inputs, other.inputs)
    if draw == "users":
        assert all(len(b.users.unique()) == 1 for b in whole)
    if "poisson" not in draw:
        assert sum(len(b.inputs) for b in whole) == len(sequences)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["sequence", "user"])
@pytest.mark.parametrize("name", SHAPES)
def test_norms_that_are_formed_where_tokens_cancel_are_those_of_gram_matrices(
    name, unit, monkeypatch
):
    batch, result = make_batch(make_data()), []
    for cancelled in (0.0, 2.0):
        monkeypatch.setattr(unit_gradients, "_CANCELLATION", cancelled)
        step = step_of(unit=unit)
        step(make_model(name), batch, None)
        result.append(torch.cat(step.norms))
    torch.testing.assert_close(*result, rtol=1e-5, atol=1e-7)
