"""A round of DP-FedAvg against its definition written naively, what it proves and spends."""

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from vestige.defences.methods.private import DPFedAvg
from vestige.errors import TrainingError
from vestige.privacy.accounting import Mechanism, noise_for
from vestige.privacy.dp_fedavg import DPFedAvgStep
from vestige.privacy.randomness import StepRandomness
from vestige.training.batches import IGNORED, Batch
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.secret import Secret
from vestige.training.sequences import Sequences

USERS, RATE = 3, 0.5
KINDS = ["lstm", "tied lstm", "transformer"]


def step_of(**settings) -> DPFedAvgStep:
    given = {
        "noise_multiplier": 0.0,
        "max_grad_norm": 1e9,
        "expected_units": USERS,
        "local_batch_size": 100,
        "local_learning_rate": RATE,
    }
    return DPFedAvgStep(**{**given, **settings})


def mean_loss(model, batch: Batch, rows) -> torch.Tensor:
    """Over the tokens of some rows, each read by itself, without padding."""
    losses = []
    for row in rows:
        n = int((batch.targets[row] != IGNORED).sum())
        logits, _ = model(batch.inputs[row : row + 1, :n], None)
        losses.append(cross_entropy(logits[0], batch.targets[row, :n], reduction="none"))
    return torch.cat(losses).mean()


def naive_update(model, batch, user, *, epochs, size) -> list[torch.Tensor]:
    """What a user changes in a copy of the model."""
    local = deepcopy(model)
    rows = (batch.users == user).nonzero().flatten()
    for _ in range(epochs):
        for chosen in rows[torch.randperm(len(rows))].split(size):
            loss = mean_loss(local, batch, chosen)
            gradients = torch.autograd.grad(loss, list(local.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(local.parameters(), gradients, strict=True):
                    parameter -= RATE * gradient
    return [
        p.detach() - q.detach() for p, q in zip(local.parameters(), model.parameters(), strict=True)
    ]


def norm_of(tensors) -> float:
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in tensors))


def moved(model) -> list[torch.Tensor]:
    """By what a server of rate 1 moves."""
    return [-parameter.grad for parameter in model.parameters()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("epochs", "size"), [(1, 100), (1, 2), (3, 2)])
def test_a_round_is_that_of_a_loop_over_copies(tiny_model, tiny_batch, kind, epochs, size):
    model, batch = tiny_model(kind).double(), tiny_batch()
    secret, updates = Secret.of_seed(5), []
    chance = StepRandomness(secret.key("masks", 0), batch.inputs.device)
    for user in range(USERS):
        with chance.for_unit(int((batch.users == user).nonzero()[0])):
            updates.append(naive_update(model, batch, user, epochs=epochs, size=size))
    norms = [norm_of(update) for update in updates]
    bound = sorted(norms)[1]  # one is cut, one is not
    expected = [
        sum(min(1, bound / norm) * part for norm, part in zip(norms, parts, strict=True)) / 7
        for parts in zip(*updates, strict=True)
    ]
    before = [p.detach().clone() for p in model.parameters()]
    step = step_of(
        max_grad_norm=bound * (1 + 1e-9),
        expected_units=7,
        local_epochs=epochs,
        local_batch_size=size,
    )
    step.draw_from(secret, 0)
    loss, state = step(model, batch, None)
    for mine, theirs in zip(moved(model), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-10)
    assert all(p.equal(q) for p, q in zip(model.parameters(), before, strict=True))
    assert state is None
    assert math.isfinite(loss)
    assert step.measured() == pytest.approx({"median_norm": bound, "clipped": 1 / 3})
    assert step.measured() == {}


@pytest.mark.parametrize("kind", KINDS)
def test_one_local_step_of_everyone_is_a_plain_step_on_all_text(tiny_model, tiny_batch, kind):
    """Without noise and clipping, where every user has as many tokens."""
    model, batch = tiny_model(kind).double(), tiny_batch()
    rows = batch.lengths.eq(batch.lengths.mode().values).nonzero().flatten()
    alike = torch.cat([rows[batch.users[rows] == user][:1] for user in range(USERS)])
    batch = batch.select(alike)
    assert batch.users.unique().tolist() == [0, 1, 2]
    plain = mean_loss(model, batch, range(USERS))
    gradients = torch.autograd.grad(plain, list(model.parameters()))
    loss, _ = step_of()(model, batch, None)
    assert loss.item() == pytest.approx(plain.item(), rel=1e-6)
    for mine, gradient in zip(moved(model), gradients, strict=True):
        torch.testing.assert_close(mine, -RATE * gradient, rtol=1e-6, atol=1e-12)


def test_a_training_of_everyone_in_one_local_step_is_plain_training(tiny_model, tiny_data):
    """The same through the loop, against gradient descent written down."""
    data = tiny_data(USERS)
    sequences = Sequences.of(data, length=7)
    batch = sequences.batch(np.arange(USERS), 1, torch.device("cpu"))
    config = TrainingConfig(
        seed=0,
        epochs=4,
        batch_size=USERS,  # of three: every lot is drawn
        sequence_length=7,
        optimizer="sgd",
        learning_rate=1.0,
        batching="poisson-users",
        precision="float32",
    )
    federated, plain = tiny_model().double(), tiny_model().double()
    train(federated, data, config=config, step=step_of())
    for _ in range(4):
        loss = sum(mean_loss(plain, batch, [row]) for row in range(USERS)) / USERS
        gradients = torch.autograd.grad(loss, list(plain.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(plain.parameters(), gradients, strict=True):
                parameter -= RATE * gradient
    for mine, theirs in zip(federated.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1e-6, 0.01, 0.3, 5.0])
def test_no_user_moves_the_sum_by_more_than_the_bound(tiny_model, tiny_batch, bound):
    """Nor does taking one away change what the others add."""
    batch = tiny_batch()
    step = step_of(max_grad_norm=bound, expected_units=1, local_epochs=2)

    def summed(rows) -> torch.Tensor:
        model = tiny_model()
        torch.manual_seed(0)
        step(model, batch.select(rows), None)
        return torch.cat([tensor.flatten() for tensor in moved(model)]).double()

    everyone = summed(torch.arange(len(batch.inputs)))
    for user in range(USERS):
        alone = summed((batch.users == user).nonzero().flatten())
        without = summed((batch.users != user).nonzero().flatten())
        assert alone.norm().item() <= bound * (1 + 1e-5)
        assert (everyone - without).norm().item() <= bound * (1 + 1e-5)
        if bound > 0.01:  # else float32 has too few digits
            torch.testing.assert_close(everyone - without, alone, rtol=1e-4, atol=1e-6)


def test_a_user_with_a_hundred_times_the_text_counts_no_more(tiny_model, tiny_batch):
    batch = tiny_batch()
    own = (batch.users == 0).nonzero().flatten()
    step = step_of(max_grad_norm=0.2, expected_units=1, local_batch_size=4)
    model = tiny_model()
    step(model, batch.select(own.repeat(100)), None)
    assert norm_of(moved(model)) == pytest.approx(0.2, rel=1e-5)


@pytest.mark.slow
def test_the_noise_has_the_deviation_that_was_asked_for(tiny_model, tiny_batch):
    model, batch = tiny_model(), tiny_batch()
    step_of(max_grad_norm=0.3)(model, batch, None)
    without = torch.cat([tensor.flatten() for tensor in moved(model)])
    torch.manual_seed(0)
    drawn = []
    for _ in range(60):
        step_of(noise_multiplier=1.5, max_grad_norm=0.3)(model, batch, None)
        drawn.append(torch.cat([tensor.flatten() for tensor in moved(model)]) - without)
    noise = torch.stack(drawn)
    expected = 1.5 * 0.3 / USERS
    count = noise.numel()
    assert noise.std().item() == pytest.approx(expected, rel=4 / math.sqrt(2 * count))
    assert noise.mean().item() == pytest.approx(0, abs=4 * expected / math.sqrt(count))


def test_a_round_that_draws_nobody_still_makes_noise(tiny_model, tiny_data):
    model, sequences = tiny_model(), Sequences.of(tiny_data(), length=7)
    nobody = sequences.batch(np.empty(0, np.int64), 1, torch.device("cpu"))
    step = step_of(noise_multiplier=1.0, max_grad_norm=1.0)
    loss, _ = step(model, nobody, None)
    assert loss == 0
    assert all(p.grad.std() > 0 for p in model.parameters())
    assert step.measured() == {}


def test_the_denominator_is_fixed_whoever_is_drawn(tiny_model, tiny_batch):
    batch, model = tiny_batch(), tiny_model()
    own = batch.select((batch.users == 1).nonzero().flatten())
    step_of(expected_units=1)(model, own, None)
    alone = moved(model)
    step_of(expected_units=50)(model, own, None)
    for mine, theirs in zip(moved(model), alone, strict=True):
        torch.testing.assert_close(50 * mine, theirs)


def test_frozen_parameters_stay_and_count_for_nothing(tiny_model, tiny_batch):
    model = tiny_model()
    model.embedding.weight.requires_grad_(False)
    before = model.embedding.weight.clone()
    step = step_of()
    step(model, tiny_batch(), None)
    assert model.embedding.weight.equal(before)
    assert model.embedding.weight.grad is None
    learning = [p for p in model.parameters() if p.requires_grad]
    assert all(p.grad is not None for p in learning)


def test_dropout_is_drawn_from_the_secret_and_not_from_the_seed(tiny_model, tiny_batch):
    def once(secret) -> torch.Tensor:
        model, step = tiny_model(dropout=0.3), step_of()
        torch.manual_seed(1)
        step.draw_from(secret, 0)
        step(model, tiny_batch(), None)
        return torch.cat([tensor.flatten() for tensor in moved(model)])

    secret = Secret.fresh()
    assert once(secret).equal(once(secret))
    assert not once(secret).equal(once(Secret.fresh()))


PAPER = {"sample_rate": 0.04, "steps": 300, "delta": 1e-4}
"""Song and Shmatikov (2019), section 6: 5,000 users, 200 of them a round."""


def epsilon_spent(*, noise_multiplier, accountant="pld"):
    mechanism = Mechanism(noise_multiplier=noise_multiplier, sample_rate=0.04, steps=300)
    return mechanism.epsilon(1e-4, accountant)


@pytest.mark.slow
def test_the_papers_epsilon_takes_a_noise_multiplier_near_one():
    """4.129 at delta 1e-4; McMahan et al. train with z = 1 as well."""
    noise = noise_for(epsilon=4.129, accountant="rdp", **PAPER)
    assert noise == pytest.approx(1.031, abs=0.001)
    spent = [epsilon_spent(noise_multiplier=noise) for noise in (0.96, 0.97)]
    assert spent[1] < 4.129 < spent[0]


def test_renyis_epsilon_is_that_of_another_library():
    opacus = pytest.importorskip("opacus.accountants").RDPAccountant()
    opacus.history = [(1.0, 0.04, 300)]
    mine = epsilon_spent(noise_multiplier=1.0, accountant="rdp")
    assert mine == pytest.approx(opacus.get_epsilon(1e-4), rel=1e-9)


def test_the_description_becomes_the_step(tiny_model, tiny_data):
    config = TrainingConfig(seed=0, batch_size=2)
    defence = DPFedAvg(
        noise_multiplier=0.7,
        max_grad_norm=3.0,
        local_epochs=2,
        local_batch_size=5,
        local_learning_rate=0.25,
    )
    suited = defence.suited(config)
    assert suited.batching == "poisson-users"
    step = defence.step(tiny_model(), tiny_data(), suited)
    assert isinstance(step, DPFedAvgStep)
    assert step.settings == {
        "noise_multiplier": 0.7,
        "max_grad_norm": 3.0,
        "expected_units": 2,
        "local_epochs": 2,
        "local_batch_size": 5,
        "local_learning_rate": 0.25,
    }
    for batching in ("poisson", "users", "documents"):
        with pytest.raises(ValueError, match=f"poisson-users with dp-fedavg.*{batching}"):
            defence.suited(replace(config, batching=batching))
    with pytest.raises(ValueError, match=r"dp-fedavg must come with one of .*noise_multiplier"):
        DPFedAvg()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier must be at least 0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier must be at least 0"),
        ({"noise_multiplier": math.inf}, "noise_multiplier must be finite"),
        ({"max_grad_norm": 0.0}, "max_grad_norm must be positive"),
        ({"max_grad_norm": -1.0}, "max_grad_norm must be positive"),
        ({"max_grad_norm": math.nan}, "max_grad_norm must be positive"),
        ({"expected_units": 0}, "expected_units must be at least 1"),
        ({"local_epochs": 0}, "local_epochs must be at least 1"),
        ({"local_batch_size": 0}, "local_batch_size must be at least 1"),
        ({"local_learning_rate": 0.0}, "local_learning_rate must be positive"),
        ({"local_learning_rate": math.inf}, "local_learning_rate must be finite"),
    ],
)
def test_numbers_of_no_round_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        step_of(**change)


def test_text_of_nobody_is_refused(tiny_model, tiny_batch, tiny_data):
    with pytest.raises(ValueError, match="a user for each row"):
        step_of()(tiny_model(), tiny_batch(users=False), None)
    config = TrainingConfig(seed=0, batch_size=2, batching="poisson-users")
    with pytest.raises(TrainingError, match="a user for each document"):
        train(tiny_model(), tiny_data(users=False), config=config, step=step_of())
    with pytest.raises(TrainingError, match="exceeds the 3 users"):
        train(tiny_model(), tiny_data(), config=replace(config, batch_size=4), step=step_of())


def test_a_state_that_is_carried_on_is_refused(tiny_model, tiny_batch):
    with pytest.raises(ValueError, match="state must be None"):
        step_of()(tiny_model(), tiny_batch(), object())


def test_an_update_that_is_not_finite_ends_the_training(tiny_model, tiny_batch, tiny_data):
    model = tiny_model()
    with torch.no_grad():
        model.head.weight[0, 0] = math.inf
    with pytest.raises(FloatingPointError, match="norms must be finite"):
        step_of()(model, tiny_batch(), None)
    config = TrainingConfig(seed=0, batch_size=2, batching="poisson-users")
    with pytest.raises(TrainingError, match="is not finite"):
        train(model, tiny_data(), config=config, step=step_of())
