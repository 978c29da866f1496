"""Peak memory of a training."""

import re
from pathlib import Path

import torch

_PROCESS = Path("/proc/self")
_MIB = 2**20


class PeakMemory:
    """Peak memory since construction: torch's on a GPU, the process's growth on a CPU.

    Args:
        device: where the training runs.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._before = device, 0.0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            (_PROCESS / "clear_refs").write_text("5")  # the peak begins anew
            self._before = resident_mib("VmRSS")
        except (OSError, ValueError):
            self._before = -1.0

    def mib(self) -> float | None:
        """The peak so far in MiB; None where this system does not tell."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / _MIB
        if self._before < 0:
            return None
        return max(0.0, resident_mib("VmHWM") - self._before)


def resident_mib(name: str) -> float:
    """Memory of this process in MiB: "VmRSS" now, "VmHWM" at most so far.

    Raises:
        OSError, ValueError: this system does not tell.
    """
    found = re.search(rf"{name}:\s+(\d+) kB", (_PROCESS / "status").read_text())
    if found is None:
        raise ValueError(f"no {name} in {_PROCESS / 'status'}")
    return int(found[1]) / 1024
