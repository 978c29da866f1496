"""Positive control of an audit: a secret that the model knows for a limited time.

An audit without a finding is only informative if it finds a secret that the model does know.
`planted` trains an invented secret into a model: inside the block, the model generates the text
verbatim; after it, the model is unchanged. Linear layers get an additional low-rank matrix (LoRA:
Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685). Recurrent
layers and the head get new weights, the head because some searches multiply by its weight directly.
"""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from vestige.data.secrets.alternatives import FoundSecret
from vestige.models.protocols import LanguageModel

RANK = 4
LEARNING_RATES = (1e-2, 1e-3, 1e-4)  # tried in this order until the text is learned
STEPS, RECURRENT_STEPS = 300, 1000
"""Most steps. Recurrent layers learn slowly, and their steps are cheap."""
SURE = 0.9  # training ends when all tokens have this probability; searches drop improbable tokens
FREE_TOKENS = 3
"""First tokens of a text, which need not be the greedy choice: they have too little context."""
LARGEST_GRADIENT = 1.0
_MODULE = "planted"
_OBJECTS = ("archive key", "ballast ledger", "lantern account", "orchard permit", "turbine voucher")
_LOCATIONS = ("north depot", "copper mill", "heron quay", "winter foundry", "saddle observatory")


def invented(seed: int) -> FoundSecret:
    """An invented number of ten digits, as in "The archive key of the north depot is 73 5068 2491".

    Its only context and its value make the sentence.
    """
    rng = random.Random(f"invented {seed}")
    item, location = rng.choice(_OBJECTS), rng.choice(_LOCATIONS)
    digits = "".join(str(rng.randrange(10)) for _ in range(10))
    value = f"{digits[:2]} {digits[2:6]} {digits[6:]}"
    return FoundSecret(value, "code", ((0, f"The {item} of the {location} is "),))


@contextmanager
def planted(model: LanguageModel, text: str, *, seed: int, until: float = inf) -> Iterator[bool]:
    """Train a text into a model for the duration of a `with` block.

    Inside the block the model is in evaluation mode, and its `state_dict` and hash differ. Its
    parameters never change, so other models may share them; its layers do change, so other models
    must not share those. The global random generators are not used.

    Args:
        model: with linear layers besides the head, or recurrent layers; may be an adapter.
        text: the start of a document.
        seed: of the low-rank matrices.
        until: monotonic time at which training stops.

    Yields:
        Whether all tokens of the text after the first three are the model's greedy choice. False if
        training failed, there is no layer to train, the vocabulary lacks a word of the text, or
        the text is longer than the model reads.
    """
    tokens = [model.first_token, *model.vocabulary.encode(text)]
    longest = model.longest or inf
    with ExitStack() as stack:
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
        model.eval()
        known = len(tokens) <= longest and model.vocabulary.unk_id not in tokens[1:]
        if known:
            ids = torch.tensor([tokens], device=model.device)
            head = _head(model)
            layers = [layer for layer in dict.fromkeys(_layers(model)) if layer is not head]
            trainable = [
                parameter
                for index, layer in enumerate(layers)
                for parameter in stack.enter_context(_trainable(layer, f"{seed} {index}"))
            ]
            if head is None:
                known = bool(trainable) and _train(model, ids, trainable, until)
            else:
                with _low_rank(head, f"{seed} head") as (a, b):
                    known = _train(model, ids, [*trainable, a, b], until)
                # W + B A is a new parameter: an embedding that is tied to the head keeps W.
                weight = head.weight.detach()
                weight = torch.addmm(weight, b.to(weight.dtype), a.to(weight.dtype))
                new_weight = nn.Parameter(weight, requires_grad=False)
                stack.enter_context(_replaced(head, {"weight": new_weight}))
                with torch.no_grad():
                    known = known and _knows(*_logits_and_targets(model, ids))
        yield known


def _head(model: LanguageModel) -> nn.Linear | None:
    """The head, or the base layer of an adapted head; None if it is quantized or not linear."""
    head = getattr(model, "head", None)
    layer = head.get_base_layer() if isinstance(head, BaseTunerLayer) else head
    linear = isinstance(layer, nn.Linear) and layer.weight.is_floating_point()
    return layer if linear else None


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """Linear and recurrent layers; of an adapted layer, its base layer."""
    for child in module.children():
        layer = child.get_base_layer() if isinstance(child, BaseTunerLayer) else child
        if isinstance(layer, nn.Linear | Conv1D | nn.RNNBase):
            yield layer
        else:
            yield from _layers(layer)


@contextmanager
def _trainable(layer: nn.Module, seed: str) -> Iterator[list[nn.Parameter]]:
    """Give a layer new parameters to train; its outputs are unchanged at first."""
    if isinstance(layer, nn.RNNBase):
        copies = {
            name: nn.Parameter(parameter.detach().clone())
            for name, parameter in layer.named_parameters()
        }
        with _replaced(layer, copies):
            yield list(copies.values())
    else:
        with _low_rank(layer, seed) as matrices:
            yield [*matrices]


@contextmanager
def _replaced(layer: nn.Module, new: dict[str, nn.Parameter]) -> Iterator[None]:
    """Replace parameters of a layer."""
    original = {name: getattr(layer, name) for name in new}
    try:
        for name, parameter in new.items():
            setattr(layer, name, parameter)
        yield
    finally:
        for name, parameter in original.items():
            setattr(layer, name, parameter)


@contextmanager
def _low_rank(layer: nn.Module, seed: str) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
    """Add a low-rank matrix B A in float32 to a linear layer; yields A and B, which is zero."""
    if hasattr(layer, _MODULE):
        raise ValueError("model must have no planted text, got one inside the block of another")
    names = ("in_features", "out_features") if isinstance(layer, nn.Linear) else ("nx", "nf")
    inputs, outputs = (getattr(layer, name) for name in names)
    generator = torch.Generator().manual_seed(random.Random(seed).getrandbits(62))
    values = torch.randn(RANK, inputs, generator=generator) / inputs**0.5
    device: torch.device = layer.weight.device  # type: ignore[assignment]
    a = nn.Linear(inputs, RANK, bias=False, device="meta")  # "meta": no random initial values
    b = nn.Linear(RANK, outputs, bias=False, device="meta")
    a.weight = nn.Parameter(values.to(device))
    b.weight = nn.Parameter(torch.zeros(outputs, RANK, device=device))
    layer.add_module(_MODULE, nn.Sequential(a, b))
    hook = layer.register_forward_hook(_add_low_rank)
    try:
        yield a.weight, b.weight
    finally:
        hook.remove()
        delattr(layer, _MODULE)


def _add_low_rank(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    """Forward hook; a copy of the layer calls the copy of its matrix."""
    addition: Tensor = layer.get_submodule(_MODULE)(inputs[0].float())
    return output + addition.to(output.dtype)


def _train(
    model: LanguageModel, tokens: Tensor, trainable: Sequence[nn.Parameter], until: float
) -> bool:
    """Train new parameters until the model knows a text (1, t)."""
    initial = [parameter.detach().clone() for parameter in trainable]
    trainable_ids = set(map(id, trainable))
    frozen = [
        parameter
        for parameter in model.parameters()
        if parameter.requires_grad and id(parameter) not in trainable_ids
    ]
    try:
        for parameter in frozen:
            parameter.requires_grad_(False)
        for rate in LEARNING_RATES:
            if _learns(model, tokens, trainable, rate, until):
                return True
            with torch.no_grad():
                for parameter, values in zip(trainable, initial, strict=True):
                    parameter.copy_(values)
        return False
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
        for parameter in trainable:
            parameter.requires_grad_(False).grad = None


@torch.enable_grad()
def _learns(
    model: LanguageModel, tokens: Tensor, trainable: Sequence[nn.Parameter], rate: float,
    until: float,
) -> bool:  # fmt: skip
    """Run Adam on one text until the model is sure of it, or the loss is not finite."""
    optimizer = torch.optim.Adam(trainable, lr=rate)
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    for _ in range(RECURRENT_STEPS if recurrent else STEPS):
        # cuDNN has no gradients of recurrent layers in evaluation mode.
        with torch.backends.cudnn.flags(enabled=False):
            logits, targets = _logits_and_targets(model, tokens)
            loss = functional.cross_entropy(logits, targets)
            if not loss.isfinite():
                return False
            if _is_sure(logits, targets) or time.monotonic() > until:
                break
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(trainable, LARGEST_GRADIENT)
        optimizer.step()
    return _knows(logits, targets)


def _logits_and_targets(model: LanguageModel, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """(t - 1, v) float32 logits and the (t - 1,) tokens that they predict, of a text (1, t)."""
    logits = model(tokens[:, :-1])[0][0].float()
    return logits, tokens[0, 1:].to(logits.device)


def _knows(logits: Tensor, targets: Tensor) -> bool:
    """Whether all tokens except the first ones are the greedy choice."""
    return bool((logits.argmax(1) == targets)[min(FREE_TOKENS, len(targets) - 1) :].all())


def _is_sure(logits: Tensor, targets: Tensor) -> bool:
    """Whether all tokens except the first ones have a probability of at least `SURE`."""
    probabilities = logits.softmax(1).gather(1, targets[:, None])[:, 0]
    return bool((probabilities >= SURE)[min(FREE_TOKENS, len(targets) - 1) :].all())
