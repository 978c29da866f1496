"""How much memory there is and was used, what the allocator keeps, if a network finds room.

A configuration of a few numbers can describe more weights than any machine holds. On torch's meta
device a network has all its shapes and no numbers, so its size is known before it is built.
"""

import ctypes
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

MOST_LAYERS, WIDEST = 1_000, 2**20
"""Bounds of what a configuration may ask for."""
_SPARE = 2  # what a file may lack, such as a pooler, is refused or drawn by whoever reads it

# from glibc's malloc.h
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_PROCESS = Path("/proc/self")
_KEPT = 1 << 30  # mallopt takes a C int; no tensor of a slice is larger


def keep_freed_pages() -> bool:
    """Ask glibc to keep freed blocks; True where it could be asked, False elsewhere.

    glibc returns every large block to the kernel and faults its pages in again for the next tensor:
    up to half the time of a search or a training on a CPU. Only programs that own their process
    call this, never the library.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_M_MMAP_THRESHOLD, _KEPT), (_M_TRIM_THRESHOLD, _KEPT), (_M_TOP_PAD, 1 << 26))
    return all(mallopt(name, value) == 1 for name, value in settings)


def free_memory() -> int:
    """Bytes that a program can still take: of the machine, or of its control group."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        available = Path("/proc/meminfo").read_text("ascii").partition("MemAvailable:")[2]
        found.append(int(available.split()[0]) << 10)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        found.append(max(0, limit - used))
    if not found:
        with suppress(OSError, ValueError, AttributeError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=2**62)


class PeakMemory:
    """Peak memory since construction: torch's on a GPU, the process's growth on a CPU."""

    def __init__(self, device: "torch.device") -> None:
        self._device, self._before = device, 0.0
        if device.type == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            (_PROCESS / "clear_refs").write_text("5")  # the peak begins again
            self._before = resident_mib("VmRSS")
        except (OSError, ValueError):
            self._before = -1.0

    def mib(self) -> float | None:
        """The peak so far in MiB; None if this system does not report it."""
        if self._device.type == "cuda":
            import torch

            return torch.cuda.max_memory_allocated(self._device) / 2**20
        return None if self._before < 0 else max(0.0, resident_mib("VmHWM") - self._before)


def resident_mib(name: str) -> float:
    """Memory of this process in MiB: "VmRSS" now, "VmHWM" at most so far.

    Raises:
        OSError, ValueError: this system does not report it.
    """
    found = re.search(rf"{name}:\s+(\d+) kB", (_PROCESS / "status").read_text())
    if found is None:
        raise ValueError(f"no {name} in {_PROCESS / 'status'}")
    return int(found[1]) / 1024


def require_room(size: int, what: str, *, free: int | None = None) -> None:
    """Raise ValueError unless so many bytes are free; call it before anything of a given size.

    Args:
        size: bytes.
        what: needs them, for the message.
        free: bytes that are available; None: `free_memory()`.
    """
    free = free_memory() if free is None else free
    if size > free:
        raise ValueError(
            f"{what} would take {_gibibytes(size)} of memory, and this machine has "
            f"{_gibibytes(free)} free"
        )


def ran_out(error: BaseException) -> bool:
    """Whether an error of Python, NumPy, Arrow or torch says that there was no memory."""
    if isinstance(error, RuntimeError):  # torch's, by its name on a GPU, by its words on a CPU
        of_gpu = type(error).__name__ == "OutOfMemoryError"
        return of_gpu or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError)


def shapes(build: "Callable[[], nn.Module]") -> "dict[str, Tensor]":
    """Shapes of a network's weights and buffers, without allocating them."""
    import torch

    with torch.device("meta"):
        network = build()
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def require_room_for(build: "Callable[[], nn.Module]") -> None:
    """Raise ValueError unless a network's weights find room in memory.

    Args:
        build: makes the network.
    """
    _require_room(shapes(build))


def require_fit(weights: Path, build: "Callable[[], nn.Module]") -> None:
    """Raise ValueError unless the tensors in a file have the shapes of a network's, and room.

    Nothing of the network is made: a file of a few bytes cannot ask for more memory than it fills.

    Args:
        weights: a safetensors file.
        build: makes the network.
    """
    from safetensors import safe_open

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
    from safetensors import safe_open

    held: Counter[str] = Counter()
    for path in weights:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                tensor = file.get_slice(name)
                held[tensor.get_dtype()] += prod(tensor.get_shape())
    return held


def require_filled(
    held: int,
    build: "Callable[[], nn.Module]",
    *,
    dtype: "torch.dtype | None" = None,
    device: "torch.device | None" = None,
) -> None:
    """Raise ValueError unless files hold about as many numbers as a network has, and it has room.

    Args:
        held: numbers in the files, whose names of tensors need not be the network's.
        build: makes the network.
        dtype: of the weights in memory.
        device: where they go; None: over all GPUs, and what these cannot hold on the host.
    """
    from torch import nn

    wanted = shapes(build)
    parameters = {id(t): t.numel() for t in wanted.values() if isinstance(t, nn.Parameter)}
    if sum(parameters.values()) > _SPARE * held:
        raise ValueError(
            f"its config.json needs {sum(parameters.values()):,} weights; its files have {held:,}"
        )
    _require_room(wanted, dtype=dtype, free=_free(device))


def _gibibytes(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size < 2**80 else "more than 2^50 GiB"


def _free(device: "torch.device | None") -> int:
    """Bytes free on a device; without one, on all GPUs and the host together."""
    if device is not None and device.type != "cuda":
        return free_memory()
    import torch

    places = range(torch.cuda.device_count()) if device is None else [device]
    on_gpus = sum(torch.cuda.mem_get_info(place)[0] for place in places)
    return on_gpus + (free_memory() if device is None else 0)


def _require_room(
    tensors: "Mapping[str, Tensor]",
    *,
    dtype: "torch.dtype | None" = None,
    free: int | None = None,
) -> None:
    numbers = sum({id(tensor): tensor.numel() for tensor in tensors.values()}.values())
    size = numbers * (4 if dtype is None else dtype.itemsize)
    require_room(size, f"a model of {numbers:,} weights", free=free)
