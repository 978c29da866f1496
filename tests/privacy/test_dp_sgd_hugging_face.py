"""Clipping of Hugging Face models and adapters against a loop over examples."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import TrainingError
from vestige.models.lora import add_lora
from vestige.models.protocols import LanguageModel
from vestige.privacy.dp_sgd import DPSGDStep, chunks
from vestige.privacy.taps import untappable_layers
from vestige.training.batches import IGNORED, Batch
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.secret import Secret
from vestige.training.sequences import Sequences

LINES = [
    "the cat sat on the mat",
    "the dog",
    "a quick brown fox jumps",
    "the the the",
    "over the lazy dog and the cat",
]
LENGTH = 8
KINDS = ["gpt2", "gpt2 untied", "gpt2 adapter", "llama", "llama adapter"]


@pytest.fixture(scope="module")
def vocabulary() -> SubwordVocabulary:
    return SubwordVocabulary.train_bpe(Corpus.from_texts(LINES), size=265)


@pytest.fixture(scope="module")
def make(vocabulary):
    """A tiny model of a kind, without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    from vestige.models.hugging_face import HuggingFaceLanguageModel

    def network(kind: str) -> torch.nn.Module:
        eos = vocabulary.eos_id
        ends = {"bos_token_id": eos, "eos_token_id": eos, "initializer_range": 0.3}
        if kind.startswith("llama"):
            shape = LlamaConfig(
                vocab_size=len(vocabulary),
                hidden_size=8,
                intermediate_size=12,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=1,
                max_position_embeddings=16,
                **ends,
            )
            return LlamaForCausalLM(shape)
        shape = GPT2Config(
            vocab_size=len(vocabulary),
            n_positions=16,
            n_embd=8,
            n_layer=1,
            n_head=2,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            tie_word_embeddings="untied" not in kind,
            **ends,
        )
        return GPT2LMHeadModel(shape)

    def make(kind: str, dtype: torch.dtype = torch.float32) -> LanguageModel:
        torch.manual_seed(0)
        model: LanguageModel = HuggingFaceLanguageModel(network(kind), vocabulary)
        if "adapter" in kind:
            model = add_lora(model, rank=2)
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(parameter, std=0.5)
                elif "lora_A" not in name:
                    assert not parameter.requires_grad
        return model.to(dtype).train()

    return make


@pytest.fixture(scope="module")
def data(vocabulary) -> EncodedCorpus:
    return encode(Corpus.from_texts(LINES), vocabulary)


@pytest.fixture
def batch(data, vocabulary) -> Batch:
    sequences = Sequences.of(data, length=LENGTH)
    batch = sequences.batch(np.arange(len(sequences)), vocabulary.eos_id, torch.device("cpu"))
    assert batch.padding
    return batch


def one_by_one(model, batch) -> list[list[torch.Tensor]]:
    """Each example's gradients, read by itself, without padding."""
    learning = [p for p in model.parameters() if p.requires_grad]
    found = []
    for row in range(len(batch.inputs)):
        n = int((batch.targets[row] != IGNORED).sum())
        logits, _ = model(batch.inputs[row : row + 1, :n], None)
        loss = cross_entropy(logits[0], batch.targets[row, :n], reduction="sum") / LENGTH
        found.append(list(torch.autograd.grad(loss, learning)))
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
@pytest.mark.parametrize("physical", [None, 2])
def test_norms_and_clipped_sum_are_those_of_a_loop_over_examples(
    make, batch, kind, dtype, tolerance, physical
):
    model = make(kind, dtype)
    own = one_by_one(make(kind, torch.float64), batch)
    norms = torch.stack([torch.nn.utils.get_total_norm(grads) for grads in own])
    bound = norms.median().item() * 1.01
    scales = (bound / norms).clamp(max=1.0)
    assert 0 < (scales < 1).sum() < len(scales)
    step = DPSGDStep(
        noise_multiplier=0.0,
        max_grad_norm=bound,
        expected_units=2,
        sequence_length=LENGTH,
        physical_batch_size=physical,
    )
    loss, state = step(model, batch, None)

    order = batch.lengths.argsort() if physical else torch.arange(len(norms))
    torch.testing.assert_close(torch.cat(step.norms).double(), norms[order], rtol=tolerance, atol=0)
    learning = [p for p in model.parameters() if p.requires_grad]
    for place, parameter in enumerate(learning):
        expected = sum(scale * grads[place] for scale, grads in zip(scales, own, strict=True)) / 2
        torch.testing.assert_close(
            parameter.grad.double(), expected, rtol=tolerance, atol=tolerance * bound
        )
    assert state is None
    logits, _ = model(batch.inputs, None)
    expected = cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    frozen = [p for p in model.parameters() if not p.requires_grad]
    assert all(parameter.grad is None for parameter in frozen)


@pytest.mark.parametrize("kind", ["gpt2", "llama adapter"])
def test_a_user_is_clipped_with_all_that_is_theirs(make, batch, kind):
    model = make(kind, torch.float64)
    own = one_by_one(model, batch)
    users = torch.arange(len(own)) % 2
    units = [[sum(parts) for parts in zip(*own[u::2], strict=True)] for u in (0, 1)]
    norms = torch.stack([torch.nn.utils.get_total_norm(grads) for grads in units])
    bound = norms.mean().item()
    step = DPSGDStep(
        noise_multiplier=0.0,
        max_grad_norm=bound,
        expected_units=2,
        sequence_length=LENGTH,
        unit="user",
        physical_batch_size=2,
    )
    step(model, Batch(batch.inputs, batch.targets, batch.padding, batch.lengths, users), None)
    torch.testing.assert_close(torch.cat(step.norms), norms)
    learning = [p for p in model.parameters() if p.requires_grad]
    for place, parameter in enumerate(learning):
        expected = sum(
            min(1.0, bound / norm.item()) * grads[place]
            for norm, grads in zip(norms, units, strict=True)
        )
        torch.testing.assert_close(parameter.grad * 2, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["gpt2", "gpt2 adapter", "llama"])
def test_without_noise_and_clipping_a_run_equals_plain_training(
    make, data, kind, plain_but_private
):
    """Sequences of one length, so that a mean over tokens is one over sequences."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(2, 200, 8 * LENGTH).astype(np.int32)
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
    plain, private = make(kind, torch.float64), make(kind, torch.float64)
    step = DPSGDStep(
        noise_multiplier=0.0, max_grad_norm=1e9, expected_units=4, sequence_length=LENGTH
    )
    secret = Secret.of_seed(0)
    train(plain, data, config=config, step=plain_but_private, secret=secret)
    train(private, data, config=config, step=step, secret=secret)
    for one, other in zip(plain.parameters(), private.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["gpt2", "llama adapter"])
def test_nothing_stays_on_the_model_and_noise_reaches_all_that_learns(make, batch, kind):
    model = make(kind)
    before = set(model.state_dict())
    step = DPSGDStep(
        noise_multiplier=1.0, max_grad_norm=1.0, expected_units=2, sequence_length=LENGTH
    )
    step(model, batch, None)
    assert set(model.state_dict()) == before
    assert not any(m._backward_hooks or m._forward_hooks for m in model.modules())
    assert not any("grad_sample" in p.__dict__ for p in model.parameters())
    assert math.isfinite(step.measured()["median_norm"])

    def gradient(step: DPSGDStep) -> torch.Tensor:
        model.zero_grad()
        step(model, batch, None)
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])

    silent = DPSGDStep(
        noise_multiplier=0.0, max_grad_norm=1.0, expected_units=2, sequence_length=LENGTH
    )
    clear = gradient(silent)
    noise = torch.stack([gradient(step) - clear for _ in range(40)])
    assert noise.std().item() == pytest.approx(0.5, rel=5 / math.sqrt(2 * noise.numel()))
    assert (noise.std(0) > 0).all()


def silent_step(model, batch, **settings) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Norms and clipped sum without noise."""
    step = DPSGDStep(
        **{"noise_multiplier": 0.0, "max_grad_norm": 1.0, "expected_units": 2} | settings,
        sequence_length=LENGTH,
    )
    step(model, batch, None)
    return torch.cat(step.norms), [p.grad.clone() for p in model.parameters() if p.requires_grad]


def test_adapters_and_whole_models_are_clipped_by_the_gradients_of_examples(make):
    assert not any(untappable_layers(make(kind)) for kind in KINDS)


@pytest.mark.parametrize("kind", ["gpt2 adapter", "llama adapter"])
def test_recomputed_activations_give_the_same_gradients(make, batch, kind):
    plain, recomputing = make(kind), make(kind)
    network = recomputing.network
    network.activation_checkpointing_enable({"use_reentrant": False})
    network.enable_input_require_grads()
    for one, other in zip(silent_step(plain, batch), silent_step(recomputing, batch), strict=True):
        torch.testing.assert_close(one, other)


def test_half_precision_clips_what_it_adds(make, batch):
    """The norm is that of the gradient which is added, whatever precision it was formed in."""
    model = make("llama adapter")
    exact, _ = silent_step(make("llama adapter", torch.float64), batch)
    with torch.autocast("cpu", torch.bfloat16):
        norms, _ = silent_step(model, batch, max_grad_norm=1e9)
        torch.testing.assert_close(norms.double(), exact, rtol=0.05, atol=0)
        for row in range(len(batch.inputs)):
            alone = batch.select(torch.tensor([row]))
            _, gradient = silent_step(model, alone, max_grad_norm=1e-2, expected_units=1)
            total = torch.nn.utils.get_total_norm(gradient)
            torch.testing.assert_close(total, torch.tensor(1e-2), rtol=1e-5, atol=0)


def test_an_adapter_may_be_put_on_before_or_after_its_model_is_converted(make, batch):
    before = make("llama adapter", torch.float64)
    after = make("llama adapter")
    optimizer = torch.optim.SGD([p for p in after.parameters() if p.requires_grad], lr=1.0)
    after = after.to("cpu", torch.float64)
    start = [p.detach().clone() for p in after.parameters() if p.requires_grad]
    for one, other in zip(silent_step(before, batch), silent_step(after, batch), strict=True):
        torch.testing.assert_close(one, other)
    optimizer.step()
    moved = [p for p in after.parameters() if p.requires_grad]
    assert all((one != other).any() for one, other in zip(start, moved, strict=True))


@pytest.mark.parametrize("rows_at_once", [None, 1, 2, 3])
def test_users_are_read_in_groups_and_each_is_clipped_as_one(make, batch, rows_at_once):
    model = make("llama adapter", torch.float64)
    batch = Batch(
        batch.inputs, batch.targets, batch.padding, batch.lengths, torch.tensor([7, 2, 7, 7, 5])
    )
    own = one_by_one(model, batch)
    rows_of = [[1], [4], [0, 2, 3]]
    units = [
        [sum(parts) for parts in zip(*(own[r] for r in rows), strict=True)] for rows in rows_of
    ]
    norms = torch.stack([torch.nn.utils.get_total_norm(grads) for grads in units])
    found, gradients = silent_step(
        model,
        batch,
        unit="user",
        max_grad_norm=norms.median().item(),
        physical_batch_size=rows_at_once,
        expected_units=1,
    )
    torch.testing.assert_close(found, norms)
    for place, gradient in enumerate(gradients):
        scales = (norms.median() / norms).clamp(max=1.0)
        expected = sum(s * grads[place] for s, grads in zip(scales, units, strict=True))
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-7)


def test_groups_hold_every_row_once_and_no_user_twice():
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


def test_a_layer_that_sees_other_rows_is_refused(make, batch):
    model = make("llama adapter")
    layer = next(m for n, m in model.named_modules() if n.endswith("q_proj"))
    plain = layer.forward
    layer.forward = lambda x: plain(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    with pytest.raises(TrainingError, match="gradients per sequence are unknown"):
        silent_step(model, batch)
    assert not any("forward" in m.__dict__ for n, m in model.named_modules() if "lora_" in n)


def test_a_weight_that_is_used_outside_its_layer_is_refused(make, batch):
    model = make("llama adapter")
    layer = next(m for n, m in model.named_modules() if n.endswith("q_proj"))
    plain, weight = layer.forward, layer.lora_A["default"].weight
    layer.forward = lambda x: plain(x) + weight.sum()
    with pytest.raises(TrainingError, match="outside its layer"):
        silent_step(model, batch)


def test_an_adapter_on_the_head_sees_all_rows(make, batch):
    """The head is then not asked for the targets that count alone."""
    torch.manual_seed(0)
    model = add_lora(make("llama"), rank=2, target_modules=["lm_head"]).double()
    assert not untappable_layers(model)
    own = torch.stack([torch.nn.utils.get_total_norm(g) for g in one_by_one(model, batch)])
    torch.testing.assert_close(silent_step(model, batch)[0], own)


def test_a_step_forms_the_gradients_of_examples_once(make, batch, monkeypatch):
    """One backward pass, whatever is clipped."""
    model, calls = make("llama adapter"), []
    real = torch.Tensor.backward
    monkeypatch.setattr(
        torch.Tensor, "backward", lambda self, *a, **k: calls.append(1) or real(self, *a, **k)
    )
    silent_step(model, batch)
    assert calls == [1]
