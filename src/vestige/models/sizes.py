"""Sizes of networks before they are built.

A configuration of a few numbers can stand for more weights than any machine holds. Built on
torch's meta device, a network has all its shapes and no numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from vestige.memory import require_room

MOST_LAYERS, WIDEST = 1_000, 2**20
_SPARE = 2  # what a file may lack, such as a pooler, is refused or drawn by whoever reads it


def shapes(build: Callable[[], nn.Module]) -> dict[str, Tensor]:
    """Shapes of a network's weights and buffers, without allocating them."""
    with torch.device("meta"):
        network = build()
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def require_room_for(build: Callable[[], nn.Module]) -> None:
    """Raise ValueError unless a network's weights find room in memory.

    Args:
        build: makes the network.
    """
    _require_room(shapes(build))


def require_fit(weights: Path, build: Callable[[], nn.Module]) -> None:
    """Raise ValueError unless the tensors in a file have the shapes of a network's, and room.

    Nothing of the network is made: a file of a few bytes cannot ask for more memory than it fills.

    Args:
        weights: a safetensors file.
        build: makes the network.
    """
    wanted = shapes(build)
    with safe_open(weights, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118
            found = tuple(file.get_slice(name).get_shape())
            if name in wanted and found != tuple(wanted[name].shape):
                raise ValueError(
                    f"{name} has the shape {found}, where {tuple(wanted[name].shape)} is needed"
                )
    _require_room(wanted)


def require_filled(weights: Sequence[Path], build: Callable[[], nn.Module]) -> None:
    """Raise ValueError unless files hold about as many numbers as a network has, and it has room.

    Args:
        weights: safetensors files, whose names of tensors need not be the network's.
        build: makes the network.
    """
    wanted, held = shapes(build), 0
    for path in weights:
        with safe_open(path, framework="pt") as file:
            held += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    parameters = {id(t): t.numel() for t in wanted.values() if isinstance(t, nn.Parameter)}
    if sum(parameters.values()) > _SPARE * held:
        raise ValueError(
            f"its weights do not fit its config.json, which needs {sum(parameters.values()):,} "
            f"numbers where its files hold {held:,}"
        )
    _require_room(wanted)


def _require_room(tensors: Mapping[str, Tensor]) -> None:
    size = sum({id(tensor): tensor.nbytes for tensor in tensors.values()}.values())
    require_room(size, f"a model of {size // 4:,} weights")
