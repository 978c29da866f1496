"""The snapshots that a workflow compares: read once each, with what a run records of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from vestige.monitor import Monitor
from vestige.workflows.options import ModelLike
from vestige.workflows.provenance import of_model, of_object

if TYPE_CHECKING:
    from vestige.models.protocols import LanguageModel


@dataclass(frozen=True)
class Snapshots:
    """The models by role ("before", "after") and what a run records of them."""

    models: "dict[str, LanguageModel]"
    recorded: dict[str, object]


def load_snapshots(given: Mapping[str, ModelLike], *, device: str, monitor: Monitor) -> Snapshots:
    """Read models, each path once, and make sure that they share a vocabulary.

    Args:
        given: each role's path, hub name or model; "before" among them.
        device: see `load_model`.
        monitor: told where models differ in what does not matter here.

    Raises:
        ModelError: one cannot be read.
        IncompatibleModels: their vocabularies differ.
    """
    from vestige.models.checkpoints import check_compatible, load_model

    loaded: dict[str, LanguageModel] = {}
    models: dict[str, LanguageModel] = {}
    recorded: dict[str, object] = {}
    for role, one in given.items():
        if not isinstance(one, str | PathLike):
            models[role], recorded[role] = one, of_object(one)
            continue
        path = str(one)
        if path not in loaded:
            loaded[path] = load_model(path, device=device)
        models[role], recorded[role] = loaded[path], of_model(path, loaded[path])
    for role, model in models.items():
        if differing := check_compatible(models["before"], model):
            monitor.log(
                f"The tokens of before and {role} are the same, but not: {', '.join(differing)}. "
                "The search reads tokens; texts are split as each model's own tokenizer does."
            )
    return Snapshots(models, recorded)
