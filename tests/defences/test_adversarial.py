"""The adversarial step against both gradients written out, and what each side may touch."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from vestige.defences.regularizers import AdversarialStep, Discriminator, kl_from_uniform
from vestige.errors import TrainingError
from vestige.training.batches import IGNORED
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.steps import plain_step

WIDTH, USERS = 8, 3
CONFIG = TrainingConfig(
    seed=0,
    epochs=2,
    batch_size=4,
    sequence_length=7,
    batching="users",
    learning_rate=0.01,
    max_grad_norm=1.0,
    precision="float32",
)


def step_of(**settings):
    return AdversarialStep(**{"weight": 0.5, "width": WIDTH, "users": USERS, "seed": 1, **settings})


def by_hand(model, batch):
    """Mean cross-entropy and each row's last hidden state, a row at a time, without padding."""
    losses, last = [], []
    for row in range(len(batch.inputs)):
        n = int((batch.targets[row] != IGNORED).sum())
        hidden, _ = model.body(batch.inputs[row : row + 1, :n])
        losses.append(
            cross_entropy(model.predict(hidden[0]), batch.targets[row, :n], reduction="sum")
        )
        last.append(hidden[0, -1])
    return torch.stack(losses).sum() / batch.tokens, torch.stack(last)


def improved(discriminator, states, users):
    """What one step of Adam on the authors' cross-entropy makes of a discriminator; its logits."""
    better = copy.deepcopy(discriminator)
    logits = better(states.detach())
    optimizer = torch.optim.Adam(better.parameters(), lr=1e-3)
    cross_entropy(logits, users).backward()
    optimizer.step()
    return better, logits.detach()


@pytest.mark.parametrize("architecture", ["lstm", "tied lstm", "transformer"])
def test_the_models_gradient_is_that_of_both_terms(tiny_model, tiny_batch, architecture):
    model, batch, step = tiny_model(architecture), tiny_batch(), step_of()
    loss, last = by_hand(model, batch)
    better, _ = improved(step.discriminator, last, batch.users)
    chances = torch.softmax(better(last), 1)
    told = (1 / USERS * (1 / USERS / chances).log()).sum(1).mean()
    expected = torch.autograd.grad(loss + 0.5 * told, list(model.parameters()))

    returned, state = step(model, batch, None)

    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(returned, loss.detach())
    assert not returned.requires_grad
    assert state is None or not state.hidden.requires_grad


@pytest.mark.parametrize("weight", [0.0, 0.5, 50.0])
def test_the_discriminator_learns_authors_and_nothing_of_the_models_term(
    tiny_model, tiny_batch, weight
):
    model, batch, step = tiny_model(), tiny_batch(), step_of(weight=weight)
    _, last = by_hand(model, batch)
    better, logits = improved(step.discriminator, last, batch.users)
    step(model, batch, None)
    for ours, theirs in zip(step.discriminator.parameters(), better.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    right = (logits.argmax(1) == batch.users).double().mean().item()
    measured = step.measured()
    assert measured["discriminator_accuracy"] == pytest.approx(right)
    told = kl_from_uniform(better(last.detach())).item()
    assert measured["kl_from_uniform"] == pytest.approx(told, rel=1e-4)
    assert step.measured() == {}


def test_what_is_judged_teaches_the_states_alone():
    discriminator = Discriminator(WIDTH, USERS, seed=0)
    states = torch.randn(4, WIDTH, requires_grad=True)
    judged = discriminator.judge(states)
    torch.testing.assert_close(judged, discriminator(states))
    judged.sum().backward()
    assert states.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in discriminator.parameters())


def test_a_discriminator_is_two_layers_that_its_seed_decides():
    before = torch.get_rng_state()
    one, same, other = (Discriminator(WIDTH, USERS, seed=seed) for seed in (1, 1, 2))
    assert torch.get_rng_state().equal(before)
    assert one.first.weight.equal(same.first.weight)
    assert not one.first.weight.equal(other.first.weight)
    assert one.first.weight.shape == (1000, WIDTH)
    assert one.second.weight.shape == (USERS, 1000)
    states = torch.randn(5, WIDTH)
    inner = (states @ one.first.weight.t() + one.first.bias).clamp(min=0)
    torch.testing.assert_close(one(states), inner @ one.second.weight.t() + one.second.bias)


@given(st.lists(st.lists(st.floats(-30, 30), min_size=4, max_size=4), min_size=1, max_size=5))
def test_the_divergence_is_its_definition_and_never_negative(rows):
    logits = torch.tensor(rows, dtype=torch.float64)
    chances = torch.softmax(logits, 1)
    expected = (0.25 * (0.25 / chances).log()).sum(1).mean().item()
    assert kl_from_uniform(logits).item() == pytest.approx(expected, abs=1e-9)
    assert kl_from_uniform(logits).item() >= -1e-12


def test_where_nothing_can_be_told_the_term_is_zero():
    assert kl_from_uniform(torch.full((5, 7), 3.0)).item() == pytest.approx(0, abs=1e-6)
    sure = torch.tensor([[20.0, 0.0]])
    assert kl_from_uniform(sure).item() == pytest.approx(10 - math.log(2), abs=1e-6)


@pytest.mark.parametrize("batching", ["users", "documents"])
@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_with_weight_zero_it_is_plain_training_bit_for_bit(
    tiny_model, tiny_data, architecture, batching
):
    config = replace(CONFIG, batching=batching)
    plain, off = (tiny_model(architecture, dropout=0.2) for _ in range(2))
    train(plain, tiny_data(), config=config)
    train(off, tiny_data(), config=config, step=step_of(weight=0.0, max_grad_norm=1.0))
    for one, other in zip(plain.parameters(), off.parameters(), strict=True):
        assert one.equal(other)


def test_a_weight_makes_authors_harder_to_tell(tiny_model, tiny_data, tiny_batch):
    config = replace(CONFIG, epochs=30, batch_size=12, batching="documents")
    told = {}
    for weight in (0.0, 5.0):
        model, step = tiny_model(), step_of(weight=weight, learning_rate=0.01)
        train(model, tiny_data(36), config=config, step=step)
        step.measured()
        step(model, tiny_batch(36), None)
        told[weight] = step.measured()["kl_from_uniform"]
    assert told[5.0] < 0.1 * told[0.0]


def test_a_batch_without_tokens_moves_nobody(tiny_model, tiny_batch):
    model, step = tiny_model(), step_of()
    before = copy.deepcopy(step.discriminator.state_dict())
    empty = tiny_batch().select(torch.tensor([0]))
    empty = type(empty)(empty.inputs[:0], empty.targets[:0], 0, empty.lengths[:0], empty.users[:0])
    loss, state = step(model, empty, None)
    assert (loss, state) == (0, None)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(before[name].equal(t) for name, t in step.discriminator.state_dict().items())


def test_what_it_learnt_can_be_put_back(tiny_model, tiny_batch):
    model, batch = tiny_model(), tiny_batch()
    whole, cut, resumed = step_of(), step_of(), step_of()
    for _ in range(3):
        whole(model, batch, None)
    cut(model, batch, None)
    kept = {name: tensor.clone() for name, tensor in cut.tensors().items()}
    cut(model, batch, None)
    resumed.restore(kept)
    for _ in range(2):
        resumed(model, batch, None)
    for name, tensor in whole.tensors().items():
        assert tensor.equal(resumed.tensors()[name])


def test_it_says_what_it_needs(tiny_model, tiny_batch, table):
    with pytest.raises(TrainingError, match=r"a user for each document.*--user"):
        step_of()(tiny_model(), tiny_batch(users=False), None)
    with pytest.raises(
        TrainingError, match=r"does not expose the input of its head.*another defence"
    ):
        step_of()(table, tiny_batch(), None)


def test_its_settings_and_a_plain_steps_name_tell_them_apart(tmp_path, tiny_model, tiny_data):
    train(tiny_model(), tiny_data(), config=CONFIG, directory=tmp_path, step=step_of())
    with pytest.raises(
        TrainingError, match=r"has another training: .*step\.weight was 0\.5 and is 0\.7"
    ):
        train(
            tiny_model(),
            tiny_data(),
            config=CONFIG,
            directory=tmp_path,
            step=step_of(weight=0.7),
            resume=True,
        )
    with pytest.raises(TrainingError, match="has another training: step"):
        train(
            tiny_model(),
            tiny_data(),
            config=CONFIG,
            directory=tmp_path,
            step=plain_step(),
            resume=True,
        )
