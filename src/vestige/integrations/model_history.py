"""What has made a model before a private training, as far as its files and this process tell.

Private trainings in this process are remembered by the model that they trained, so that another one
of the same model counts the budgets of all. Weights that are others than those of the folder that
they were loaded from, or than those that the last private training left, have been trained by
something that told nobody: it may have read the same rows, without noise.

Limits: a model that was made in memory, or loaded from a hub by its name, and then trained by
something else is taken for a new one. An adapter that has learnt is an unknown ancestor.
"""

from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch

from vestige.integrations.loaded_weights import beside_folder
from vestige.preparation import lineage
from vestige.privacy.ledger import UNKNOWN, LedgerEntry


@dataclass(frozen=True, kw_only=True)
class ModelHistory:
    """Trainings that made a model, oldest first.

    Attributes:
        loaded: that its folder tells of, or an unknown one.
        here: private ones in this process.
        moved: whether something else has trained it in this process.
    """

    loaded: tuple[LedgerEntry, ...]
    here: tuple[LedgerEntry, ...] = ()
    moved: bool = False


Norms = dict[tuple[str, int], str]
"""Of a model's tensors, exactly, by name and identity: a training changes some."""

_REMEMBERED: WeakKeyDictionary[Any, tuple[ModelHistory, Norms]] = WeakKeyDictionary()
"""By the model, without its adapter: its history, and norms of its weights; none while it
trains."""


def history_of(model: Any) -> ModelHistory:
    """What made a model, or the base of an adapter and the adapter."""
    plain = _without_adapter(model)
    if plain in _REMEMBERED:
        history, norms = _REMEMBERED[plain]
        moved = any(norms.get(which, norm) != norm for which, norm in _norms(plain).items())
        return replace(history, moved=history.moved or moved)
    found = lineage.history_of(plain.name_or_path or None).ledger
    compared = beside_folder(plain)
    learnt = any(
        bool(parameter.any())
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and "lora_B" in name
    )
    known = any(one.defence != UNKNOWN for one in found)
    if learnt or (known and not compared.whole):
        found = (*found, LedgerEntry(id=lineage.new_id(), defence=UNKNOWN))
    return ModelHistory(loaded=found, moved=compared.differ)


def remember(model: Any, history: ModelHistory, *, done: bool) -> None:
    """Keep what made a model, as a private training of it begins and once it is done."""
    plain = _without_adapter(model)
    _REMEMBERED[plain] = (history, _norms(plain) if done else {})


def _without_adapter(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@torch.no_grad()
def _norms(model: Any) -> Norms:
    some = [(name, p) for name, p in model.named_parameters() if p.is_floating_point()]
    return {(name, id(p)): float(torch.linalg.vector_norm(p.float())).hex() for name, p in some}
