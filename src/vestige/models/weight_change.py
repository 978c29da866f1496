"""How far an update moved the weights of a model, and models that move as far."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from peft.tuners.lora.layer import LoraLayer
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import ModulesToSaveWrapper
from torch import Tensor, nn

from vestige.models.hugging_face import HuggingFaceLanguageModel


@torch.no_grad()
def weight_change(before: nn.Module, after: nn.Module) -> float:
    """Euclidean norm of the difference of two models' weights.

    Of an adapter it is the norm of what it adds to its base, layer by layer. Rows that only one
    model has, such as those of new tokens, do not count.

    Args:
        before: the model before the update; of an adapter its base.
        after: the model after it.

    Returns:
        NaN for an adapter that adds no matrices to weights.
    """
    if isinstance(after, HuggingFaceLanguageModel) and after.adapted:
        parts = _added(after.network)
    else:
        parts = _moved(before, after)
    return math.sqrt(sum(float(part.float().square().sum()) for part in parts))


@torch.no_grad()
def stretch(before: nn.Module, after: nn.Module, by: float) -> None:
    """Move a model's weights `by` times as far from those before it, in place.

    Args:
        before: the model before the update; of an adapter its base.
        after: the model after it; an adapter adds `by` times as much.
        by: more than 0.
    """
    if isinstance(after, HuggingFaceLanguageModel) and after.adapted:
        for layer in after.network.modules():
            if isinstance(layer, LoraLayer):
                layer.scale_layer(by)
            elif isinstance(layer, ModulesToSaveWrapper):
                for name in layer.active_adapters:
                    _stretch(layer.original_module, layer.modules_to_save[name], by)
    else:
        _stretch(before, after, by)


def _stretch(before: nn.Module, after: nn.Module, by: float) -> None:
    for old, new in _shared(before, after):
        new.add_(new - old.to(new.dtype), alpha=by - 1)


def _added(network: nn.Module) -> Iterator[Tensor]:
    """What an adapter adds, a layer at a time; a tensor of NaN where that is no matrix."""
    for layer in network.modules():
        if isinstance(layer, BaseTunerLayer):
            layers: Any = layer
            for name in layer.active_adapters:
                known = hasattr(layers, "get_delta_weight")
                yield layers.get_delta_weight(name) if known else torch.tensor(math.nan)
        elif isinstance(layer, ModulesToSaveWrapper):
            for name in layer.active_adapters:
                yield from _moved(layer.original_module, layer.modules_to_save[name])


def _moved(before: nn.Module, after: nn.Module) -> Iterator[Tensor]:
    """Differences of the parameters of one name, in the part that both have."""
    return (new.float() - old.float() for old, new in _shared(before, after))


def _shared(before: nn.Module, after: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Old and new weights of each parameter of one name, in the part that both have."""
    earlier = dict(before.named_parameters())
    for name, parameter in after.named_parameters():
        if name in earlier:
            old = earlier[name].to(parameter.device)
            sizes = zip(old.shape, parameter.shape, strict=True)
            part = tuple(slice(min(a, b)) for a, b in sizes)
            yield old[part], parameter[part]
