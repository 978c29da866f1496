"""The adversarial and the triplet step compared with gradients of their written-out terms."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from vestige.defences.regularizers import (
    AdversarialStep,
    Discriminator,
    TripletStep,
    kl_from_uniform,
    triplet_loss,
)
from vestige.errors import TrainingError
from vestige.training.batches import IGNORED
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.sequences import SequenceBatches, Sequences
from vestige.training.steps import plain_step

WIDTH, USERS = 8, 3
CONFIG = TrainingConfig(
    seed=0, epochs=2, batch_size=4, sequence_length=7, batching="users", learning_rate=0.01,
    max_grad_norm=1.0, precision="float32",
)  # fmt: skip
LONG = replace(CONFIG, epochs=30, batch_size=12, batching="documents")

each_architecture = pytest.mark.parametrize("architecture", ["lstm", "tied lstm", "transformer"])


def adversarial(**settings):
    return AdversarialStep(**{"weight": 0.5, "width": WIDTH, "users": USERS, "seed": 1, **settings})


@pytest.fixture
def auxiliary(tiny_data):
    """Makes auxiliary batches."""

    def make(draw="documents", documents=12, *, users=True):
        sequences = Sequences.of(tiny_data(documents, users=users), length=7)
        return SequenceBatches(sequences, 4, draw, 1, torch.device("cpu"))

    return make


def naive_loss_and_states(model, batch):
    """Mean cross-entropy and last hidden states, row by row without padding."""
    losses, states = [], []
    for row, targets in zip(batch.inputs, batch.targets, strict=True):
        n = int((targets != IGNORED).sum())
        hidden, _ = model.body(row[None, :n])
        losses.append(cross_entropy(model.predict(hidden[0]), targets[:n], reduction="sum"))
        states.append(hidden[0, -1])
    return torch.stack(losses).sum() / batch.tokens, torch.stack(states)


def check_step(model, step, batch, loss, term):
    """The step returns the loss, and has the gradients of loss + term."""
    expected = torch.autograd.grad(loss + term, list(model.parameters()))
    torch.manual_seed(4)
    returned, state = step(model, batch, None)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(returned, loss.detach())
    assert not returned.requires_grad
    assert state is None or not state.hidden.requires_grad


def improved(discriminator, states, users):
    """A discriminator after one step of Adam on its cross-entropy, and its logits before."""
    better = copy.deepcopy(discriminator)
    logits = better(states.detach())
    optimizer = torch.optim.Adam(better.parameters(), lr=1e-3)
    cross_entropy(logits, users).backward()
    optimizer.step()
    return better, logits.detach()


@each_architecture
def test_the_adversarial_gradient_is_that_of_both_terms(tiny_model, tiny_batch, architecture):
    model, batch, step = tiny_model(architecture), tiny_batch(), adversarial()
    loss, states = naive_loss_and_states(model, batch)
    better, _ = improved(step.discriminator, states, batch.users)
    probabilities = torch.softmax(better(states), 1)
    divergence = (1 / USERS * (1 / USERS / probabilities).log()).sum(1).mean()
    check_step(model, step, batch, loss, 0.5 * divergence)


@pytest.mark.parametrize("weight", [0.0, 0.5, 50.0])
def test_the_discriminator_learns_only_to_classify_authors(tiny_model, tiny_batch, weight):
    model, batch, step = tiny_model(), tiny_batch(), adversarial(weight=weight)
    _, states = naive_loss_and_states(model, batch)
    better, logits = improved(step.discriminator, states, batch.users)
    step(model, batch, None)
    for result, expected in zip(step.discriminator.parameters(), better.parameters(), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(result.grad, expected.grad, rtol=1e-4, atol=1e-6)
    measured = step.measured()
    accuracy = (logits.argmax(1) == batch.users).double().mean().item()
    assert measured["discriminator_accuracy"] == pytest.approx(accuracy)
    divergence = kl_from_uniform(better(states.detach())).item()
    assert measured["kl_from_uniform"] == pytest.approx(divergence, rel=1e-4)
    assert step.measured() == {}


def test_the_discriminator_has_two_layers_and_weights_of_its_seed():
    before = torch.get_rng_state()
    one, same, other = (Discriminator(WIDTH, USERS, seed=seed) for seed in (1, 1, 2))
    assert torch.get_rng_state().equal(before)
    assert one.first.weight.equal(same.first.weight)
    assert not one.first.weight.equal(other.first.weight)
    assert one.first.weight.shape == (1000, WIDTH)
    assert one.second.weight.shape == (USERS, 1000)
    states = torch.randn(5, WIDTH, requires_grad=True)
    hidden = (states @ one.first.weight.t() + one.first.bias).clamp(min=0)
    torch.testing.assert_close(one(states), hidden @ one.second.weight.t() + one.second.bias)
    logits = one.judge(states)
    torch.testing.assert_close(logits, one(states))
    logits.sum().backward()
    assert states.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in one.parameters())


@given(st.lists(st.lists(st.floats(-30, 30), min_size=4, max_size=4), min_size=1, max_size=5))
def test_the_divergence_equals_its_definition(rows):
    logits = torch.tensor(rows, dtype=torch.float64)
    expected = (0.25 * (0.25 / torch.softmax(logits, 1)).log()).sum(1).mean().item()
    assert kl_from_uniform(logits).item() == pytest.approx(expected, abs=1e-9)
    assert kl_from_uniform(logits).item() >= -1e-12


@pytest.mark.slow
def test_a_higher_weight_makes_authors_harder_to_classify(tiny_model, tiny_data, tiny_batch):
    divergence = {}
    for weight in (0.0, 5.0):
        model, step = tiny_model(), adversarial(weight=weight, learning_rate=0.01)
        train(model, tiny_data(36), config=LONG, step=step)
        step.measured()
        step(model, tiny_batch(36), None)
        divergence[weight] = step.measured()["kl_from_uniform"]
    assert divergence[5.0] < 0.1 * divergence[0.0]


def test_a_restored_discriminator_continues_with_the_same_bits(tiny_model, tiny_batch):
    model, batch = tiny_model(), tiny_batch()
    uninterrupted, interrupted, resumed = adversarial(), adversarial(), adversarial()
    for _ in range(3):
        uninterrupted(model, batch, None)
    interrupted(model, batch, None)
    saved = {name: tensor.clone() for name, tensor in interrupted.tensors().items()}
    interrupted(model, batch, None)
    resumed.restore(saved)
    for _ in range(2):
        resumed(model, batch, None)
    for name, tensor in uninterrupted.tensors().items():
        assert tensor.equal(resumed.tensors()[name])


def naive_triplet_term(states, others, users, other_users):
    total = torch.zeros(())
    for x, a, user, other in zip(states, others, users, other_users, strict=True):
        distance = (x - a + 1e-6).square().sum().sqrt()  # torch adds 1e-6 as well
        total = total + (-distance if user == other else distance)
    return total / len(states)


@each_architecture
def test_the_gradient_of_pairs_within_a_batch_is_that_of_both_terms(
    tiny_model, tiny_batch, architecture
):
    model, batch, step = tiny_model(architecture), tiny_batch(7), TripletStep(weight=0.3)
    torch.manual_seed(4)
    shift = int(torch.randint(1, 7, ()))
    partners = [(row - shift) % 7 for row in range(7)]
    assert all(row != partner for row, partner in enumerate(partners))
    loss, states = naive_loss_and_states(model, batch)
    term = naive_triplet_term(states, states[partners], batch.users, batch.users[partners])
    check_step(model, step, batch, loss, 0.3 * term)
    measured = step.measured()
    assert measured["triplet_loss"] == pytest.approx(term.item(), rel=1e-4)
    assert measured["hidden_spread"] == pytest.approx(states.std().item(), rel=1e-4)


@pytest.mark.parametrize(("draw", "rows"), [("documents", 7), ("users", 4)])
@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_the_gradient_of_pairs_with_an_auxiliary_batch_is_that_of_both_terms(
    tiny_model, tiny_batch, auxiliary, architecture, draw, rows
):
    """A user has four documents: the other rows have no pair."""
    model, batch = tiny_model(architecture), tiny_batch(7)
    torch.manual_seed(4)
    sampled = auxiliary(draw).auxiliary(7)
    assert len(sampled.inputs) == rows
    loss, states = naive_loss_and_states(model, batch)
    others = naive_loss_and_states(model, sampled)[1]
    term = naive_triplet_term(states[:rows], others, batch.users[:rows], sampled.users)
    step = TripletStep(weight=0.3, auxiliary=auxiliary(draw))
    check_step(model, step, batch, loss, 0.3 * term)


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.booleans()), min_size=1))
def test_the_triplet_term_equals_its_definition(pairs):
    first, second, same = (torch.tensor(part) for part in zip(*pairs, strict=True))
    term = triplet_loss(first[:, None], second[:, None], same)
    signed = [-abs(x - a) if equal else abs(x - a) for x, a, equal in pairs]
    assert term.item() == pytest.approx(sum(signed) / len(signed), abs=1e-5)


@pytest.mark.slow
def test_the_triplet_step_moves_users_together_and_their_documents_apart(
    tiny_model, tiny_data, tiny_batch
):
    ratios = {}
    for weight in (0.0, 0.3):
        model, batch = tiny_model(), tiny_batch(36)
        train(model, tiny_data(36), config=LONG, step=TripletStep(weight=weight))
        states = naive_loss_and_states(model.eval(), batch)[1]
        distances, same = torch.cdist(states, states), batch.users[:, None] == batch.users
        within = distances[same & ~torch.eye(36, dtype=torch.bool)]
        ratios[weight] = distances[~same].mean().item() / within.mean().item()
    assert ratios[0.3] < ratios[0.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "batching"),
    [
        ("adversarial", "users"),
        ("adversarial", "documents"),
        ("in-batch", "users"),
        ("auxiliary", "users"),
    ],
)
@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_a_weight_of_zero_gives_the_same_bits_as_no_defence(
    tiny_model, tiny_data, auxiliary, architecture, kind, batching
):
    config = replace(CONFIG, batching=batching)
    dropout = {"dropout": 0.2} if kind == "adversarial" else {}
    plain, defended = (tiny_model(architecture, **dropout) for _ in range(2))
    if kind == "adversarial":
        step = adversarial(weight=0.0, max_grad_norm=1.0)
    else:
        others = auxiliary() if kind == "auxiliary" else None
        step = TripletStep(weight=0.0, auxiliary=others, max_grad_norm=1.0)
    train(plain, tiny_data(), config=config)
    train(defended, tiny_data(), config=config, step=step)
    for one, other in zip(plain.parameters(), defended.parameters(), strict=True):
        assert one.equal(other)


def test_a_batch_of_one_row_has_no_pairs(tiny_model, tiny_batch):
    plain, paired, batch = tiny_model(), tiny_model(), tiny_batch(1)
    naive_loss_and_states(plain, batch)[0].backward()
    TripletStep(weight=5.0)(paired, batch, None)
    for one, other in zip(plain.parameters(), paired.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


STEPS = {"adversarial": adversarial, "triplet": lambda: TripletStep(weight=1.0)}


@pytest.mark.parametrize("name", STEPS)
def test_a_batch_without_tokens_changes_nothing(tiny_model, tiny_batch, name):
    model, batch, step = tiny_model(), tiny_batch(1), STEPS[name]()
    before = copy.deepcopy(step.discriminator.state_dict()) if name == "adversarial" else {}
    empty = type(batch)(batch.inputs[:0], batch.targets[:0], 0, batch.lengths[:0], batch.users[:0])
    assert step(model, empty, None) == (0, None)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(step.discriminator.state_dict()[key].equal(old) for key, old in before.items())


NO_USERS = r"a user for each document.*--user"


@pytest.mark.parametrize("name", STEPS)
def test_missing_users_and_hidden_states_are_refused(tiny_model, tiny_batch, table, name):
    with pytest.raises(TrainingError, match=NO_USERS):
        STEPS[name]()(tiny_model(), tiny_batch(users=False), None)
    hidden = r"does not expose the input of its head.*another defence"
    with pytest.raises(TrainingError, match=hidden):
        STEPS[name]()(table, tiny_batch(), None)


def test_auxiliary_batches_without_users_are_refused(tiny_model, tiny_batch, auxiliary):
    step = TripletStep(weight=1.0, auxiliary=auxiliary(users=False))
    with pytest.raises(TrainingError, match=NO_USERS):
        step(tiny_model(), tiny_batch(), None)


def test_a_training_is_not_resumed_with_another_step(tmp_path, tiny_model, tiny_data):
    def run(step, **options):
        train(tiny_model(), tiny_data(), config=CONFIG, directory=tmp_path, step=step, **options)

    run(adversarial())
    changed = r"has another training: .*step\.weight was 0\.5 and is 0\.7"
    with pytest.raises(TrainingError, match=changed):
        run(adversarial(weight=0.7), resume=True)
    with pytest.raises(TrainingError, match="has another training: step"):
        run(plain_step(), resume=True)
