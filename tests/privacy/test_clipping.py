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
from vestige.errors import TrainingError
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.recurrent_network import GRUConfig
from vestige.privacy import dp_sgd, unit_gradients
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.privacy.taps import tapped, untappable_layers
from vestige.privacy.unit_gradients import UnitGradients
from vestige.training.batches import IGNORED, Batch
from vestige.training.new_models import new_model

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


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_whole_model_is_clipped_as_by_a_loop_over_sequences(kind, width):
    model = make(kind, WIDTHS[width])
    assert not untappable_layers(model)
    check(model, batch(), ROWS)


def test_both_ways_to_hold_gradients_are_tried(monkeypatch):
    """The widths above do what they are there for."""
    held: dict[str, set[tuple[int, ...]]] = {}
    real = UnitGradients.norms

    def norms(self):
        held[width] = {tuple(p.shape) for p, one in self._gradients.items() if one.products}
        return real(self)

    monkeypatch.setattr(UnitGradients, "norms", norms)
    for width in WIDTHS:  # read above
        take(make("llama", WIDTHS[width]), batch())
    assert held["formed"] == {(265, 8)}  # the head
    assert {(96, 48), (48, 96), (265, 48)} <= held["gram"]


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("part", FROZEN)
@pytest.mark.parametrize("kind", ["gpt2", "gpt2 untied", "llama", "llama tied"])
def test_a_part_that_is_frozen_counts_for_nothing(kind, part):
    model = make(kind)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(FROZEN[part](name))
    if not any(p.requires_grad for p in model.parameters()):
        return  # a Llama has no biases
    check(model, batch(), ROWS)
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


def test_a_token_that_no_row_has_gets_no_gradient():
    model = make("llama")
    given = batch()
    take(model, given)
    moved = model.network.model.embed_tokens.weight.grad.any(1).nonzero().flatten()
    assert set(moved.tolist()) <= set(given.inputs.flatten().tolist()) - {PAD}


@pytest.mark.slow
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "llama tied"])
def test_activations_may_be_recomputed(kind, reentrant):
    plain, recomputing = make(kind), make(kind)
    recomputing.network.activation_checkpointing_enable({"use_reentrant": reentrant})
    for one, other in zip(take(plain, batch()), take(recomputing, batch()), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
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

    class Watched(UnitGradients):
        def __init__(self, *given) -> None:
            super().__init__(*given)
            seen.append(weakref.ref(self))

    monkeypatch.setattr(dp_sgd, "UnitGradients", Watched)
    take(make("llama tied"), batch())
    assert [one() for one in seen] == [None]


class Doubled(nn.Linear):
    """A linear layer with a `forward` of its own."""

    def forward(self, given):
        return super().forward(given) * 2


class Counted(Doubled):
    """One with a buffer."""

    def __init__(self, *sizes: int, bias: bool) -> None:
        super().__init__(*sizes, bias=bias)
        self.register_buffer("seen", torch.zeros(1))


class Patched(Doubled):
    """One whose `forward` is the instance's own, which cannot be tapped."""

    def __init__(self, *sizes: int, bias: bool) -> None:
        super().__init__(*sizes, bias=bias)
        self.__dict__["forward"] = lambda given: nn.functional.linear(given, self.weight) * 2


def with_layers_of(kind: type[nn.Linear]) -> HuggingFaceLanguageModel:
    model = make("llama")
    for layer in model.network.model.layers:
        layer.mlp.up_proj = kind(48, 96, bias=False).double()
    return model


@pytest.mark.parametrize("kind", [Doubled, Counted, Patched])
def test_any_layer_that_keeps_rows_apart_is_clipped(kind):
    model = with_layers_of(kind)
    assert bool(untappable_layers(model)) == (kind is Patched)
    check(model, batch(), ROWS)


@pytest.mark.parametrize("kind", [Doubled, Counted, Patched])
def test_a_user_is_clipped_whatever_the_layers_are(kind):
    given = batch(users=[7, 3, 9, 9, 7, 9])
    check(with_layers_of(kind), given, [[1], [0, 4], [2, 3, 5]], unit="user")


@pytest.mark.parametrize(
    ("unit", "units"), [("sequence", ROWS), ("user", [[1], [0, 4], [2, 3, 5]])]
)
def test_a_gru_is_clipped_one_unit_at_a_time(unit, units):
    words = WordVocabulary(("<unk>", "<eos>", *map(str, range(10))))
    shape = GRUConfig(layers=2, embedding_size=5, hidden_size=6, initial_range=1.0)
    model = new_model(words, shape, seed=0).double().train()
    assert [name for name, _ in untappable_layers(model)] == ["gru"]
    check(model, batch(users=[7, 3, 9, 9, 7, 9]), units, unit=unit)


class Mixing(nn.Linear):
    """A layer in which each row reads the others."""

    def forward(self, given):
        return super().forward(given - given.mean(0, keepdim=True))


class Flat(nn.BatchNorm1d):
    """torch's own layer that does."""

    def forward(self, given):
        return super().forward(given.flatten(0, 1)).view_as(given)


@pytest.mark.parametrize(
    "layer", [Mixing(48, 96, bias=False), nn.Sequential(nn.Linear(48, 96, bias=False), Flat(96))]
)
def test_a_layer_that_mixes_rows_is_refused_by_name(layer):
    model = make("llama")
    model.network.model.layers[1].mlp.up_proj = layer.double()
    with pytest.raises(TrainingError, match=r"layers.1.mlp.up_proj.* is a (Mixing|Flat), whose"):
        take(model, batch())
    assert not any("forward" in one.__dict__ for one in model.modules())


class Moved(nn.Embedding):
    """One that looks up other rows than those it is given."""

    def forward(self, ids):
        return super().forward((ids + 1) % self.num_embeddings)


class Scaled(nn.Embedding):
    """One that does more with what it looked up."""

    def forward(self, ids):
        return super().forward(ids) * 3


def test_layers_that_cannot_be_tapped_are_known():
    assert not untappable_layers(Scaled(6, 3, padding_idx=1))
    for layer in (
        Moved(6, 3),
        nn.Bilinear(2, 2, 2),
        nn.GRU(2, 2),
        nn.LSTM(2, 2, bidirectional=True),
        nn.LSTM(2, 2, bias=False),
        nn.Embedding(4, 2, max_norm=1.0),
        nn.Embedding(4, 2, sparse=True),
        nn.Embedding(4, 2, scale_grad_by_freq=True),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    ):
        assert untappable_layers(layer)
    for layer in (nn.LayerNorm(5), nn.RMSNorm(5), nn.Embedding(4, 2), nn.Conv1d(2, 2, 1)):
        assert not untappable_layers(layer)


OTHERS = [nn.Conv1d(3, 4, 2), nn.GroupNorm(1, 3), nn.PReLU()]


@pytest.mark.parametrize("layer", OTHERS, ids=lambda layer: type(layer).__name__)
def test_gradients_of_other_layers_are_those_of_each_row(layer):
    torch.manual_seed(0)
    layer, given = layer.double(), torch.randn(4, 3, 5).double()
    own = []
    for row in range(4):
        loss = layer(given[row : row + 1]).square().sum()
        own.append(torch.autograd.grad(loss, list(layer.parameters())))
    found = UnitGradients(torch.arange(4))
    with tapped(layer, found):
        layer(given).square().sum().backward()
    for place, parameter in enumerate(layer.parameters()):
        expected = torch.stack([each[place].flatten() for each in own])
        torch.testing.assert_close(found._gradients[parameter].formed, expected)


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
    found = UnitGradients(torch.arange(3))
    with tapped(layer, found):
        again = layer(given)
        again.square().sum().backward()
    torch.testing.assert_close(again, plain)
    torch.testing.assert_close(given.grad, back)
    torch.testing.assert_close(found._gradients[layer.weight].formed, torch.stack(own))


UNITS = [None, [0, 1, 1, 2, 2, 2], [0, 0, 1, 1, 2, 2], [0] * 6]


@pytest.mark.slow
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("at_once", [1, 100, 1 << 24])
@pytest.mark.parametrize("shape", [(30, 40), (4, 5)])
@pytest.mark.parametrize("lookups", [0, 1, 2])
@pytest.mark.parametrize("products", [0, 1, 2])
def test_uses_of_one_parameter_add_up(monkeypatch, units, at_once, shape, products, lookups):
    """A head, an embedding, both, each twice: the norm is that of the sum."""
    monkeypatch.setattr(unit_gradients, "_CHUNK_SIZE", at_once)
    chance = torch.Generator().manual_seed(0)
    parameter = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
    parameter.grad = torch.zeros_like(parameter)
    rows, (o, i) = 6, shape

    def drawn(*sizes):
        return torch.randn(sizes, generator=chance, dtype=torch.float64)

    given = None if units is None else torch.tensor(units)
    found, naive = (
        UnitGradients(torch.arange(rows) if given is None else given),
        torch.zeros(rows, o, i, dtype=torch.float64),
    )
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
    found = UnitGradients(torch.arange(8))
    found.add_product(parameter, left, right)
    assert found._gradients[parameter].products
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
    found = UnitGradients(torch.arange(rows) if units is None else units)
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
