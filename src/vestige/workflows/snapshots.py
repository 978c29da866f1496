"""The snapshots that a workflow compares, and null models: with what a run records of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.monitor import Monitor
from vestige.workflows.inputs import open_model, shown
from vestige.workflows.options import ModelLike, ModelsLike
from vestige.workflows.provenance import of_model, of_object, sha256_of

if TYPE_CHECKING:
    from vestige.models.protocols import LanguageModel
    from vestige.models.shared_vocabulary import SharedVocabulary


@dataclass(frozen=True)
class Snapshots:
    """The models by role ("before", "after") over shared ids, and what a run records of them."""

    models: "dict[str, LanguageModel]"
    shared: "SharedVocabulary"
    recorded: dict[str, object]


def load_snapshots(given: Mapping[str, ModelLike], *, device: str, monitor: Monitor) -> Snapshots:
    """Read the models "before" and "after", a path once, over one set of token ids.

    Args:
        monitor: told in what the two differ that does not keep them from being compared.

    Raises:
        IncompatibleModels: a token id stands for different texts.
    """
    from vestige.models.checkpoints import load_model
    from vestige.models.shared_vocabulary import SharedVocabulary

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
    shared = SharedVocabulary.of(models["before"], models["after"])
    for line in shared.differences(models):
        monitor.log(line)
    read = {role: shared.read_by(model) for role, model in models.items()}
    return Snapshots(read, shared, recorded)


@dataclass(frozen=True)
class ComparedNulls:
    """Null models that an update is compared with; a path is read when its turn comes.

    Attributes:
        hashes: SHA-256 of the weights of each.
        shared: the token ids that they are asked over.
    """

    given: tuple[ModelLike, ...]
    hashes: tuple[str, ...]
    shared: "SharedVocabulary"
    device: str

    @classmethod
    def at(
        cls,
        given: ModelsLike,
        *,
        unlike: Sequence[ModelLike],
        shared: "SharedVocabulary",
        device: str,
    ) -> "ComparedNulls":
        """The models that are given; a directory that is no model stands for those in it.

        Args:
            shared: the token ids of the snapshots.
            unlike: the two snapshots, which are no null models.

        Raises:
            ValueError: a model is given twice, or is one of the snapshots.
            ModelError: there is none.
        """
        several = given if isinstance(given, tuple | list) else (given,)
        models = tuple(model for one in several for model in _models_at(one))
        hashes = tuple(map(sha256_of, models))
        told = {sha256_of(model): model for model in unlike} if models else {}
        for model, weights in zip(models, hashes, strict=True):
            if weights in told:
                raise ValueError(
                    f"`null` must be a training of its own, got {shown(model)}, which has the "
                    f"weights of {shown(told[weights])}: continue `before` on other clean text"
                )
            told[weights] = model
        return cls(models, hashes, shared, device)

    @property
    def recorded(self) -> dict[str, object]:
        """What a run records of them."""
        if not self.given:
            return {}
        paths = [fspath(one) if isinstance(one, str | PathLike) else None for one in self.given]
        return {"nulls": {"path": paths, "sha256": list(self.hashes)}}

    def opened(self, model: ModelLike) -> "LanguageModel":
        """One of the models, over the token ids of the snapshots."""
        return self.shared.read_by(open_model(model, device=self.device))


def _models_at(place: ModelLike) -> list[ModelLike]:
    """The model, or the models in a directory of such."""
    from vestige.models.folders import is_model

    if not isinstance(place, str | PathLike):
        return [place]
    folder = Path(place)
    if is_model(folder) or not folder.is_dir():
        return [fspath(place)]
    return [str(inner) for inner in sorted(folder.iterdir()) if is_model(inner)] or [fspath(place)]
