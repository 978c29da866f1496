"""The trainings that made a model of Transformers, including private ones in this process.

Private trainings in this process are remembered by model, so that another training of the same
model adds to the joint budget. A model whose weights differ from its folder, or from those after
the last private training, had an unknown training, perhaps on the same rows without noise.

Limits: a model that was made in memory, or loaded from a hub by its name, and then trained by
something else counts as new. An adapter that has learned counts as an unknown training.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from safetensors import safe_open

from vestige.errors import VestigeError
from vestige.models.folders import weight_files
from vestige.preparation import lineage
from vestige.privacy.ledger import UNKNOWN, LedgerEntry


@dataclass(frozen=True, kw_only=True)
class ModelHistory:
    """The trainings that made a model, oldest first.

    Attributes:
        from_folder: trainings in the ledger of the folder of the model.
        in_process: private trainings in this process.
        changed: whether an unknown training changed the weights in this process.
    """

    from_folder: tuple[LedgerEntry, ...]
    in_process: tuple[LedgerEntry, ...] = ()
    changed: bool = False


Norms = dict[tuple[str, int], str]
"""Exact norms of a model's tensors, by name and identity."""

_REMEMBERED: WeakKeyDictionary[Any, tuple[ModelHistory, Norms]] = WeakKeyDictionary()
"""History and norms by base model; the norms are empty during a training."""

_ADAPTER_NAMES = re.compile(r"\blora_|\b(modules_to_save|original_module|token_adapter)\b")
"""Names of modules that PEFT adds to a model."""


def history_of(model: Any) -> ModelHistory:
    """The history of a model, including the base of an adapter and the adapter."""
    base = _base_of(model)
    if base in _REMEMBERED:
        history, norms = _REMEMBERED[base]
        is_changed = any(norms.get(tensor, norm) != norm for tensor, norm in _norms(base).items())
        return replace(history, changed=history.changed or is_changed)
    entries = lineage.history_of(base.name_or_path or None).ledger
    comparison = compare_with_folder(base)
    adapter_has_learned = any(
        bool(parameter.any())
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and "lora_B" in name
    )
    has_known_training = any(entry.defence != UNKNOWN for entry in entries)
    if adapter_has_learned or (has_known_training and comparison != "same"):
        entries = (*entries, LedgerEntry(id=lineage.new_id(), defence=UNKNOWN))
    return ModelHistory(from_folder=entries, changed=comparison == "other")


def remember(model: Any, history: ModelHistory, *, finished: bool) -> None:
    """Remember the history of a model when a private training begins and when it ends."""
    base = _base_of(model)
    _REMEMBERED[base] = (history, _norms(base) if finished else {})


@torch.no_grad()
def compare_with_folder(model: Any) -> Literal["same", "other", "partly"]:
    """Compare the weights of a model with the folder that it was loaded from.

    The comparison ignores adapters, and quantized weights, which do not learn.

    Returns:
        "same", also without a folder; "partly" if the folder lacks some weights or has them in
        another shape; else "other".
    """
    folder = Path(model.name_or_path or "")
    if not (model.name_or_path and folder.is_dir()):
        return "same"
    parameters = {
        name.replace(".base_layer", ""): parameter
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if parameter.is_floating_point() and not _ADAPTER_NAMES.search(name)
    }
    unseen = {id(parameter) for parameter in parameters.values()}
    try:
        files = weight_files(folder)
    except VestigeError:
        return "partly"
    for file in files:
        with safe_open(file, "pt") as saved_file:
            for name in parameters.keys() & set(saved_file.keys()):
                parameter = parameters[name]
                saved = saved_file.get_tensor(name).to(parameter.dtype)
                if saved.shape != parameter.shape:
                    continue
                if not torch.equal(saved, parameter.cpu()):
                    return "other"
                unseen.discard(id(parameter))
    return "partly" if unseen else "same"


def _base_of(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@torch.no_grad()
def _norms(model: Any) -> Norms:
    return {
        (name, id(parameter)): float(torch.linalg.vector_norm(parameter.float())).hex()
        for name, parameter in model.named_parameters()
        if parameter.is_floating_point()
    }
