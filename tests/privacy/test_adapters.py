"""Clipping of LoRA adapters against a loop over single sequences, and what is refused."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.privacy import test_clipping
from tests.privacy.test_clipping import (
    LENGTH,
    check_against_definition,
    make_batch,
    row_gradients,
    run_step,
)
from vestige.data.encoded import EncodedCorpus
from vestige.errors import TrainingError
from vestige.models.lora import add_lora
from vestige.models.protocols import LanguageModel
from vestige.privacy.dp_sgd import DPSGDStep, chunks
from vestige.privacy.taps import untappable_layers
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.secret import Secret

KINDS = ["gpt2", "llama"]
USERS, OF_USERS = [7, 2, 7, 7, 5, 2], [[1, 5], [4], [0, 2, 3]]


def make(kind: str, dtype: torch.dtype = torch.float64, **settings) -> LanguageModel:
    """An adapter that has learnt, on a tiny frozen model."""
    model = add_lora(test_clipping.make_model(kind, 8, torch.float32), rank=2, **settings)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5)
        else:
            assert parameter.requires_grad == ("lora_A" in name)
    return model.to(dtype).train()


def trainable_parameters(model: LanguageModel) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows_at_once", [None, 2])
def test_adapter_clipping_matches_a_loop_over_sequences(kind, rows_at_once):
    model, rows = make(kind), torch.arange(6)
    assert not untappable_layers(model)
    if rows_at_once:  # rows of like length are read together
        rows = make_batch().lengths.argsort()
    check_against_definition(
        model, make_batch(), rows[:, None].tolist(), physical_batch_size=rows_at_once
    )
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows_at_once", [None, 1, 2, 3])
def test_adapter_clipping_matches_a_loop_over_users(kind, rows_at_once):
    settings = {"unit": "user", "physical_batch_size": rows_at_once}
    check_against_definition(make(kind), make_batch(users=USERS), OF_USERS, **settings)


def test_the_loss_of_a_step_is_the_mean_over_tokens():
    model = make("llama")
    step = DPSGDStep(
        noise_multiplier=0.0, max_grad_norm=1.0, expected_units=6, sequence_length=LENGTH
    )
    loss, state = step(model, make_batch(), None)
    logits, _ = model(make_batch().inputs, None)
    expected = cross_entropy(logits.flatten(0, 1), make_batch().targets.flatten())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    assert state is None


@pytest.mark.parametrize("made", [make, test_clipping.make_model])
def test_without_noise_and_clipping_a_run_equals_plain_training(made, plain_but_private):
    """Sequences of one length, so that a mean over tokens is one over sequences."""
    tokens = np.random.default_rng(0).integers(2, 200, 8 * LENGTH).astype(np.int32)
    data = EncodedCorpus(tokens, np.arange(9) * LENGTH)
    config = TrainingConfig(
        seed=0,
        epochs=2,
        batch_size=4,
        sequence_length=LENGTH,
        batching="documents",
        optimizer="sgd",
        learning_rate=0.1,
        max_grad_norm=None,
        precision="float32",
    )
    plain, private = made("gpt2"), made("gpt2")
    step = DPSGDStep(
        noise_multiplier=0.0, max_grad_norm=1e9, expected_units=4, sequence_length=LENGTH
    )
    secret = Secret.of_seed(0)
    train(plain, data, config=config, step=plain_but_private, secret=secret)
    train(private, data, config=config, step=step, secret=secret)
    for expected, result in zip(plain.parameters(), private.parameters(), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_noise_reaches_all_that_learns_and_nothing_stays_on_the_model(kind):
    model = make(kind, torch.float32)
    before, clear = set(model.state_dict()), run_step(model, make_batch(), expected_units=2)[1]
    noise = torch.stack(
        [
            torch.cat([(one - two).flatten() for one, two in zip(noised, clear, strict=True)])
            for noised in (
                run_step(model, make_batch(), noise_multiplier=1.0, expected_units=2)[1]
                for _ in range(40)
            )
        ]
    )
    assert noise.std().item() == pytest.approx(0.5, rel=5 / math.sqrt(2 * noise.numel()))
    assert (noise.std(0) > 0).all()
    assert set(model.state_dict()) == before
    assert not any(m._backward_hooks or m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("kind", KINDS)
def test_recomputed_activations_give_the_same_gradients(kind):
    plain, recomputing = make(kind), make(kind)
    recomputing.network.activation_checkpointing_enable({"use_reentrant": False})
    recomputing.network.enable_input_require_grads()
    for expected, result in zip(
        run_step(plain, make_batch()), run_step(recomputing, make_batch()), strict=True
    ):
        torch.testing.assert_close(result, expected)


def test_half_precision_clips_the_gradients_that_it_adds():
    """The norm is that of the gradient which is added, whatever precision it was formed in."""
    exact, _ = run_step(make("llama"), make_batch())
    model = make("llama", torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        norms, _ = run_step(model, make_batch(), clip=1e9)
        torch.testing.assert_close(norms.double(), exact, rtol=0.05, atol=0)
        for row in range(6):
            _, gradient = run_step(model, make_batch().select(torch.tensor([row])), clip=1e-2)
            total = torch.nn.utils.get_total_norm(gradient)
            torch.testing.assert_close(total, torch.tensor(1e-2), rtol=1e-5, atol=0)


def test_adapters_added_before_or_after_conversion_give_equal_steps():
    after = make("llama", torch.float32)
    optimizer = torch.optim.SGD(trainable_parameters(after), lr=1.0)
    after = after.to("cpu", torch.float64)
    start = [parameter.detach().clone() for parameter in trainable_parameters(after)]
    for expected, result in zip(
        run_step(make("llama"), make_batch()), run_step(after, make_batch()), strict=True
    ):
        torch.testing.assert_close(result, expected)
    optimizer.step()
    assert all(
        (before != now).any()
        for before, now in zip(start, trainable_parameters(after), strict=True)
    )


def test_chunks_hold_every_row_once_and_no_user_twice():
    generator = np.random.default_rng(0)
    for _ in range(200):
        users = torch.from_numpy(generator.integers(0, 6, generator.integers(1, 12)))
        size = int(generator.integers(1, 6))
        found = list(chunks(users, size))
        rows = torch.cat([rows for rows, _ in found])
        assert sorted(rows.tolist()) == list(range(len(users)))
        seen = [set(users[rows].tolist()) for rows, _ in found]
        assert sum(map(len, seen)) == len(set(users.tolist()))
        for own, (rows, units) in zip(seen, found, strict=True):
            assert len(rows) <= size or len(own) == 1
            assert len(set(zip(users[rows].tolist(), units.tolist(), strict=True))) == len(own)
            assert set(units.tolist()) == set(range(len(own)))
            assert units.tolist() == sorted(units.tolist())


def query(model: LanguageModel) -> torch.nn.Module:
    return next(layer for name, layer in model.named_modules() if name.endswith("q_proj"))


def test_layers_that_read_other_rows_are_refused():
    model = make("llama")
    layer = query(model)
    plain = layer.forward
    layer.forward = lambda x: plain(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    with pytest.raises(TrainingError, match="gradients per sequence are unknown"):
        run_step(model, make_batch())
    assert not any("forward" in m.__dict__ for n, m in model.named_modules() if "lora_" in n)


def test_a_weight_that_is_used_outside_its_layer_is_refused():
    model = make("llama")
    layer = query(model)
    plain, weight = layer.forward, layer.lora_A["default"].weight
    layer.forward = lambda x: plain(x) + weight.sum()
    with pytest.raises(TrainingError, match="outside its layer"):
        run_step(model, make_batch())


def test_an_adapter_on_the_head_sees_all_rows():
    """The head is then not asked for the targets that count alone."""
    model = make("llama", target_modules=["lm_head"])
    assert not untappable_layers(model)
    own = torch.stack(
        [torch.nn.utils.get_total_norm(g) for g in row_gradients(model, make_batch())]
    )
    torch.testing.assert_close(run_step(model, make_batch())[0], own)


def test_a_step_forms_the_gradients_of_examples_once(monkeypatch):
    """One backward pass, whatever is clipped."""
    model, calls = make("llama"), []
    real = torch.Tensor.backward
    monkeypatch.setattr(
        torch.Tensor, "backward", lambda self, *a, **k: calls.append(1) or real(self, *a, **k)
    )
    run_step(model, make_batch())
    assert calls == [1]
