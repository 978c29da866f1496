"""Free and used memory, settings of the allocator, and checks that a network fits in memory.

A small configuration file can describe more weights than any machine can store. On torch's meta
device a network has shapes without data, so its size is known before it is built.
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
"""Most layers, and most units per layer, of a configuration."""
_SPARE_FACTOR = 2  # a file may lack some tensors, such as a pooler; the loader checks that

# from glibc's malloc.h
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_PROCESS = Path("/proc/self")
_KEEP_BYTES = 1 << 30  # mallopt takes a C int


def keep_freed_pages() -> bool:
    """Make glibc keep freed blocks; returns False on other systems.

    By default glibc returns every large block to the kernel and faults its pages in again for the
    next tensor, which takes up to half the time of a search or training on a CPU. Only programs
    call this, never library code.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = (
        (_M_MMAP_THRESHOLD, _KEEP_BYTES),
        (_M_TRIM_THRESHOLD, _KEEP_BYTES),
        (_M_TOP_PAD, 1 << 26),
    )
    return all(mallopt(name, value) == 1 for name, value in settings)


def free_memory() -> int:
    """Bytes that a program can still allocate, by the machine and the control group."""
    limits = []
    with suppress(OSError, ValueError, IndexError):
        available = Path("/proc/meminfo").read_text("ascii").partition("MemAvailable:")[2]
        limits.append(int(available.split()[0]) << 10)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        limits.append(max(0, limit - used))
    if not limits:
        with suppress(OSError, ValueError, AttributeError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=2**62)


class PeakMemory:
    """Peak memory since construction: torch's on a GPU, the process's growth on a CPU."""

    def __init__(self, device: "torch.device") -> None:
        self._device, self._before = device, 0.0
        if device.type == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            (_PROCESS / "clear_refs").write_text("5")  # resets the peak
            self._before = resident_mib("VmRSS")
        except (OSError, ValueError):
            self._before = -1.0

    def mib(self) -> float | None:
        """The peak so far in MiB; None if the system does not report it."""
        if self._device.type == "cuda":
            import torch

            return torch.cuda.max_memory_allocated(self._device) / 2**20
        return None if self._before < 0 else max(0.0, resident_mib("VmHWM") - self._before)


def resident_mib(name: str) -> float:
    """Memory of this process in MiB: "VmRSS" is the current use, "VmHWM" the peak.

    Raises:
        OSError, ValueError: the system does not report it.
    """
    match = re.search(rf"{name}:\s+(\d+) kB", (_PROCESS / "status").read_text())
    if match is None:
        raise ValueError(f"no {name} in {_PROCESS / 'status'}")
    return int(match[1]) / 1024


def require_room(size: int, purpose: str, *, free: int | None = None) -> None:
    """Raise ValueError unless `size` bytes are free; `purpose` needs them."""
    free = free_memory() if free is None else free
    if size > free:
        raise ValueError(
            f"{purpose} would take {_gibibytes(size)} of memory, and this machine has "
            f"{_gibibytes(free)} free"
        )


def ran_out(error: BaseException) -> bool:
    """Whether an error of Python, NumPy, Arrow or torch means that memory ran out."""
    if isinstance(error, RuntimeError):  # torch has a class for GPUs and only a message for CPUs
        on_gpu = type(error).__name__ == "OutOfMemoryError"
        return on_gpu or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError)


def shapes(build: "Callable[[], nn.Module]") -> "dict[str, Tensor]":
    """Weights and buffers of a network on the meta device: shapes without data."""
    import torch

    with torch.device("meta"):
        network = build()
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def require_room_for(build: "Callable[[], nn.Module]") -> None:
    """Raise ValueError unless the network that `build` makes fits in memory."""
    _require_room_for_tensors(shapes(build))


def require_fit(weights: Path, build: "Callable[[], nn.Module]") -> None:
    """Raise ValueError unless a file's tensors have a network's shapes, and fit in memory.

    The network is not allocated: a small file cannot cause a large allocation.
    """
    from safetensors import safe_open

    expected = shapes(build)
    with safe_open(weights, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118
            shape = tuple(file.get_slice(name).get_shape())
            if name in expected and shape != tuple(expected[name].shape):
                raise ValueError(
                    f"{name} has the shape {shape}; {tuple(expected[name].shape)} is needed"
                )
    _require_room_for_tensors(expected)


def parameter_counts(weights: Sequence[Path]) -> Counter[str]:
    """Count the numbers in safetensors files by type ("F32", "BF16", ...)."""
    from safetensors import safe_open

    counts: Counter[str] = Counter()
    for path in weights:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                tensor = file.get_slice(name)
                counts[tensor.get_dtype()] += prod(tensor.get_shape())
    return counts


def require_filled(
    stored: int,
    build: "Callable[[], nn.Module]",
    *,
    dtype: "torch.dtype | None" = None,
    device: "torch.device | None" = None,
) -> None:
    """Raise ValueError if a network needs many more weights than files have, or does not fit.

    Args:
        stored: count of numbers in the files, whose tensors may have other names.
        build: makes the network.
        dtype: type of the weights in memory.
        device: their device; None: all GPUs, and the host for the rest.
    """
    from torch import nn

    tensors = shapes(build)
    parameters = {id(t): t.numel() for t in tensors.values() if isinstance(t, nn.Parameter)}
    if sum(parameters.values()) > _SPARE_FACTOR * stored:
        raise ValueError(
            f"its config.json needs {sum(parameters.values()):,} weights; its files have {stored:,}"
        )
    _require_room_for_tensors(tensors, dtype=dtype, free=_free(device))


def _gibibytes(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size < 2**80 else "more than 2^50 GiB"


def _free(device: "torch.device | None") -> int:
    """Free bytes of a device; None: of all GPUs and the host together."""
    if device is not None and device.type != "cuda":
        return free_memory()
    import torch

    gpus = range(torch.cuda.device_count()) if device is None else [device]
    on_gpus = sum(torch.cuda.mem_get_info(gpu)[0] for gpu in gpus)
    return on_gpus + (free_memory() if device is None else 0)


def _require_room_for_tensors(
    tensors: "Mapping[str, Tensor]",
    *,
    dtype: "torch.dtype | None" = None,
    free: int | None = None,
) -> None:
    numbers = sum({id(tensor): tensor.numel() for tensor in tensors.values()}.values())
    size = numbers * (4 if dtype is None else dtype.itemsize)
    require_room(size, f"a model of {numbers:,} weights", free=free)
