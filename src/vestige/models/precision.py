"""The precision in which models are read that are only asked.

Weights as they are stored take least memory, and where the device multiplies that precision in
hardware also least time (on a CPU with its instructions bfloat16 is 2.6 times as fast as float32,
float16 without them 3.4 times slower). Logits and scores are float32 all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath

import torch
from safetensors import SafetensorError

from vestige.errors import VestigeError
from vestige.memory import free_memory, held_numbers
from vestige.models.folders import ADAPTER_CONFIG, gguf_file, model_folder, weight_files
from vestige.models.gguf_header import PACKED, read_header
from vestige.models.protocols import LanguageModel

_HALVES = {"BF16": torch.bfloat16, "F16": torch.float16, PACKED: torch.float16}
"""What is packed has scales of float16, which holds what it is unpacked to."""


@dataclass(frozen=True)
class Stored:
    """Weights as they are stored.

    Attributes:
        dtype: the type of most of them: bfloat16 or float16, for all others float32.
        numbers: how many there are.
    """

    dtype: torch.dtype
    numbers: int

    @classmethod
    def of(cls, model: str | PathLike[str] | LanguageModel) -> "Stored | None":
        """Those of a model on disk, of an adapter's base, or of what is loaded.

        None for what cannot be read: whoever reads it will say so.
        """
        if isinstance(model, LanguageModel):
            parameters = list(model.parameters())
            numbers = sum(parameter.numel() for parameter in parameters)
            return cls(parameters[0].dtype if parameters else torch.float32, numbers)
        try:
            return _on_disk(model)
        except (VestigeError, OSError, ValueError, SafetensorError):
            return None


def common_dtype(
    models: Sequence[str | PathLike[str] | LanguageModel], device: torch.device | None
) -> torch.dtype:
    """The precision in which models are read that are compared with each other.

    That in which all of them are stored, where the device multiplies it in hardware or there is no
    room for float32; else float32: a difference of precision would look like one of training.

    Args:
        models: on disk, or loaded already.
        device: where they will be; None: over all GPUs.
    """
    stored = [one for model in models if (one := Stored.of(model)) is not None]
    dtypes = {one.dtype for one in stored}
    if len(dtypes) != 1:
        return torch.float32
    [dtype] = dtypes
    wide = sum(one.numbers for one in stored) * torch.float32.itemsize
    fits = device is not None and device.type == "cpu" and wide < free_memory()
    return torch.float32 if fits and not _in_hardware(dtype) else dtype


def _on_disk(path: str | PathLike[str]) -> Stored:
    folder = model_folder(fspath(path))
    if (folder / ADAPTER_CONFIG).is_file():
        from vestige.models.lora import base_of

        return _on_disk(base_of(folder))
    if not folder.exists():
        return _on_hub(str(path))
    packed = gguf_file(folder)
    held = held_numbers(weight_files(folder)) if packed is None else read_header(packed).held
    return Stored(_HALVES.get(max(held, key=held.__getitem__), torch.float32), held.total())


def _on_hub(name: str) -> Stored:
    """What a hub model's configuration says; its weights may not be here yet."""
    from transformers import AutoConfig

    from vestige.models.pretrained import in_reach

    here = not in_reach(name)  # where nothing answers, its client would retry for half a minute
    config = AutoConfig.from_pretrained(name, trust_remote_code=False, local_files_only=here)
    return Stored(config.dtype if config.dtype in _HALVES.values() else torch.float32, 0)


def _in_hardware(dtype: torch.dtype) -> bool:
    """Whether this CPU multiplies a type of half precision by instructions of its own."""
    able = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return dtype == torch.bfloat16 and able is not None and bool(able())
