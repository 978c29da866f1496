"""The adversarial and the triplet step: both gradients written out, and what each may touch."""

import copy
import math
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
    seed=0,
    epochs=2,
    batch_size=4,
    sequence_length=7,
    batching="users",
    learning_rate=0.01,
    max_grad_norm=1.0,
    precision="float32",
)


def adversarial(**settings):
    return AdversarialStep(**{"weight": 0.5, "width": WIDTH, "users": USERS, "seed": 1, **settings})


@pytest.fixture
def auxiliary(tiny_data):
    """Other sequences, to be paired with."""

    def make(draw="documents", documents=12, *, users=True):
        sequences = Sequences.of(tiny_data(documents, users=users), length=7)
        return SequenceBatches(sequences, 4, draw, 1, torch.device("cpu"))

    return make


def by_hand(model, batch):
    """Mean cross-entropy and each row's last hidden state, a row at a time, without padding."""
    losses, last = [], []
    for row, targets in zip(batch.inputs, batch.targets, strict=True):
        n = int((targets != IGNORED).sum())
        hidden, _ = model.body(row[None, :n])
        losses.append(cross_entropy(model.predict(hidden[0]), targets[:n], reduction="sum"))
        last.append(hidden[0, -1])
    return torch.stack(losses).sum() / batch.tokens, torch.stack(last)


def agrees(model, step, batch, loss, expected):
    """Takes the step, and compares loss and gradients."""
    returned, state = step(model, batch, None)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(returned, loss.detach())
    assert not returned.requires_grad
    assert state is None or not state.hidden.requires_grad


def improved(discriminator, states, users):
    """What one step of Adam on the authors' cross-entropy makes of a discriminator; its logits."""
    better = copy.deepcopy(discriminator)
    logits = better(states.detach())
    optimizer = torch.optim.Adam(better.parameters(), lr=1e-3)
    cross_entropy(logits, users).backward()
    optimizer.step()
    return better, logits.detach()


@pytest.mark.parametrize("architecture", ["lstm", "tied lstm", "transformer"])
def test_the_adversarial_gradient_is_that_of_both_terms(tiny_model, tiny_batch, architecture):
    model, batch, step = tiny_model(architecture), tiny_batch(), adversarial()
    loss, last = by_hand(model, batch)
    better, _ = improved(step.discriminator, last, batch.users)
    chances = torch.softmax(better(last), 1)
    told = (1 / USERS * (1 / USERS / chances).log()).sum(1).mean()
    expected = torch.autograd.grad(loss + 0.5 * told, list(model.parameters()))
    agrees(model, step, batch, loss, expected)


@pytest.mark.parametrize("weight", [0.0, 0.5, 50.0])
def test_the_discriminator_learns_authors_and_nothing_of_the_models_term(
    tiny_model, tiny_batch, weight
):
    model, batch, step = tiny_model(), tiny_batch(), adversarial(weight=weight)
    _, last = by_hand(model, batch)
    better, logits = improved(step.discriminator, last, batch.users)
    step(model, batch, None)
    for ours, theirs in zip(step.discriminator.parameters(), better.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    measured = step.measured()
    right = (logits.argmax(1) == batch.users).double().mean().item()
    assert measured["discriminator_accuracy"] == pytest.approx(right)
    told = kl_from_uniform(better(last.detach())).item()
    assert measured["kl_from_uniform"] == pytest.approx(told, rel=1e-4)
    assert step.measured() == {}


def test_a_discriminator_is_two_layers_that_its_seed_decides():
    before = torch.get_rng_state()
    one, same, other = (Discriminator(WIDTH, USERS, seed=seed) for seed in (1, 1, 2))
    assert torch.get_rng_state().equal(before)
    assert one.first.weight.equal(same.first.weight)
    assert not one.first.weight.equal(other.first.weight)
    assert one.first.weight.shape == (1000, WIDTH)
    assert one.second.weight.shape == (USERS, 1000)
    states = torch.randn(5, WIDTH, requires_grad=True)
    inner = (states @ one.first.weight.t() + one.first.bias).clamp(min=0)
    torch.testing.assert_close(one(states), inner @ one.second.weight.t() + one.second.bias)
    judged = one.judge(states)
    torch.testing.assert_close(judged, one(states))
    judged.sum().backward()  # teaches the states alone
    assert states.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in one.parameters())


@given(st.lists(st.lists(st.floats(-30, 30), min_size=4, max_size=4), min_size=1, max_size=5))
def test_the_divergence_is_its_definition_and_never_negative(rows):
    logits = torch.tensor(rows, dtype=torch.float64)
    expected = (0.25 * (0.25 / torch.softmax(logits, 1)).log()).sum(1).mean().item()
    assert kl_from_uniform(logits).item() == pytest.approx(expected, abs=1e-9)
    assert kl_from_uniform(logits).item() >= -1e-12


def test_where_nothing_can_be_told_the_divergence_is_zero():
    assert kl_from_uniform(torch.full((5, 7), 3.0)).item() == pytest.approx(0, abs=1e-6)
    sure = torch.tensor([[20.0, 0.0]])
    assert kl_from_uniform(sure).item() == pytest.approx(10 - math.log(2), abs=1e-6)


@pytest.mark.slow
def test_a_weight_makes_authors_harder_to_tell(tiny_model, tiny_data, tiny_batch):
    config = replace(CONFIG, epochs=30, batch_size=12, batching="documents")
    told = {}
    for weight in (0.0, 5.0):
        model, step = tiny_model(), adversarial(weight=weight, learning_rate=0.01)
        train(model, tiny_data(36), config=config, step=step)
        step.measured()
        step(model, tiny_batch(36), None)
        told[weight] = step.measured()["kl_from_uniform"]
    assert told[5.0] < 0.1 * told[0.0]


def test_what_a_discriminator_learnt_can_be_put_back(tiny_model, tiny_batch):
    model, batch = tiny_model(), tiny_batch()
    whole, cut, resumed = adversarial(), adversarial(), adversarial()
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
    loss, states = by_hand(model, batch)
    term = naive_term(states, states[partners], batch.users, batch.users[partners])
    expected = torch.autograd.grad(loss + 0.3 * term, list(model.parameters()))
    torch.manual_seed(4)
    agrees(model, step, batch, loss, expected)
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
    loss, states = by_hand(model, batch)
    others = by_hand(model, drawn)[1]
    term = naive_term(states[:rows], others, batch.users[:rows], drawn.users)
    expected = torch.autograd.grad(loss + 0.3 * term, list(model.parameters()))
    torch.manual_seed(4)
    agrees(model, TripletStep(weight=0.3, auxiliary=auxiliary(draw)), batch, loss, expected)


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.booleans()), min_size=1))
def test_the_triplet_term_is_its_definition(pairs):
    first, second, same = (torch.tensor(part) for part in zip(*pairs, strict=True))
    term = triplet_loss(first[:, None], second[:, None], same)
    signed = [-abs(x - a) if one else abs(x - a) for x, a, one in pairs]
    assert term.item() == pytest.approx(sum(signed) / len(signed), abs=1e-5)


@pytest.mark.slow
def test_it_pulls_users_together_and_pushes_one_users_own_apart(tiny_model, tiny_data, tiny_batch):
    def distances(model):
        batch = tiny_batch(36)
        states = by_hand(model.eval(), batch)[1]
        apart, same = torch.cdist(states, states), batch.users[:, None] == batch.users
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
def test_with_weight_zero_it_is_plain_training_bit_for_bit(
    tiny_model, tiny_data, auxiliary, architecture, kind, batching
):
    config = replace(CONFIG, batching=batching)
    dropout = {"dropout": 0.2} if kind == "adversarial" else {}
    plain, off = (tiny_model(architecture, **dropout) for _ in range(2))
    if kind == "adversarial":
        step = adversarial(weight=0.0, max_grad_norm=1.0)
    else:
        others = auxiliary() if kind == "auxiliary" else None
        step = TripletStep(weight=0.0, auxiliary=others, max_grad_norm=1.0)
    train(plain, tiny_data(), config=config)
    train(off, tiny_data(), config=config, step=step)
    for one, other in zip(plain.parameters(), off.parameters(), strict=True):
        assert one.equal(other)


def test_a_row_alone_has_nobody_to_be_paired_with(tiny_model, tiny_batch):
    plain, paired, batch = tiny_model(), tiny_model(), tiny_batch(1)
    by_hand(plain, batch)[0].backward()
    TripletStep(weight=5.0)(paired, batch, None)
    for one, other in zip(plain.parameters(), paired.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


STEPS = {"adversarial": adversarial, "triplet": lambda: TripletStep(weight=1.0)}


@pytest.mark.parametrize("name", STEPS)
def test_a_batch_without_tokens_moves_nobody(tiny_model, tiny_batch, name):
    model, batch, step = tiny_model(), tiny_batch(1), STEPS[name]()
    before = copy.deepcopy(step.discriminator.state_dict()) if name == "adversarial" else {}
    empty = type(batch)(batch.inputs[:0], batch.targets[:0], 0, batch.lengths[:0], batch.users[:0])
    assert step(model, empty, None) == (0, None)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(step.discriminator.state_dict()[key].equal(old) for key, old in before.items())


@pytest.mark.parametrize("name", STEPS)
def test_a_step_says_what_it_needs(tiny_model, tiny_batch, auxiliary, table, name):
    users = pytest.raises(TrainingError, match=r"a user for each document.*--user")
    with users:
        STEPS[name]()(tiny_model(), tiny_batch(users=False), None)
    hidden = r"does not expose the input of its head.*another defence"
    with pytest.raises(TrainingError, match=hidden):
        STEPS[name]()(table, tiny_batch(), None)
    if name == "triplet":
        nobodys = TripletStep(weight=1.0, auxiliary=auxiliary(users=False))
        with pytest.raises(TrainingError, match=r"a user for each document.*--user"):
            nobodys(tiny_model(), tiny_batch(), None)


def test_its_settings_and_a_plain_steps_name_tell_them_apart(tmp_path, tiny_model, tiny_data):
    def run(step, **options):
        train(tiny_model(), tiny_data(), config=CONFIG, directory=tmp_path, step=step, **options)

    run(adversarial())
    changed = r"has another training: .*step\.weight was 0\.5 and is 0\.7"
    with pytest.raises(TrainingError, match=changed):
        run(adversarial(weight=0.7), resume=True)
    with pytest.raises(TrainingError, match="has another training: step"):
        run(plain_step(), resume=True)
