"""A defended training that was interrupted ends in the same bits, and spends its budget once."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from vestige.defences.goldfish import GoldfishStep
from vestige.defences.regularizers import AdversarialStep, TripletStep
from vestige.errors import TrainingError
from vestige.privacy.dp_fedavg import DPFedAvgStep
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.training.config import TrainingConfig
from vestige.training.history import StopAtPerplexity
from vestige.training.loop import train
from vestige.training.secret import Secret
from vestige.training.steps import plain_step
from vestige.training.tasks import batches_of

DOCUMENTS, ROWS, LENGTH = 9, 4, 5


class Killed(BaseException):
    """What no `except Exception` catches."""


class Dying:
    """A step that dies before step `at`, and shows all else that the one inside shows."""

    def __init__(self, inside, at: int | None) -> None:
        self.inside, self.at, self.taken = inside, at, 0
        self.settings = inside.settings
        for name in ("tensors", "restore", "measured", "draw_from"):
            if hasattr(inside, name):
                setattr(self, name, getattr(inside, name))

    def __call__(self, model, batch, state):
        if self.taken == self.at:
            raise Killed
        self.taken += 1
        return self.inside(model, batch, state)


def step_of(defence: str, model, data, config) -> object:
    if defence == "adversarial":
        width = model.body(torch.tensor([[1]]))[0].shape[2]
        return AdversarialStep(weight=0.5, width=width, users=3, seed=1, max_grad_norm=1.0)
    if defence == "triplet":
        return TripletStep(weight=0.1, auxiliary=batches_of(data, model, config))
    if defence == "triplet in batch":
        return TripletStep(weight=0.1)
    if defence == "goldfish":
        return GoldfishStep(k=3)
    if defence == "dp-fedavg":
        return DPFedAvgStep(
            noise_multiplier=1.0,
            max_grad_norm=0.3,
            expected_units=config.batch_size,
            local_epochs=2,
            local_batch_size=2,
        )
    return DPSGDStep(
        noise_multiplier=1.0,
        max_grad_norm=0.3,
        expected_units=config.batch_size,
        sequence_length=LENGTH,
        unit="user" if config.batching == "poisson-users" else "sequence",
        physical_batch_size=2,
    )


@pytest.fixture
def run(tiny_model, tiny_data) -> Callable:
    """One small training under a defence, with dropout."""

    def run(directory: Path, defence: str, batching: str, architecture="lstm", die_at=None):
        model, data = tiny_model(architecture, dropout=0.2), tiny_data(DOCUMENTS)
        config = TrainingConfig(
            seed=3,
            epochs=2,
            batch_size=2 if batching == "poisson-users" else ROWS,
            sequence_length=LENGTH,
            learning_rate=0.01,
            batching=batching,
            checkpoint_every=3,
            evaluate_every=2,
            precision="float32",
        )
        step = Dying(step_of(defence, model, data, config), die_at)
        history = train(
            model,
            data,
            validation=tiny_data(6, seed=1),
            config=config,
            directory=directory,
            step=step,
            stop=StopAtPerplexity(1.1),
            resume=True,
            secret=Secret.of_seed(7),
        )
        return model, history, step

    return run


def left_behind(directory: Path) -> dict[str, bytes]:
    """What a training's checkpoint holds: weights, moments, chance, what its step learnt."""
    with safe_open(directory / "checkpoint.safetensors", "pt") as file:
        return {name: file.get_tensor(name).numpy().tobytes() for name in file.keys()}  # noqa: SIM118


KINDS = [
    ("adversarial", "users", "lstm"),
    ("triplet", "users", "lstm"),
    ("triplet in batch", "documents", "transformer"),
    ("goldfish", "users", "tied lstm"),
    ("dp-sgd", "poisson", "lstm"),
    ("dp-sgd", "poisson", "transformer"),
    ("dp-sgd", "poisson-users", "tied lstm"),
    ("dp-sgd", "poisson", "transformer"),
    ("dp-fedavg", "poisson-users", "lstm"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("defence", "batching", "architecture"), KINDS)
def test_interrupted_at_any_step_it_ends_in_the_same_bits(
    run, tmp_path, defence, batching, architecture
):
    model, history, step = run(tmp_path / "whole", defence, batching, architecture)
    whole = left_behind(tmp_path / "whole")
    assert any(name.startswith("step.") for name in whole) == (defence == "adversarial")
    ends = [record.step for record in history.epochs]
    for position in range(step.taken):
        directory = tmp_path / str(position)
        with pytest.raises(Killed):
            run(directory, defence, batching, architecture, die_at=position)
        again, same, rest = run(directory, defence, batching, architecture)
        assert left_behind(directory) == whole
        assert same == history
        # Steps since the last checkpoint or evaluation are taken again, no others.
        saved = max(s for s in (0, *range(3, 99, 3), *ends) if s <= position)
        assert rest.taken == ends[-1] - saved
        pairs = zip(model.parameters(), again.parameters(), strict=True)
        assert all(p.equal(q) for p, q in pairs)


@pytest.mark.slow
def test_interrupted_again_and_again_it_ends_in_the_same_bits(run, tmp_path):
    for defence, batching in (("adversarial", "users"), ("dp-sgd", "poisson")):
        run(tmp_path / defence, defence, batching)
        directory, left, kills = tmp_path / f"{defence} cut", True, 0
        while left:
            try:
                run(directory, defence, batching, die_at=2)
                left = False
            except Killed:
                kills += 1
        assert kills >= 2
        assert left_behind(directory) == left_behind(tmp_path / defence)


def test_a_defence_left_out_of_a_resumed_training_is_noticed(run, tmp_path, tiny_model, tiny_data):
    with pytest.raises(Killed):
        run(tmp_path, "dp-sgd", "poisson", die_at=2)
    with pytest.raises(TrainingError, match="has another training"):
        run(tmp_path, "goldfish", "poisson")
    config = TrainingConfig(seed=3, batch_size=ROWS, batching="poisson")
    with pytest.raises(TrainingError, match="has another training"):
        train(
            tiny_model(),
            tiny_data(DOCUMENTS),
            config=config,
            directory=tmp_path,
            step=plain_step(),
            resume=True,
        )


@pytest.mark.slow
@pytest.mark.parametrize("defence", ["adversarial", "triplet", "goldfish", "dp-sgd", "dp-fedavg"])
def test_a_defence_as_it_is_can_be_trained_into_a_directory(
    tmp_path, tiny_model, tiny_data, defence
):
    """Its settings are written down, its measurements logged."""
    model, data = tiny_model(), tiny_data(DOCUMENTS)
    config = TrainingConfig(
        seed=3, epochs=2, batch_size=1, sequence_length=LENGTH, batching="users"
    )
    step = step_of(defence, model, data, config)
    train(model, data, config=config, directory=tmp_path, step=step)
    written = json.loads((tmp_path / "training.json").read_text())["step"]
    assert written == {"name": type(step).__name__, **step.settings}
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    names = {
        "adversarial": {"discriminator_accuracy", "kl_from_uniform"},
        "triplet": {"triplet_loss", "hidden_spread"},
        "goldfish": set(),
        "dp-sgd": {"median_norm", "clipped"},
        "dp-fedavg": {"median_norm", "clipped"},
    }
    assert all(names[defence] <= line.keys() for line in log)
