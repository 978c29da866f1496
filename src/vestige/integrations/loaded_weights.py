"""Weights in memory beside those of the folder that they were loaded from."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from vestige.errors import VestigeError
from vestige.models.folders import weight_files

_OF_ADAPTER = re.compile(r"\blora_|\b(modules_to_save|original_module|token_adapter)\b")
"""Names of what PEFT puts into a model."""


@dataclass(frozen=True)
class Compared:
    """A model and its folder.

    Attributes:
        differ: some weight is another one.
        whole: every weight was found there, and in the same shape.
    """

    differ: bool
    whole: bool


@torch.no_grad()
def beside_folder(model: Any) -> Compared:
    """Compare a model with the folder that it was loaded from.

    Args:
        model: as Transformers has it, perhaps with an adapter put in, which is not looked at.

    Returns:
        no difference where it comes from no folder. Weights that are quantized, and do not learn,
        are not compared.
    """
    folder = Path(model.name_or_path or "")
    if not (model.name_or_path and folder.is_dir()):
        return Compared(differ=False, whole=True)
    named = {
        name.replace(".base_layer", ""): parameter
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if parameter.is_floating_point() and not _OF_ADAPTER.search(name)
    }
    left = {id(parameter) for parameter in named.values()}
    try:
        files = weight_files(folder)
    except VestigeError:
        return Compared(differ=False, whole=False)
    for file in files:
        with safe_open(file, "pt") as stored:
            for name in stored.keys():  # noqa: SIM118
                parameter = named.get(name)
                if parameter is None:
                    continue
                loaded = stored.get_tensor(name).to(parameter.dtype)
                if loaded.shape != parameter.shape:
                    continue
                if not torch.equal(loaded, parameter.cpu()):
                    return Compared(differ=True, whole=False)
                left.discard(id(parameter))
    return Compared(differ=False, whole=not left)
