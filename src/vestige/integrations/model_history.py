"""What has trained a model before a private training, as far as its files and this process know.

Private trainings in this process are remembered by the model that they trained, so that another one
of the same model adds to the budgets of all. A model whose weights differ from its folder's, or
from those that the last private training left, was trained by something unknown, perhaps on the
same rows and without noise.

Limits: a model that was made in memory, or loaded from a hub by its name, and then trained by
something else counts as new. An adapter that has learned is an unknown ancestor.
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
    """Trainings that made a model, oldest first: of its folder's ledger, and private ones here.

    `moved`: something else has trained it in this process.
    """

    loaded: tuple[LedgerEntry, ...]
    here: tuple[LedgerEntry, ...] = ()
    moved: bool = False


Norms = dict[tuple[str, int], str]
"""Exact norms of a model's tensors, by name and identity."""

_REMEMBERED: WeakKeyDictionary[Any, tuple[ModelHistory, Norms]] = WeakKeyDictionary()
"""By the model without its adapter; without norms while it trains."""

_OF_ADAPTER = re.compile(r"\blora_|\b(modules_to_save|original_module|token_adapter)\b")
"""Names of what PEFT puts into a model."""


def history_of(model: Any) -> ModelHistory:
    """What made a model, or the base of an adapter and the adapter."""
    plain = _without_adapter(model)
    if plain in _REMEMBERED:
        history, norms = _REMEMBERED[plain]
        moved = any(norms.get(which, norm) != norm for which, norm in _norms(plain).items())
        return replace(history, moved=history.moved or moved)
    found = lineage.history_of(plain.name_or_path or None).ledger
    compared = compared_with_folder(plain)
    learned = any(
        bool(parameter.any())
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and "lora_B" in name
    )
    known = any(one.defence != UNKNOWN for one in found)
    if learned or (known and compared != "same"):
        found = (*found, LedgerEntry(id=lineage.new_id(), defence=UNKNOWN))
    return ModelHistory(loaded=found, moved=compared == "other")


def remember(model: Any, history: ModelHistory, *, done: bool) -> None:
    """Remember what made a model, when a private training of it begins and when it ends."""
    plain = _without_adapter(model)
    _REMEMBERED[plain] = (history, _norms(plain) if done else {})


@torch.no_grad()
def compared_with_folder(model: Any) -> Literal["same", "other", "partly"]:
    """Compare the weights of a model with those of the folder that it was loaded from.

    An adapter is left out, and quantized weights, which do not learn. "same" also without a folder;
    "partly" if not all weights are there in the same shape.
    """
    folder = Path(model.name_or_path or "")
    if not (model.name_or_path and folder.is_dir()):
        return "same"
    named = {
        name.replace(".base_layer", ""): parameter
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if parameter.is_floating_point() and not _OF_ADAPTER.search(name)
    }
    left = {id(parameter) for parameter in named.values()}
    try:
        files = weight_files(folder)
    except VestigeError:
        return "partly"
    for file in files:
        with safe_open(file, "pt") as stored:
            for name in named.keys() & set(stored.keys()):
                parameter = named[name]
                loaded = stored.get_tensor(name).to(parameter.dtype)
                if loaded.shape != parameter.shape:
                    continue
                if not torch.equal(loaded, parameter.cpu()):
                    return "other"
                left.discard(id(parameter))
    return "partly" if left else "same"


def _without_adapter(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@torch.no_grad()
def _norms(model: Any) -> Norms:
    some = [(name, p) for name, p in model.named_parameters() if p.is_floating_point()]
    return {(name, id(p)): float(torch.linalg.vector_norm(p.float())).hex() for name, p in some}
