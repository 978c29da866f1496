"""The snapshots that a workflow compares, and null models: with what a run records of them."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from math import isfinite
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.arguments import ModelLike, ModelsLike
from vestige.models.provenance import of_model, of_object, sha256_of
from vestige.monitor import Monitor

if TYPE_CHECKING:
    import torch

    from vestige.models.hugging_face import HuggingFaceLanguageModel
    from vestige.models.protocols import LanguageModel
    from vestige.models.shared_vocabulary import SharedVocabulary


@dataclass
class Reader:
    """Reads models that are compared: in one precision, and a base once for all its adapters.

    Attributes:
        device: where they go.
        dtype: the precision.
        monitor: told where an adapter is put on another base than it names.
        bases: whole models that were read, by folder or hub name.
    """

    device: str
    dtype: "torch.dtype"
    monitor: Monitor
    bases: "dict[str, HuggingFaceLanguageModel]" = field(default_factory=dict)

    def read(self, path: str, *, keep: bool = False) -> "LanguageModel":
        """A model on disk; `keep` it where adapters may stand on it."""
        from vestige.models.checkpoints import load_model
        from vestige.models.folders import model_folder
        from vestige.models.hugging_face import HuggingFaceLanguageModel
        from vestige.models.weight_files import ADAPTER_CONFIG

        place = _place(path)
        if place in self.bases:
            return self.bases[place]
        folder = model_folder(path)
        base = self._base(folder) if (folder / ADAPTER_CONFIG).is_file() else None
        model = load_model(path, device=self.device, dtype=self.dtype, base=base)
        if keep and base is None and isinstance(model, HuggingFaceLanguageModel):
            self.bases[place] = model
        return model

    def _base(self, adapter: Path) -> "HuggingFaceLanguageModel | None":
        """The base of an adapter; where that cannot be read, the one model that was."""
        from vestige.errors import ModelError
        from vestige.models.hugging_face import HuggingFaceLanguageModel
        from vestige.models.lora import base_of

        try:
            named = str(base_of(adapter))
            base = self._same_weights(named) or self.read(named, keep=True)
        except ModelError:
            if len(self.bases) != 1:
                raise
            [(place, base)] = self.bases.items()
            self.monitor.log(
                f"The base of {adapter} is not here: Vestige uses {place} as its base."
            )
        return base if isinstance(base, HuggingFaceLanguageModel) else None

    def _same_weights(self, named: str) -> "HuggingFaceLanguageModel | None":
        """What was read of these weights, wherever it lay."""
        from vestige.errors import ModelError

        if not self.bases or _place(named) in self.bases:
            return self.bases.get(_place(named))
        try:
            weights = sha256_of(named)
        except ModelError:  # it is still to be downloaded
            return None
        return next((m for place, m in self.bases.items() if sha256_of(place) == weights), None)


def _place(path: str) -> str:
    from vestige.models.folders import model_folder

    folder = model_folder(path)
    return str(folder.resolve()) if folder.exists() else path


@dataclass(frozen=True)
class Snapshots:
    """The models by role ("before", "after") over shared ids, and what a run records of them."""

    models: "dict[str, LanguageModel]"
    recorded: dict[str, object]
    shared: "SharedVocabulary"
    reader: Reader

    def read(self, model: ModelLike) -> "LanguageModel":
        """Another model that is compared with these."""
        if isinstance(model, str | PathLike):
            return self.shared.read_by(self.reader.read(fspath(model)))
        return self.shared.read_by(model.eval())


def load_snapshots(given: Mapping[str, ModelLike], *, device: str, monitor: Monitor) -> Snapshots:
    """Read the models "before" and "after", a path once, over one set of token ids.

    Args:
        monitor: told in what the two differ that does not keep them from being compared.

    Raises:
        IncompatibleModels: a token id stands for different texts.
    """
    from vestige.models.precision import common_dtype
    from vestige.models.protocols import placed
    from vestige.models.shared_vocabulary import SharedVocabulary

    dtype = common_dtype(list(given.values()), placed(device))
    reader = Reader(device, dtype, monitor)
    loaded: dict[str, LanguageModel] = {}
    models: dict[str, LanguageModel] = {}
    recorded: dict[str, object] = {}
    for role, one in given.items():
        if not isinstance(one, str | PathLike):
            models[role], recorded[role] = one, of_object(one)
            continue
        path = str(one)
        if path not in loaded:
            loaded[path] = reader.read(path, keep=True)
        models[role], recorded[role] = loaded[path], of_model(path, loaded[path])
    shared = SharedVocabulary.of(models["before"], models["after"])
    for line in shared.differences(models):
        monitor.log(line)
    read = {role: shared.read_by(model) for role, model in models.items()}
    return Snapshots(read, recorded, shared, reader)


@dataclass(frozen=True)
class ComparedNulls:
    """Null models that an update is compared with; a path is read when its turn comes.

    Attributes:
        hashes: SHA-256 of the weights of each.
        like: the snapshots, over whose token ids they are asked.
    """

    given: tuple[ModelLike, ...]
    hashes: tuple[str, ...]
    like: Snapshots

    @classmethod
    def at(
        cls, given: ModelsLike, *, unlike: Sequence[ModelLike], like: Snapshots
    ) -> "ComparedNulls":
        """The models that are given; a directory that is no model stands for those in it.

        Args:
            like: the two as they were read.
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
        return cls(models, hashes, like)

    @property
    def recorded(self) -> dict[str, object]:
        """What a run records of them."""
        if not self.given:
            return {}
        paths = [fspath(one) if isinstance(one, str | PathLike) else None for one in self.given]
        return {"nulls": {"path": paths, "sha256": list(self.hashes)}}

    def opened(self, model: ModelLike) -> "LanguageModel":
        """One of the models, read as the snapshots were."""
        return self.like.read(model)

    def moved_as_far(
        self, model: ModelLike, before: "LanguageModel", moved: float | None
    ) -> "tuple[LanguageModel, float | None]":
        """One of the models, and how far it moved the weights: a multiple of the update's change.

        One that moved them a little less is moved as far: its scores would be lower for that
        reason alone.

        Args:
            before: the model that the update and the null models continued.
            moved: how far the update moved its weights; None where that is not known.
        """
        from vestige.attacks.update.null_searches import LIKE
        from vestige.models.weight_change import stretch

        null = self.opened(model)
        own = _change(before, null)
        if own is None or moved is None:
            return null, None
        if LIKE[0] <= own / moved < 1:
            if not isinstance(model, str | PathLike):
                null = deepcopy(null)
            stretch(_own(before), _own(null), moved / own)
        return null, own / moved

    def moved(self, before: "LanguageModel", after: "LanguageModel") -> float | None:
        """How far the update moved the weights; None where that is not known."""
        return _change(before, after) if self.given else None


def _change(before: "LanguageModel", after: "LanguageModel") -> float | None:
    """How far a model's weights are from those before it; None of other kinds of models."""
    from vestige.models.weight_change import weight_change

    if getattr(_own(before), "adapted", False):
        return None
    change = weight_change(_own(before), _own(after))
    return change if change > 0 and isfinite(change) else None


def _own(model: "LanguageModel") -> "LanguageModel":
    """The model itself where it is asked over shared ids."""
    from vestige.models.shared_vocabulary import SharedIds

    return model.model if isinstance(model, SharedIds) else model


def _models_at(place: ModelLike) -> list[ModelLike]:
    """The model, or the models in a directory of such."""
    from vestige.models.folders import is_model

    if not isinstance(place, str | PathLike):
        return [place]
    folder = Path(place)
    if is_model(folder) or not folder.is_dir():
        return [fspath(place)]
    return [str(inner) for inner in sorted(folder.iterdir()) if is_model(inner)] or [fspath(place)]


def shown(given: object) -> str:
    """A path, or the class of an object, for messages."""
    return fspath(given) if isinstance(given, str | PathLike) else f"<{type(given).__name__}>"
