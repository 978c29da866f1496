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
from vestige.privacy import dp_sgd
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.privacy.taps import untappable_layers
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
        no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        tied = "untied" not in kind
        sizes = {"n_positions": 16, "n_embd": width, "n_layer": 2, "n_head": 2}
        return GPT2LMHeadModel(
            GPT2Config(**sizes, **no_dropout, **common, tie_word_embeddings=tied)
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


def make_model(kind: str, width: int = 48, dtype=torch.float64) -> HuggingFaceLanguageModel:
    """A tiny model whose norms' weights differ from one."""
    torch.manual_seed(0)
    model = HuggingFaceLanguageModel(network(kind, width), VOCABULARY)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.5)
    return model.to(dtype).train()


def make_batch(users: list[int] | None = None) -> Batch:
    """Six rows of two to six tokens, in which tokens repeat and one is the padding token."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 12, (6, LENGTH + 1), generator=generator)
    ids[0, 2] = ids[3, 1] = PAD
    lengths = torch.tensor([6, 2, 4, 5, 6, 3])
    padding = torch.arange(LENGTH) >= lengths[:, None]
    inputs = ids[:, :-1].masked_fill(padding, 0)
    targets = ids[:, 1:].masked_fill(padding, IGNORED)
    owners = None if users is None else torch.tensor(users)
    return Batch(inputs, targets, int(padding.sum()), lengths, owners)


def row_gradients(model, batch: Batch) -> list[list[torch.Tensor]]:
    """Gradients of each row alone, without padding."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    gradients = []
    for row, length in enumerate(batch.lengths.tolist()):
        logits, _ = model(batch.inputs[row : row + 1, :length], None)
        loss = cross_entropy(logits[0], batch.targets[row, :length], reduction="sum") / LENGTH
        row_gradient = torch.autograd.grad(loss, trainable, allow_unused=True)
        pairs = zip(row_gradient, trainable, strict=True)
        gradients.append([torch.zeros_like(p) if g is None else g for g, p in pairs])
    return gradients


def summed(rows: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    return [torch.stack(parts).sum(0) for parts in zip(*rows, strict=True)]


def run_step(model, batch: Batch, *, clip: float = 1.0, **settings):
    """Norms and the clipped sum, without noise."""
    step = DPSGDStep(
        **{"noise_multiplier": 0.0, "max_grad_norm": clip, "expected_units": 1} | settings,
        sequence_length=LENGTH,
    )
    step(model, batch, None)
    return torch.cat(step.norms), [p.grad.clone() for p in model.parameters() if p.requires_grad]


def check_against_definition(model, batch: Batch, units: list[list[int]], **settings) -> None:
    """Compare a step with the definition, with half of the units clipped.

    Losses are in float32, whatever the model is in.
    """
    rows_gradients = row_gradients(model, batch)
    gradients = [summed([rows_gradients[row] for row in rows]) for rows in units]
    norms = torch.stack([torch.nn.utils.get_total_norm(unit) for unit in gradients])
    clip = norms.median().item() * 1.0001
    step_norms, total = run_step(model, batch, clip=clip, **settings)
    torch.testing.assert_close(step_norms, norms, rtol=1e-6, atol=0)
    scales = (clip / norms).clamp(max=1.0)
    assert 0 < (scales < 1).sum() < len(scales)
    for index, gradient in enumerate(total):
        expected = sum(s * unit[index] for s, unit in zip(scales, gradients, strict=True))
        torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-6 * clip)


USERS = [7, 3, 9, 9, 7, 9]
UNIT_ROWS = {"sequence": [[row] for row in range(6)], "user": [[1], [0, 4], [2, 3, 5]]}
"""The rows of each unit of a batch."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
def test_model_clipping_matches_a_loop_over_sequences(kind, width):
    model = make_model(kind, WIDTHS[width])
    assert not untappable_layers(model)
    check_against_definition(model, make_batch(), UNIT_ROWS["sequence"])


def test_widths_cover_both_representations_of_gradients(monkeypatch):
    """Narrow layers form their gradients; wide ones keep the products."""
    shapes: dict[str, set[tuple[int, ...]]] = {}
    real = UnitGradients.norms

    def norms(self):
        shapes[width] = {
            tuple(p.shape) for p, gradient in self._gradients.items() if gradient.products
        }
        return real(self)

    monkeypatch.setattr(UnitGradients, "norms", norms)
    for width in WIDTHS:  # read above
        run_step(make_model("llama", WIDTHS[width]), make_batch())
    assert shapes["formed"] == {(265, 8)}  # the head
    assert {(96, 48), (48, 96), (265, 48)} <= shapes["gram"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama tied"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows_at_once", [None, 1, 2, 4])
def test_user_clipping_matches_a_loop_over_users(kind, width, rows_at_once):
    """Users with one, two and three rows; some do not fit into one pass."""
    settings = {"unit": "user", "physical_batch_size": rows_at_once}
    check_against_definition(
        make_model(kind, WIDTHS[width]), make_batch(users=USERS), UNIT_ROWS["user"], **settings
    )


TRAINED = {
    "only embeddings": lambda name: "embed" in name or "wte" in name or "wpe" in name,
    "only norms": lambda name: "norm" in name or "ln_" in name,
    "only biases": lambda name: name.endswith("bias"),
    "all but embeddings": lambda name: "embed" not in name and "wte" not in name,
    "the last layer": lambda name: ".1." in name,
}


@pytest.mark.slow
@pytest.mark.parametrize("part", TRAINED)
@pytest.mark.parametrize("kind", ["gpt2", "gpt2 untied", "llama", "llama tied"])
def test_frozen_parameters_do_not_count_in_the_norm(kind, part):
    model = make_model(kind)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(TRAINED[part](name))
    if not any(p.requires_grad for p in model.parameters()):
        return  # a Llama has no biases
    check_against_definition(model, make_batch(), UNIT_ROWS["sequence"])
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


def test_tokens_outside_the_batch_get_no_gradient():
    model = make_model("llama")
    batch = make_batch()
    run_step(model, batch)
    updated = model.network.model.embed_tokens.weight.grad.any(1).nonzero().flatten()
    assert set(updated.tolist()) <= set(batch.inputs.flatten().tolist()) - {PAD}


@pytest.mark.slow
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "llama tied"])
def test_activation_checkpointing_does_not_change_the_step(kind, reentrant):
    plain, recomputing = make_model(kind), make_model(kind)
    recomputing.network.activation_checkpointing_enable({"use_reentrant": reentrant})
    for expected, result in zip(
        run_step(plain, make_batch()), run_step(recomputing, make_batch()), strict=True
    ):
        torch.testing.assert_close(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama tied", "qwen3"])
@pytest.mark.parametrize("width", WIDTHS)
def test_half_precision_clips_the_gradients_that_it_adds(kind, width):
    """Norms are those of the gradients that are added, and near the exact ones."""
    exact, _ = run_step(make_model(kind, WIDTHS[width]), make_batch())
    model = make_model(kind, WIDTHS[width], torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        norms, _ = run_step(model, make_batch())
        torch.testing.assert_close(norms.double(), exact, rtol=0.1, atol=0)
        for row in range(6):
            _, gradient = run_step(model, make_batch().select(torch.tensor([row])), clip=1e-2)
            total = torch.nn.utils.get_total_norm(gradient)
            torch.testing.assert_close(total, torch.tensor(1e-2), rtol=1e-4, atol=0)


def test_gradients_are_freed_after_a_step(monkeypatch):
    """Activations would otherwise stay until Python looks for cycles, if it can see this one."""
    references = []

    class Watched(UnitGradients):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments)
            references.append(weakref.ref(self))

    monkeypatch.setattr(dp_sgd, "UnitGradients", Watched)
    run_step(make_model("llama tied"), make_batch())
    assert [reference() for reference in references] == [None]


class Doubled(nn.Linear):
    """A linear layer with a custom `forward`."""

    def forward(self, inputs):
        return super().forward(inputs) * 2


class Counted(Doubled):
    """A custom layer with a buffer."""

    def __init__(self, *sizes: int, bias: bool) -> None:
        super().__init__(*sizes, bias=bias)
        self.register_buffer("seen", torch.zeros(1))


class Patched(Doubled):
    """A layer whose instance overrides `forward`, so that it cannot be tapped."""

    def __init__(self, *sizes: int, bias: bool) -> None:
        super().__init__(*sizes, bias=bias)
        self.__dict__["forward"] = lambda inputs: nn.functional.linear(inputs, self.weight) * 2


def with_layers_of(kind: type[nn.Linear]) -> HuggingFaceLanguageModel:
    model = make_model("llama")
    for layer in model.network.model.layers:
        layer.mlp.up_proj = kind(48, 96, bias=False).double()
    return model


@pytest.mark.parametrize(("unit", "units"), UNIT_ROWS.items())
@pytest.mark.parametrize("kind", [Doubled, Counted, Patched])
def test_custom_layers_that_keep_rows_apart_match_the_definition(kind, unit, units):
    model = with_layers_of(kind)
    assert bool(untappable_layers(model)) == (kind is Patched)
    users = USERS if unit == "user" else None
    check_against_definition(model, make_batch(users=users), units, unit=unit)


@pytest.mark.parametrize(("unit", "units"), UNIT_ROWS.items())
def test_gru_clipping_matches_the_definition(unit, units):
    words = WordVocabulary(("<unk>", "<eos>", *map(str, range(10))))
    config = GRUConfig(layers=2, embedding_size=5, hidden_size=6, initial_range=1.0)
    model = new_model(words, config, seed=0).double().train()
    assert [name for name, _ in untappable_layers(model)] == ["gru"]
    check_against_definition(model, make_batch(users=USERS), units, unit=unit)


class Mixing(nn.Linear):
    """A layer in which each row reads the others."""

    def forward(self, inputs):
        return super().forward(inputs - inputs.mean(0, keepdim=True))


class Flat(nn.BatchNorm1d):
    """A layer of torch in which each row reads the others."""

    def forward(self, inputs):
        return super().forward(inputs.flatten(0, 1)).view_as(inputs)


@pytest.mark.parametrize(
    "layer", [Mixing(48, 96, bias=False), nn.Sequential(nn.Linear(48, 96, bias=False), Flat(96))]
)
def test_layers_that_mix_rows_are_refused_by_name(layer):
    model = make_model("llama")
    model.network.model.layers[1].mlp.up_proj = layer.double()
    with pytest.raises(TrainingError, match=r"layers.1.mlp.up_proj.* is a (Mixing|Flat), whose"):
        run_step(model, make_batch())
    assert not any("forward" in module.__dict__ for module in model.modules())


class Moved(nn.Embedding):
    """An embedding that looks up other rows than its input names."""

    def forward(self, ids):
        return super().forward((ids + 1) % self.num_embeddings)


class Scaled(nn.Embedding):
    """An embedding that scales its output."""

    def forward(self, ids):
        return super().forward(ids) * 3


def test_untappable_layers_are_recognized():
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
