"""Sizes of networks before they are built.

A configuration of a few numbers can stand for more weights than any machine holds. Built on
torch's meta device, a network has all its shapes and no numbers.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from vestige.memory import free_memory, require_room

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
                    f"{name} has the shape {found}; {tuple(wanted[name].shape)} is needed"
                )
    _require_room(wanted)


def held_numbers(weights: Sequence[Path]) -> Counter[str]:
    """How many numbers safetensors files hold, by their type ("F32", "BF16", ...)."""
    held: Counter[str] = Counter()
    for path in weights:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                tensor = file.get_slice(name)
                held[tensor.get_dtype()] += prod(tensor.get_shape())
    return held


def require_filled(
    held: int,
    build: Callable[[], nn.Module],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> None:
    """Raise ValueError unless files hold about as many numbers as a network has, and it has room.

    Args:
        held: numbers in the files, whose names of tensors need not be the network's.
        build: makes the network.
        dtype: of the weights in memory.
        device: where they go; None: over all GPUs, and what these cannot hold on the host.
    """
    wanted = shapes(build)
    parameters = {id(t): t.numel() for t in wanted.values() if isinstance(t, nn.Parameter)}
    if sum(parameters.values()) > _SPARE * held:
        raise ValueError(
            f"its config.json needs {sum(parameters.values()):,} weights; its files have {held:,}"
        )
    _require_room(wanted, dtype=dtype, free=_free(device))


def _free(device: torch.device | None) -> int:
    """Bytes free on a device; without one, on all GPUs and the host together."""
    if device is not None and device.type != "cuda":
        return free_memory()
    places = range(torch.cuda.device_count()) if device is None else [device]
    on_gpus = sum(torch.cuda.mem_get_info(place)[0] for place in places)
    return on_gpus + (free_memory() if device is None else 0)


def _require_room(
    tensors: Mapping[str, Tensor],
    *,
    dtype: torch.dtype = torch.float32,
    free: int | None = None,
) -> None:
    numbers = sum({id(tensor): tensor.numel() for tensor in tensors.values()}.values())
    require_room(numbers * dtype.itemsize, f"a model of {numbers:,} weights", free=free)
