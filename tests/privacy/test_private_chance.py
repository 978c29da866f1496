"""Nothing that a private training draws can be drawn again from what others see or guess."""

import json
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from vestige.errors import TrainingError
from vestige.privacy.dp_fedavg import DPFedAvgStep
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.training.config import TrainingConfig
from vestige.training.directory import KEY
from vestige.training.loop import train
from vestige.training.secret import Secret
from vestige.training.steps import Private, plain_step

CONFIG = TrainingConfig(
    seed=0,
    epochs=2,
    batch_size=4,
    sequence_length=7,
    learning_rate=1.0,
    optimizer="sgd",
    batching="poisson",
    precision="float32",
    checkpoint_every=1,
)


class Killed(BaseException):
    """What no `except Exception` catches."""


def dp_sgd(noise: float = 1.0, **settings) -> DPSGDStep:
    given = {"max_grad_norm": 0.3, "expected_units": 4, "sequence_length": 7}
    return DPSGDStep(noise_multiplier=noise, **given | settings)


def dp_fedavg(noise: float = 1.0) -> DPFedAvgStep:
    return DPFedAvgStep(
        noise_multiplier=noise, max_grad_norm=0.3, expected_units=2, local_batch_size=2
    )


class Watching:
    """A private step that keeps what it read, and may die."""

    def __init__(self, inside, die_at: int | None = None) -> None:
        self.inside, self.settings, self.die_at = inside, inside.settings, die_at
        self.draw_from = inside.draw_from
        self.rows, self.gradients = [], []

    def __call__(self, model, batch, state):
        if len(self.rows) == self.die_at:
            raise Killed
        done = self.inside(model, batch, state)
        self.rows.append(batch.targets.tolist())
        self.gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]).clone())
        return done


@pytest.fixture
def run(tiny_model, tiny_data):
    def run(step, *, directory=None, config=CONFIG, dropout=0.0, **given):
        watching = Watching(step, given.pop("die_at", None))
        model = tiny_model(dropout=dropout)
        train(model, tiny_data(24), config=config, step=watching, directory=directory, **given)
        return model, watching

    return run


def weights(model) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.slow
@pytest.mark.parametrize("make", [dp_sgd, dp_fedavg])
def test_two_private_trainings_of_one_seed_draw_other_noise_and_other_lots(run, make):
    config = CONFIG
    if make is dp_fedavg:
        config = replace(CONFIG, batching="poisson-users", batch_size=2, epochs=8)
    (one, first), (other, second) = (run(make(), config=config) for _ in range(2))
    assert not weights(one).equal(weights(other))
    assert first.rows != second.rows
    for mine, theirs in zip(first.gradients, second.gradients, strict=True):
        assert abs(np.corrcoef(mine, theirs)[0, 1]) < 5 / np.sqrt(len(mine))


@pytest.mark.slow
def test_the_seed_decides_nothing_once_there_are_weights_and_the_secret_everything(run):
    """Lots, noise and dropout masks."""
    secret = Secret.of_seed(1)
    runs = [
        run(dp_sgd(), config=replace(CONFIG, seed=seed), dropout=0.3, secret=secret)
        for seed in (0, 1)
    ]
    assert weights(runs[0][0]).equal(weights(runs[1][0]))
    assert runs[0][1].rows == runs[1][1].rows
    other, watching = run(dp_sgd(), dropout=0.3, secret=Secret.of_seed(2))
    assert watching.rows != runs[0][1].rows
    assert not weights(other).equal(weights(runs[0][0]))


def test_dropout_masks_come_from_the_secret_as_well(run):
    """Without noise, and with everybody in every lot."""
    config = replace(CONFIG, batch_size=24)
    ends = [
        weights(run(dp_sgd(0.0), config=config, dropout=dropout, secret=Secret.of_seed(seed))[0])
        for dropout, seed in ((0.3, 1), (0.3, 1), (0.3, 2), (0.0, 1), (0.0, 2))
    ]
    assert ends[0].equal(ends[1])
    assert not ends[0].allclose(ends[2], rtol=1e-3, atol=1e-4)
    assert ends[3].allclose(ends[4], rtol=1e-3, atol=1e-5)  # no chance is left


def test_an_undefended_training_does_not_look_at_a_secret(tiny_model, tiny_data):
    ends = []
    for secret in (None, Secret.of_seed(1), Secret.fresh()):
        model = tiny_model(dropout=0.3)
        train(model, tiny_data(24), config=CONFIG, step=plain_step(), secret=secret)
        ends.append(weights(model))
    assert ends[0].equal(ends[1])
    assert ends[0].equal(ends[2])


def test_a_step_called_by_itself_never_repeats_its_noise(tiny_model, tiny_batch):
    model, drawn = tiny_model(), []
    for step in (dp_sgd(), dp_sgd()):
        for _ in range(2):
            step(model, tiny_batch(), None)
            drawn.append(torch.cat([p.grad.flatten() for p in model.parameters()]).clone())
    assert isinstance(step, Private)
    assert len({tuple(gradient.tolist()) for gradient in drawn}) == 4


@pytest.fixture
def adapter():
    """A tiny GPT-2 and a fresh adapter, made as `vestige train --lora-rank` makes it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from vestige.data.corpus import Corpus
    from vestige.data.subwords import SubwordVocabulary
    from vestige.models.hugging_face import HuggingFaceLanguageModel
    from vestige.models.lora import add_lora

    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(["the cat sat"]), size=259)
    sizes = {"n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), vocabulary.eos_id)
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    base = GPT2LMHeadModel(GPT2Config(vocab_size=len(vocabulary), **sizes, **ends, **no_dropout))
    torch.manual_seed(CONFIG.seed)
    return add_lora(HuggingFaceLanguageModel(base, vocabulary), rank=8)


def as_normals(uniforms: torch.Tensor) -> torch.Tensor:
    """What torch's `normal_` makes of the uniforms that another draw of the same seed showed."""
    parts = uniforms.view(-1, 2, 8).double().clamp(1e-7, 1 - 1e-7)
    radius, angle = (-2 * (1 - parts[:, 0]).log()).sqrt(), 2 * torch.pi * parts[:, 1]
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1).flatten()


def nearest(first: torch.Tensor, noise: torch.Tensor) -> float:
    """The largest correlation of first weights with as many numbers of the noise, wherever."""
    windows = noise.double().unfold(0, len(first), 1)
    windows = windows - windows.mean(1, keepdim=True)
    own = first.double() - first.double().mean()
    return ((windows @ own) / windows.norm(dim=1) / own.norm()).abs().max().item()


def test_an_adapters_first_weights_are_the_noise_of_no_step(adapter, tiny_data):
    """They were the second's, to the bit: one seed drew both."""
    bound = 8**-0.5  # of PEFT's first weights, uniform for 8 inputs
    learning = {n: p for n, p in adapter.named_parameters() if p.requires_grad}
    first = next(p for n, p in learning.items() if "lora_A" in n).detach().clone().flatten()
    step = dp_sgd(1e6, max_grad_norm=1e-6)
    noise = []

    def watched(model, batch, state):
        done = step(model, batch, state)
        noise.append(torch.cat([p.grad.flatten() for p in learning.values()]).clone())
        return done

    watched = type("Step", (), {"__call__": staticmethod(watched), "settings": {}})()
    watched.draw_from = getattr(step, "draw_from", None)
    train(adapter, tiny_data(24), config=replace(CONFIG, learning_rate=1e-9), step=watched)
    assert len(noise) == 12
    everything = torch.cat(noise)
    chance = 1.3 * np.sqrt(2 * np.log(len(everything)) / len(first))
    assert chance < 0.9
    for start in (first, as_normals((first / bound + 1) / 2)):
        assert nearest(start, everything) < chance


def files_with(directory: Path, secret: Secret) -> list[str]:
    """Names of files in which the secret stands, raw or as hexadecimal digits."""
    shown = (secret.reveal(), secret.reveal().hex().encode())
    files = [path for path in directory.rglob("*") if path.is_file()]
    return sorted(path.name for path in files if any(s in path.read_bytes() for s in shown))


@pytest.mark.slow
def test_the_secret_stands_in_one_file_of_the_owners_until_the_model_is_written(run, tmp_path):
    directory = tmp_path / "out"
    with pytest.raises(Killed):
        run(dp_sgd(), directory=directory, die_at=3)
    secret = Secret((directory / KEY).read_bytes())
    assert files_with(directory, secret) == [KEY]
    for path, mode in ((KEY, 0o600), ("checkpoint.safetensors", 0o600), (".", 0o700)):
        assert stat.S_IMODE((directory / path).stat().st_mode) == mode
    resumed, _ = run(dp_sgd(), directory=directory, resume=True)
    assert files_with(directory, secret) == []
    whole, _ = run(dp_sgd(), directory=tmp_path / "whole", secret=secret)
    assert weights(resumed).equal(weights(whole))
    assert "secret" not in json.dumps(json.loads((directory / "training.json").read_text()))


def test_nothing_of_torchs_generators_is_kept_of_a_private_training(run, tmp_path):
    from safetensors import safe_open

    run(dp_sgd(), directory=tmp_path)
    with safe_open(tmp_path / "checkpoint.safetensors", "pt") as file:
        assert not [name for name in file.keys() if name.startswith("chance")]  # noqa: SIM118


def test_a_finished_training_is_resumed_without_its_secret(run, tmp_path):
    model, _ = run(dp_sgd(), directory=tmp_path)
    assert not (tmp_path / KEY).exists()
    again, watching = run(dp_sgd(), directory=tmp_path, resume=True)
    assert watching.rows == []
    assert weights(again).equal(weights(model))
    assert not (tmp_path / KEY).exists()


def test_a_secret_left_by_a_kill_after_the_model_was_written_is_deleted(run, tmp_path):
    run(dp_sgd(), directory=tmp_path)
    (tmp_path / KEY).write_bytes(bytes(32))
    run(dp_sgd(), directory=tmp_path, resume=True)
    assert not (tmp_path / KEY).exists()


def test_an_unfinished_training_without_its_secret_is_an_error(run, tmp_path):
    with pytest.raises(Killed):
        run(dp_sgd(), directory=tmp_path, die_at=3)
    (tmp_path / KEY).unlink()
    with pytest.raises(
        TrainingError, match=r"secret\.key is missing; a private training cannot resume without it"
    ):
        run(dp_sgd(), directory=tmp_path, resume=True)


@pytest.mark.slow
def test_a_training_killed_before_its_first_checkpoint_keeps_its_secret(run, tmp_path):
    with pytest.raises(Killed):
        run(dp_sgd(), directory=tmp_path, die_at=0)
    secret = Secret((tmp_path / KEY).read_bytes())
    _, watching = run(dp_sgd(), directory=tmp_path, resume=True)
    _, same = run(dp_sgd(), secret=secret)
    assert watching.rows == same.rows
    assert all(a.equal(b) for a, b in zip(watching.gradients, same.gradients, strict=True))
