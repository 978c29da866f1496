"""The triplet step against its pairs written out one by one."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from vestige.defences.regularizers import TripletStep, triplet_loss
from vestige.errors import TrainingError
from vestige.training.batches import IGNORED
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.sequences import SequenceBatches, Sequences

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


@pytest.fixture
def auxiliary(tiny_data):
    def make(draw="documents", documents=12):
        sequences = Sequences.of(tiny_data(documents), length=7)
        return SequenceBatches(sequences, 4, draw, 1, torch.device("cpu"))

    return make


def last_states(model, batch):
    """(b, h) a row at a time, without padding."""
    found = []
    for row, targets in zip(batch.inputs, batch.targets, strict=True):
        n = int((targets != IGNORED).sum())
        found.append(model.body(row[None, :n])[0][0, -1])
    return torch.stack(found)


def mean_loss(model, batch):
    logits, _ = model(batch.inputs, None)
    return cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED)


def naive_term(states, others, users, owners):
    total = torch.zeros(())
    for x, a, user, owner in zip(states, others, users.tolist(), owners.tolist(), strict=True):
        distance = (x - a + 1e-6).square().sum().sqrt()  # torch's own step away from zero
        total = total + (-distance if user == owner else distance)
    return total / len(states)


@pytest.mark.parametrize("architecture", ["lstm", "tied lstm", "transformer"])
def test_paired_within_the_batch_the_gradient_is_that_of_both_terms(
    tiny_model, tiny_batch, architecture
):
    model, batch, step = tiny_model(architecture), tiny_batch(7), TripletStep(weight=0.3)
    torch.manual_seed(4)
    shift = int(torch.randint(1, 7, ()))
    partners = [(row - shift) % 7 for row in range(7)]
    assert all(row != partner for row, partner in enumerate(partners))
    states = last_states(model, batch)
    term = naive_term(states, states[partners], batch.users, batch.users[partners])
    loss = mean_loss(model, batch)
    expected = torch.autograd.grad(loss + 0.3 * term, list(model.parameters()))

    torch.manual_seed(4)
    returned, _ = step(model, batch, None)

    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(returned, loss.detach())
    measured = step.measured()
    assert measured["triplet_loss"] == pytest.approx(term.item(), rel=1e-4)
    assert measured["hidden_spread"] == pytest.approx(states.std().item(), rel=1e-4)


@pytest.mark.parametrize("draw", ["documents", "users"])
@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_paired_with_an_auxiliary_batch_the_gradient_is_that_of_both_terms(
    tiny_model, tiny_batch, auxiliary, architecture, draw
):
    model, batch = tiny_model(architecture), tiny_batch(7)
    torch.manual_seed(4)
    drawn = auxiliary(draw).auxiliary(7)
    rows = len(drawn.inputs)
    assert rows == (4 if draw == "users" else 7)  # a user has four: the other rows go unpaired
    term = naive_term(
        last_states(model, batch)[:rows],
        last_states(model, drawn),
        batch.users[:rows],
        drawn.users,
    )
    loss = mean_loss(model, batch)
    expected = torch.autograd.grad(loss + 0.3 * term, list(model.parameters()))

    torch.manual_seed(4)
    returned, _ = TripletStep(weight=0.3, auxiliary=auxiliary(draw))(model, batch, None)

    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(returned, loss.detach())


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.booleans()), min_size=1))
def test_the_term_is_its_definition(pairs):
    first, second, same = (torch.tensor(part) for part in zip(*pairs, strict=True))
    term = triplet_loss(first[:, None], second[:, None], same)
    signed = [-abs(x - a) if one else abs(x - a) for x, a, one in pairs]
    assert term.item() == pytest.approx(sum(signed) / len(signed), abs=1e-5)


@pytest.mark.parametrize("paired", ["in-batch", "auxiliary"])
@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_with_weight_zero_it_is_plain_training_bit_for_bit(
    tiny_model, tiny_data, auxiliary, architecture, paired
):
    plain, off = tiny_model(architecture), tiny_model(architecture)
    others = auxiliary() if paired == "auxiliary" else None
    step = TripletStep(weight=0.0, auxiliary=others, max_grad_norm=1.0)
    train(plain, tiny_data(), config=CONFIG)
    train(off, tiny_data(), config=CONFIG, step=step)
    for one, other in zip(plain.parameters(), off.parameters(), strict=True):
        assert one.equal(other)


def test_it_pulls_users_together_and_pushes_one_users_own_apart(tiny_model, tiny_data, tiny_batch):
    def distances(model):
        model.eval()
        batch = tiny_batch(36)
        apart = torch.cdist(last_states(model, batch), last_states(model, batch))
        same = batch.users[:, None] == batch.users
        own = same & ~torch.eye(36, dtype=torch.bool)
        return apart[~same].mean().item(), apart[own].mean().item()

    config = replace(CONFIG, epochs=30, batch_size=12, batching="documents")
    ratios = {}
    for weight in (0.0, 0.3):
        model = tiny_model()
        train(model, tiny_data(36), config=config, step=TripletStep(weight=weight))
        others, own = distances(model)
        ratios[weight] = others / own
    assert ratios[0.3] < ratios[0.0]


def test_a_row_alone_has_nobody_to_be_paired_with(tiny_model, tiny_batch):
    plain, paired, batch = tiny_model(), tiny_model(), tiny_batch(1)
    mean_loss(plain, batch).backward()
    TripletStep(weight=5.0)(paired, batch, None)
    for one, other in zip(plain.parameters(), paired.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_batch_without_tokens_moves_nothing(tiny_model, tiny_batch):
    model, batch = tiny_model(), tiny_batch(1)
    empty = type(batch)(batch.inputs[:0], batch.targets[:0], 0, batch.lengths[:0], batch.users[:0])
    assert TripletStep(weight=1.0)(model, empty, None) == (0, None)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_it_says_what_it_needs(tiny_model, tiny_batch, table):
    with pytest.raises(TrainingError, match=r"a user for each document.*--user"):
        TripletStep(weight=1.0)(tiny_model(), tiny_batch(users=False), None)
    with pytest.raises(
        TrainingError, match=r"does not expose the input of its head.*another defence"
    ):
        TripletStep(weight=1.0)(table, tiny_batch(), None)


def test_an_auxiliary_batch_without_users_is_refused(tiny_model, tiny_batch, tiny_data):
    sequences = Sequences.of(tiny_data(users=False), length=7)
    nobodys = SequenceBatches(sequences, 4, "documents", 1, torch.device("cpu"))
    with pytest.raises(TrainingError, match=r"a user for each document.*--user"):
        TripletStep(weight=1.0, auxiliary=nobodys)(tiny_model(), tiny_batch(), None)
