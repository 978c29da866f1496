"""Number format of a training's matrix products.

On a CPU `auto` is float32 whatever the processor, so that one seed gives one result on every
machine: after two epochs on the same seed a model stood at perplexity 457 in float32 and at 466
in bfloat16. bfloat16 autocast is 1.5 times faster on a CPU with AMX and seven times slower on one
with AVX2 only; there it is asked for, and recorded. On a GPU `auto` is bfloat16 where the hardware
multiplies it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import torch

from vestige.training.config import TrainingConfig


def choose_precision(
    wanted: Literal["auto", "float32", "bfloat16"], device: torch.device
) -> torch.dtype:
    """The dtype of matrix products; `auto` is bfloat16 on a GPU that has it, else float32."""
    if wanted == "auto":
        on_gpu = device.type == "cuda"
        native = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if native else torch.float32
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def settled(config: TrainingConfig, device: torch.device) -> TrainingConfig:
    """The configuration with the precision that a device gives it in place of `auto`: what a run
    records, and what is trained elsewhere.

    Example:
        >>> settled(TrainingConfig(seed=0), torch.device("cpu")).precision
        'float32'
    """
    native = choose_precision(config.precision, device) == torch.bfloat16
    return replace(config, precision="bfloat16" if native else "float32")


@contextmanager
def autocast(precision: torch.dtype, device: torch.device) -> Iterator[None]:
    """Compute matrix products in `precision`; weights and gradients stay float32.

    On a CPU that lacks its instructions oneDNN's recurrent layers fail in bfloat16, torch's do not.
    """
    enabled = precision != torch.float32
    native = device.type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled):
        if native or not enabled:
            yield
            return
        before = torch.backends.mkldnn.set_flags(_enabled=False)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            torch.backends.mkldnn.set_flags(_enabled=before[0])  # type: ignore[no-untyped-call]
