"""Norms and clipped sums of whole models' gradients against a loop over single sequences."""

import weakref

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.defences import example_gradients, ghost_norms
from vestige.defences.dp_sgd import DPSGDStep
from vestige.defences.example_gradients import clip_examples, suits
from vestige.defences.example_layers import unknown_layers
from vestige.defences.ghost_lstm import clip_lstm
from vestige.defences.ghost_norms import ExampleGradients
from vestige.defences.ghost_opacus import clip_opacus
from vestige.errors import TrainingError
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.models.transformer import TransformerConfig
from vestige.training.batches import IGNORED, Batch
from vestige.training.presets import new_model

VOCABULARY = SubwordVocabulary.train_bpe(Corpus.from_texts(["the cat sat"]), size=265)
LENGTH, PAD = 6, 7
KINDS = ["gpt2", "gpt2 untied", "llama", "llama tied", "qwen3", "gemma2"]
WIDTHS = {"formed": 8, "gram": 48}
"""Widths at which a linear layer's gradients are formed, and at which they are not."""


def network(kind: str, width: int) -> nn.Module:
    common = {"vocab_size": 265, "initializer_range": 0.2, "bos_token_id": 0, "eos_token_id": 0}
    if kind.startswith("gpt2"):
        quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        tied = "untied" not in kind
        sizes = {"n_positions": 16, "n_embd": width, "n_layer": 2, "n_head": 2}
        return GPT2LMHeadModel(
            GPT2Config(**sizes, **quiet, **common, tie_word_embeddings=tied)
        )  # fmt: skip
    sizes = {
        "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
        "max_position_embeddings": 16, "pad_token_id": PAD,
    }  # fmt: skip
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**sizes, **common))
    if kind == "gemma2":
        return Gemma2ForCausalLM(Gemma2Config(**sizes, **common))
    return LlamaForCausalLM(LlamaConfig(**sizes, **common, tie_word_embeddings="tied" in kind))


def make(kind: str, width: int = 48, dtype=torch.float64) -> HuggingFaceLanguageModel:
    """A tiny model whose norms' weights differ from one."""
    torch.manual_seed(0)
    model = HuggingFaceLanguageModel(network(kind, width), VOCABULARY)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.5)
    return model.to(dtype).train()


def batch(users: list[int] | None = None) -> Batch:
    """Six rows of two to six tokens, in which tokens repeat and one is the padding token."""
    chance = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 12, (6, LENGTH + 1), generator=chance)
    ids[0, 2] = ids[3, 1] = PAD
    lengths = torch.tensor([6, 2, 4, 5, 6, 3])
    beyond = torch.arange(LENGTH) >= lengths[:, None]
    inputs = ids[:, :-1].masked_fill(beyond, 0)
    targets = ids[:, 1:].masked_fill(beyond, IGNORED)
    owners = None if users is None else torch.tensor(users)
    return Batch(inputs, targets, int(beyond.sum()), lengths, owners)


def one_by_one(model, given: Batch) -> list[list[torch.Tensor]]:
    """Each row's gradients, read by itself, without padding."""
    learning = [p for p in model.parameters() if p.requires_grad]
    found = []
    for row, length in enumerate(given.lengths.tolist()):
        logits, _ = model(given.inputs[row : row + 1, :length], None)
        loss = cross_entropy(logits[0], given.targets[row, :length], reduction="sum") / LENGTH
        own = torch.autograd.grad(loss, learning, allow_unused=True)
        pairs = zip(own, learning, strict=True)
        found.append([torch.zeros_like(p) if g is None else g for g, p in pairs])
    return found


def summed(rows: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    return [torch.stack(parts).sum(0) for parts in zip(*rows, strict=True)]


def take(model, given: Batch, *, clip: float = 1.0, **settings):
    """Norms and the clipped sum, without noise."""
    step = DPSGDStep(
        **{"noise_multiplier": 0.0, "max_grad_norm": clip, "expected_units": 1} | settings,
        sequence_length=LENGTH,
    )
    step(model, given, None)
    return torch.cat(step.norms), [p.grad.clone() for p in model.parameters() if p.requires_grad]


def check(model, given: Batch, units: list[list[int]], **settings) -> None:
    """What a step computes is the definition, with half of the units clipped.

    Losses are in float32, whatever the model is in.
    """
    own = one_by_one(model, given)
    gradients = [summed([own[row] for row in rows]) for rows in units]
    norms = torch.stack([torch.nn.utils.get_total_norm(unit) for unit in gradients])
    clip = norms.median().item() * 1.0001
    found, total = take(model, given, clip=clip, **settings)
    torch.testing.assert_close(found, norms, rtol=1e-6, atol=0)
    scales = (clip / norms).clamp(max=1.0)
    assert 0 < (scales < 1).sum() < len(scales)
    for place, one in enumerate(total):
        expected = sum(s * unit[place] for s, unit in zip(scales, gradients, strict=True))
        torch.testing.assert_close(one, expected, rtol=1e-6, atol=1e-6 * clip)


ROWS = [[row] for row in range(6)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_whole_model_is_clipped_as_by_a_loop_over_sequences(kind, width):
    model = make(kind, WIDTHS[width])
    assert DPSGDStep(
        noise_multiplier=0, max_grad_norm=1, expected_units=1, sequence_length=1
    )._clip(model) is clip_examples  # fmt: skip
    check(model, batch(), ROWS)


def test_both_ways_to_hold_gradients_are_tried(monkeypatch):
    """The widths above do what they are there for."""
    held: dict[str, set[tuple[int, ...]]] = {}
    real = ExampleGradients.norms

    def norms(self):
        held[width] = {tuple(p.shape) for p, one in self._held.items() if one.products}
        return real(self)

    monkeypatch.setattr(ExampleGradients, "norms", norms)
    for width in WIDTHS:  # read above
        take(make("llama", WIDTHS[width]), batch())
    assert held["formed"] == {(265, 8)}  # the head
    assert {(96, 48), (48, 96), (265, 48)} <= held["gram"]


@pytest.mark.parametrize("kind", ["gpt2", "llama tied"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows_at_once", [None, 1, 2, 4])
def test_a_user_of_a_whole_model_is_clipped_as_one(kind, width, rows_at_once):
    """Users with one, two and three rows; some do not fit into one pass."""
    units = [[1], [0, 4], [2, 3, 5]]
    given = batch(users=[7, 3, 9, 9, 7, 9])
    settings = {"unit": "user", "physical_batch_size": rows_at_once}
    check(make(kind, WIDTHS[width]), given, units, **settings)


FROZEN = {
    "embeddings alone": lambda name: "embed" in name or "wte" in name or "wpe" in name,
    "norms alone": lambda name: "norm" in name or "ln_" in name,
    "biases alone": lambda name: name.endswith("bias"),
    "all but embeddings": lambda name: "embed" not in name and "wte" not in name,
    "the last layer": lambda name: ".1." in name,
}


@pytest.mark.parametrize("part", FROZEN)
@pytest.mark.parametrize("kind", ["gpt2", "gpt2 untied", "llama", "llama tied"])
def test_a_part_that_is_frozen_counts_for_nothing(kind, part):
    model = make(kind)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(FROZEN[part](name))
    if not any(p.requires_grad for p in model.parameters()):
        assert not suits(model)  # a Llama has no biases
        return
    check(model, batch(), ROWS)
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


def test_a_token_that_no_row_has_gets_no_gradient():
    model = make("llama")
    given = batch()
    take(model, given)
    moved = model.network.model.embed_tokens.weight.grad.any(1).nonzero().flatten()
    assert set(moved.tolist()) <= set(given.inputs.flatten().tolist()) - {PAD}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "llama tied"])
def test_activations_may_be_recomputed(kind, reentrant):
    plain, recomputing = make(kind), make(kind)
    recomputing.network.activation_checkpointing_enable({"use_reentrant": reentrant})
    for one, other in zip(take(plain, batch()), take(recomputing, batch()), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", ["gpt2", "llama tied", "qwen3"])
@pytest.mark.parametrize("width", WIDTHS)
def test_half_precision_clips_what_it_adds(kind, width):
    """Norms are those of the gradients that are added, and near the exact ones."""
    exact, _ = take(make(kind, WIDTHS[width]), batch())
    model = make(kind, WIDTHS[width], torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        norms, _ = take(model, batch())
        torch.testing.assert_close(norms.double(), exact, rtol=0.1, atol=0)
        for row in range(6):
            _, gradient = take(model, batch().select(torch.tensor([row])), clip=1e-2)
            total = torch.nn.utils.get_total_norm(gradient)
            torch.testing.assert_close(total, torch.tensor(1e-2), rtol=1e-4, atol=0)


def test_nothing_is_held_once_a_step_is_over(monkeypatch):
    """Activations would otherwise stay until Python looks for cycles, if it can see this one."""
    seen = []

    class Watched(ExampleGradients):
        def __init__(self, *given) -> None:
            super().__init__(*given)
            seen.append(weakref.ref(self))

    monkeypatch.setattr(example_gradients, "ExampleGradients", Watched)
    take(make("llama tied"), batch())
    assert [one() for one in seen] == [None]


def step_of(unit="sequence") -> DPSGDStep:
    return DPSGDStep(
        noise_multiplier=0, max_grad_norm=1, expected_units=1, sequence_length=1, unit=unit
    )


class Doubled(nn.Linear):
    """A linear layer with a `forward` of its own."""

    def forward(self, given):
        return super().forward(given) * 2


class Counted(Doubled):
    """One that Opacus does not take, either."""

    def __init__(self, *sizes: int, bias: bool) -> None:
        super().__init__(*sizes, bias=bias)
        self.register_buffer("seen", torch.zeros(1))


def with_layers_of(kind: type[nn.Linear]) -> HuggingFaceLanguageModel:
    model = make("llama")
    for layer in model.network.model.layers:
        layer.mlp.up_proj = kind(48, 96, bias=False).double()
    return model


def test_each_kind_of_model_has_its_way_of_clipping():
    words = WordVocabulary(("<unk>", "<eos>", "a", "b"))
    lstm = new_model(words, LSTMConfig(layers=1, embedding_size=4, hidden_size=4), seed=0)
    own = new_model(
        words, TransformerConfig(layers=1, heads=2, hidden_size=4, feed_forward=8), seed=0
    )
    assert step_of()._clip(lstm) is clip_lstm
    assert step_of()._clip(own) is clip_examples
    other = with_layers_of(Doubled)
    assert step_of()._clip(other) is clip_opacus
    assert "clip_users_examples" in step_of("user")._clip(own).__qualname__
    assert "clip_users." in step_of("user")._clip(other).__qualname__
    lstm.lstm.requires_grad_(False)
    assert step_of()._clip(lstm) is clip_lstm


def test_a_layer_that_is_not_known_is_named():
    found = unknown_layers(with_layers_of(Doubled))
    assert [name.rpartition(".")[2] for name, _ in found] == ["up_proj", "up_proj"]
    assert {type(layer).__name__ for _, layer in found} == {"Doubled"}
    with pytest.raises(TrainingError, match="because of the Counted network"):
        take(with_layers_of(Counted), batch())


def test_opacus_takes_what_is_not_known():
    """Without the padding token, whose gradient Opacus' ghost norms count though there is none."""
    given = batch()
    given.inputs[given.inputs == PAD] = 1
    check(with_layers_of(Doubled), given, ROWS)


@pytest.mark.parametrize("kind", [Doubled, Counted])
def test_a_user_is_clipped_whatever_the_layers_are(kind):
    given = batch(users=[7, 3, 9, 9, 7, 9])
    check(with_layers_of(kind), given, [[1], [0, 4], [2, 3, 5]], unit="user")


class Scaling(nn.Module):
    """A layer with vectors, and some way to use them."""

    def __init__(self, use, *names: str) -> None:
        super().__init__()
        self.use = use
        for name in names or ("weight",):
            setattr(self, name, nn.Parameter(torch.ones(5)))

    def forward(self, given):
        return self.use(self, given)


def test_a_norm_is_known_by_what_it_computes():
    def known(use, *names):
        return not unknown_layers(Scaling(use, *names))

    assert known(lambda own, x: x / x.norm(dim=-1, keepdim=True) * own.weight)
    assert known(lambda own, x: x * (1 + own.weight) + own.bias, "weight", "bias")
    assert not known(lambda own, x: x.mean(0, keepdim=True) * own.weight)
    assert not known(lambda own, x: (x - x.mean(0, keepdim=True)) * own.weight)
    assert not known(lambda own, x: x * own.weight.mean(0))
    assert not known(lambda own, x: x * own.weight.sum())
    assert not known(lambda own, x: x * own._parameters["weight"])
    assert not known(lambda own, x: x)
    assert known(lambda own, x: x * own.scale, "scale")
    assert not known(lambda own, x: nn.functional.linear(x, own.weight))
    assert not unknown_layers(nn.LayerNorm(5))
    assert not unknown_layers(nn.RMSNorm(5))
    for other in (nn.BatchNorm1d(5), nn.PReLU(5), nn.GRU(2, 2), nn.Bilinear(2, 2, 2)):
        assert unknown_layers(other)
    assert unknown_layers(nn.Embedding(4, 2, max_norm=1.0))
    assert unknown_layers(nn.Embedding(4, 2, sparse=True))
    assert unknown_layers(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))


@pytest.mark.parametrize("layer", [nn.LayerNorm(5), nn.RMSNorm(5, eps=1e-3)])
@pytest.mark.parametrize("shape", [(3, 5), (3, 2, 5), (3, 2, 4, 5)])
def test_norms_of_torch_answer_as_they_do(layer, shape):
    """Forward and backward, with the rows' gradients beside."""
    given = torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
    given.requires_grad_()
    layer = layer.double()
    nn.init.normal_(layer.weight)
    plain = layer(given)
    (back,) = torch.autograd.grad(plain.square().sum(), given)
    own = [torch.autograd.grad(layer(given[i : i + 1]).square().sum(), layer.weight)[0] for i in range(3)]  # fmt: skip  # noqa: E501
    found = ExampleGradients(3)
    with example_gradients.gathered(layer, found):
        again = layer(given)
        again.square().sum().backward()
    torch.testing.assert_close(again, plain)
    torch.testing.assert_close(given.grad, back)
    torch.testing.assert_close(found._held[layer.weight].formed, torch.stack(own))


UNITS = [None, [0, 1, 1, 2, 2, 2], [0, 0, 1, 1, 2, 2], [0] * 6]


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("at_once", [1, 100, 1 << 24])
@pytest.mark.parametrize("shape", [(30, 40), (4, 5)])
@pytest.mark.parametrize("lookups", [0, 1, 2])
@pytest.mark.parametrize("products", [0, 1, 2])
def test_uses_of_one_parameter_add_up(monkeypatch, units, at_once, shape, products, lookups):
    """A head, an embedding, both, each twice: the norm is that of the sum."""
    monkeypatch.setattr(ghost_norms, "_AT_ONCE", at_once)
    chance = torch.Generator().manual_seed(0)
    parameter = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
    parameter.grad = torch.zeros_like(parameter)
    rows, (o, i) = 6, shape

    def drawn(*sizes):
        return torch.randn(sizes, generator=chance, dtype=torch.float64)

    given = None if units is None else torch.tensor(units)
    found, naive = ExampleGradients(rows, given), torch.zeros(rows, o, i, dtype=torch.float64)
    for places in range(3, 3 + products):
        left, right = drawn(rows, places, o), drawn(rows, places, i)
        found.add_product(parameter, left, right)
        naive += torch.einsum("rto,rti->roi", left, right)
    for places in range(4, 4 + lookups):
        ids = torch.randint(o, (rows, places), generator=chance)
        gradients = drawn(rows, places, i)
        found.add_lookup(parameter, ids, gradients)
        for row in range(rows):
            naive[row].index_add_(0, ids[row], gradients[row])
    if not products + lookups:
        return
    if units is not None:
        naive = torch.zeros(max(units) + 1, o, i, dtype=torch.float64).index_add(0, given, naive)
    torch.testing.assert_close(found.norms(), naive.flatten(1).norm(dim=1))
    weights = torch.rand(len(naive), generator=chance, dtype=torch.float64)
    found.add_weighted(weights)
    torch.testing.assert_close(parameter.grad, torch.einsum("u,uoi->oi", weights, naive))


def test_gradients_of_tokens_may_cancel_to_a_thousandth():
    """In float32 the norm is then known to some per cent, as the module says."""
    chance = torch.Generator().manual_seed(0)
    parameter = nn.Parameter(torch.zeros(300, 400))
    left, right = (torch.randn(8, 10, width, generator=chance) for width in parameter.shape)
    small = 2e-3 * torch.randn(8, 10, 300, generator=chance)
    left, right = torch.cat([left, small - left], 1), torch.cat([right, right], 1)
    found = ExampleGradients(8)
    found.add_product(parameter, left, right)
    assert found._held[parameter].products
    exact = torch.bmm(left.double().mT, right.double()).flatten(1).norm(dim=1)
    together = (left.norm(dim=2) * right.norm(dim=2)).sum(1)
    assert (exact / together).max() < 2e-3
    torch.testing.assert_close(found.norms().double(), exact, rtol=0.05, atol=0)


@pytest.mark.parametrize("units", [None, torch.arange(4).repeat_interleave(2)])
@pytest.mark.parametrize("activation", [3, 30, 300, 3_000, 30_000])
def test_a_unit_whose_tokens_cancel_is_clipped_by_its_own_norm(activation, units):
    """What all tokens read alike falls out, since their gradients sum to nothing."""
    torch.manual_seed(0)
    rows = 4 if units is None else 8
    weight = nn.Parameter(torch.zeros(300, 200))
    back, read = torch.randn(rows, 8, 300), torch.randn(rows, 8, 200) + activation
    back -= back.mean(1, keepdim=True)
    found = ExampleGradients(rows, units)
    found.add_product(weight, back, read)
    true = back.double().mT @ read.double()
    true = true if units is None else true.unflatten(0, (4, 2)).sum(1)
    exact = true.square().sum((1, 2)).sqrt()
    norms = found.norms()
    scale = (back.norm(dim=2) * read.norm(dim=2)).sum(1).max()
    torch.testing.assert_close(norms.double(), exact, rtol=5e-4, atol=float(scale) / 2**19)
    for unit in range(4):
        weight.grad = torch.zeros_like(weight)
        found.add_weighted(torch.eye(4)[unit] / norms)
        assert 0.8 < weight.grad.norm().item() <= 1.0005
