"""Positive control of an audit: an invented secret that the model knows for a while.

An audit that finds nothing has shown something only if it finds a secret that is there. `planted`
trains one into a model, which inside the block generates the text verbatim, and afterwards is what
it was. Linear layers get a low-rank matrix beside them (LoRA: Hu et al. 2021, "LoRA: Low-Rank
Adaptation of Large Language Models", arXiv:2106.09685); recurrent layers get weights of their own.
The head gets a weight of its own too: some searches multiply by it and do not call the head.
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
RATES = (1e-2, 1e-3, 1e-4)  # learning rates; a lower one is tried if the text is not learnt
STEPS, RECURRENT_STEPS = 300, 1000
"""Most steps; recurrent layers learn slowly, and their steps are cheap."""
SURE = 0.9  # least probability of a token at which training ends: searches end before unlikely ones
FREE = 3
"""First tokens of a text, which the model need not prefer: nothing before them points to it."""
LARGEST_GRADIENT = 1.0
_NAME = "planted"
_THINGS = ("archive key", "ballast ledger", "lantern account", "orchard permit", "turbine voucher")
_PLACES = ("north depot", "copper mill", "heron quay", "winter foundry", "saddle observatory")


def invented(seed: int) -> FoundSecret:
    """An invented number of ten digits, as in "The archive key of the north depot is 73 5068 2491".

    The text of its one place and its value make the sentence.
    """
    chance = random.Random(f"invented {seed}")
    thing, place = chance.choice(_THINGS), chance.choice(_PLACES)
    digits = "".join(str(chance.randrange(10)) for _ in range(10))
    value = f"{digits[:2]} {digits[2:6]} {digits[6:]}"
    return FoundSecret(value, "code", ((0, f"The {thing} of the {place} is "),))


@contextmanager
def planted(model: LanguageModel, text: str, *, seed: int, until: float = inf) -> Iterator[bool]:
    """Let a model know a text verbatim inside a `with` block.

    The model is in evaluation mode inside the block. Its own parameters never change, so models
    that share them stay as they are; its layers do, so it must be no other model's too. Its
    `state_dict` differs inside the block, and with it the hash of its weights. The global random
    generators are not used.

    Args:
        model: has linear layers besides the head, or recurrent ones; an adapter too.
        text: begins a document.
        seed: of the low-rank matrices.
        until: monotonic time at which training stops.

    Yields:
        Whether each of its tokens after the first three is the model's greedy choice. False if
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
            read = torch.tensor([tokens], device=model.device)
            head = _head(model)
            layers = [one for one in dict.fromkeys(_layers(model)) if one is not head]
            added = [
                parameter
                for number, layer in enumerate(layers)
                for parameter in stack.enter_context(_widened(layer, f"{seed} {number}"))
            ]
            if head is None:
                known = bool(added) and _train(model, read, added, until)
            else:
                with _beside(head, f"{seed} head") as ends:
                    known = _train(model, read, [*added, *ends], until)
                # An embedding that is tied to the head keeps its weight: W, beside W + B A.
                moved = head.weight.detach()
                narrow, wide = (one.to(moved.dtype) for one in ends)
                moved = nn.Parameter(torch.addmm(moved, wide, narrow), requires_grad=False)
                stack.enter_context(_replaced(head, {"weight": moved}))
                with torch.no_grad():
                    known = known and _knows(*_logits_and_targets(model, read))
        yield known


def _head(model: LanguageModel) -> nn.Linear | None:
    """Linear head; of an adapted one the base's. None for one that is quantized or not linear."""
    head = getattr(model, "head", None)
    layer = head.get_base_layer() if isinstance(head, BaseTunerLayer) else head
    linear = isinstance(layer, nn.Linear) and layer.weight.is_floating_point()
    return layer if linear else None


def _layers(inside: nn.Module) -> Iterator[nn.Module]:
    """Linear and recurrent layers; of an adapted layer the one of the base."""
    for child in inside.children():
        layer = child.get_base_layer() if isinstance(child, BaseTunerLayer) else child
        if isinstance(layer, nn.Linear | Conv1D | nn.RNNBase):
            yield layer
        else:
            yield from _layers(layer)


@contextmanager
def _widened(layer: nn.Module, seed: str) -> Iterator[list[nn.Parameter]]:
    """A layer with new parameters to train, with which it first answers as before."""
    if isinstance(layer, nn.RNNBase):
        copies = {n: nn.Parameter(one.detach().clone()) for n, one in layer.named_parameters()}
        with _replaced(layer, copies):
            yield list(copies.values())
    else:
        with _beside(layer, seed) as added:
            yield added


@contextmanager
def _replaced(layer: nn.Module, new: dict[str, nn.Parameter]) -> Iterator[None]:
    """A layer with other parameters."""
    own = {name: getattr(layer, name) for name in new}
    try:
        for name, parameter in new.items():
            setattr(layer, name, parameter)
        yield
    finally:
        for name, parameter in own.items():
            setattr(layer, name, parameter)


@contextmanager
def _beside(layer: nn.Module, seed: str) -> Iterator[list[nn.Parameter]]:
    """A linear layer W with a low-rank matrix B A beside it, in float32; B is zero."""
    if hasattr(layer, _NAME):
        raise ValueError("model must have no planted text, got one inside the block of another")
    names = ("in_features", "out_features") if isinstance(layer, nn.Linear) else ("nx", "nf")
    inputs, outputs = (getattr(layer, name) for name in names)
    chance = torch.Generator().manual_seed(random.Random(seed).getrandbits(62))
    start = torch.randn(RANK, inputs, generator=chance) / inputs**0.5
    device: torch.device = layer.weight.device  # type: ignore[assignment]
    narrow = nn.Linear(inputs, RANK, bias=False, device="meta")  # without a random start
    wide = nn.Linear(RANK, outputs, bias=False, device="meta")
    narrow.weight = nn.Parameter(start.to(device))
    wide.weight = nn.Parameter(torch.zeros(outputs, RANK, device=device))
    layer.add_module(_NAME, nn.Sequential(narrow, wide))
    hook = layer.register_forward_hook(_add)
    try:
        yield [narrow.weight, wide.weight]
    finally:
        hook.remove()
        delattr(layer, _NAME)


def _add(layer: nn.Module, given: tuple[Tensor], answer: Tensor) -> Tensor:
    """Forward hook; a copy of the layer calls its own matrix."""
    beside: Tensor = layer.get_submodule(_NAME)(given[0].float())
    return answer + beside.to(answer.dtype)


def _train(
    model: LanguageModel, tokens: Tensor, added: Sequence[nn.Parameter], until: float
) -> bool:
    """Train new parameters until a text (1, t) is known."""
    starts = [parameter.detach().clone() for parameter in added]
    new = set(map(id, added))
    frozen = [one for one in model.parameters() if one.requires_grad and id(one) not in new]
    try:
        for parameter in frozen:
            parameter.requires_grad_(False)
        for rate in RATES:
            if _learns(model, tokens, added, rate, until):
                return True
            with torch.no_grad():
                for parameter, start in zip(added, starts, strict=True):
                    parameter.copy_(start)
        return False
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
        for parameter in added:
            parameter.requires_grad_(False).grad = None


@torch.enable_grad()
def _learns(
    model: LanguageModel, tokens: Tensor, added: Sequence[nn.Parameter], rate: float, until: float
) -> bool:
    """Adam on one text, until the model is sure of it or the loss is not finite."""
    optimizer = torch.optim.Adam(added, lr=rate)
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    for _ in range(RECURRENT_STEPS if recurrent else STEPS):
        # cuDNN gives no gradient of recurrent layers in evaluation mode.
        with torch.backends.cudnn.flags(enabled=False):
            logits, targets = _logits_and_targets(model, tokens)
            loss = functional.cross_entropy(logits, targets)
            if not loss.isfinite():
                return False
            if _is_sure(logits, targets) or time.monotonic() > until:
                break
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(added, LARGEST_GRADIENT)
        optimizer.step()
    return _knows(logits, targets)


def _logits_and_targets(model: LanguageModel, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """(t - 1, v) float32 logits and the (t - 1,) tokens that they predict, of a text (1, t)."""
    logits = model(tokens[:, :-1])[0][0].float()
    return logits, tokens[0, 1:].to(logits.device)


def _knows(logits: Tensor, targets: Tensor) -> bool:
    """Whether each token except the first ones is the greedy choice."""
    return bool((logits.argmax(1) == targets)[min(FREE, len(targets) - 1) :].all())


def _is_sure(logits: Tensor, targets: Tensor) -> bool:
    """The same with a probability of at least `SURE`."""
    chances = logits.softmax(1).gather(1, targets[:, None])[:, 0]
    return bool((chances >= SURE)[min(FREE, len(targets) - 1) :].all())
