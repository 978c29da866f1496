"""Weights in memory beside those of the folder that they were loaded from."""

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from vestige.errors import VestigeError
from vestige.models.weight_files import weight_files


@torch.no_grad()
def moved_since_loaded(model: Any) -> bool:
    """Whether a model has other weights than its folder, as one that was trained since.

    Args:
        model: as Transformers has it.

    Returns:
        False where it comes from no folder; True where a parameter is not found there.
    """
    folder = Path(model.name_or_path or "")
    if not (model.name_or_path and folder.is_dir()):
        return False
    left = {id(parameter) for parameter in model.parameters()}
    named = dict(model.named_parameters(remove_duplicate=False))
    try:
        files = weight_files(folder)
    except VestigeError:
        return True
    for file in files:
        with safe_open(file, "pt") as stored:
            for name in stored.keys():  # noqa: SIM118
                parameter = named.get(name)
                if parameter is None:
                    continue
                if not torch.equal(stored.get_tensor(name).to(parameter.dtype), parameter.cpu()):
                    return True
                left.discard(id(parameter))
    return bool(left)
