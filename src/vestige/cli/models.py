"""The two snapshots of `vestige diff` and `vestige rank`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.models.protocols import LanguageModel


@dataclass(frozen=True)
class Snapshots:
    """The models by role ("before", "after", "null") and what a run records of them."""

    models: "dict[str, LanguageModel]"
    recorded: dict[str, object]


def load_snapshots(paths: dict[str, str], *, device: str) -> Snapshots:
    """Read models, each path once, and make sure that they share a vocabulary.

    Args:
        paths: where each role's model is; "before" among them.
        device: see `load_model`.

    Raises:
        ModelError: one cannot be read.
        IncompatibleModels: their vocabularies differ.
    """
    from vestige.cli.provenance import of_model
    from vestige.models.checkpoints import check_compatible, load_model

    loaded = {path: load_model(path, device=device) for path in dict.fromkeys(paths.values())}
    models = {role: loaded[path] for role, path in paths.items()}
    for model in models.values():
        check_compatible(models["before"], model)
    return Snapshots(models, {role: of_model(path, models[role]) for role, path in paths.items()})
