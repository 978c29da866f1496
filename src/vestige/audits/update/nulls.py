"""Null models of an update: BEFORE continued as the update was, on clean text.

Their searches give the scores that occur without a leak. A null model that moved the weights a
little less than the update is moved as far first, because its scores would be too low.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import isfinite
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.arguments import ModelLike, ModelsLike
from vestige.attacks.update.null_searches import LIKE
from vestige.models.provenance import sha256_of
from vestige.models.snapshots import Snapshots, shown

if TYPE_CHECKING:
    from vestige.models.protocols import LanguageModel


@dataclass(frozen=True)
class NullModels:
    """Null models; a path is read when its search begins.

    Attributes:
        given: paths or models.
        hashes: SHA-256 of the weights of each.
        snapshots: of the update; null models are read over their token ids.
    """

    given: tuple[ModelLike, ...]
    hashes: tuple[str, ...]
    snapshots: Snapshots

    @classmethod
    def of(
        cls, given: ModelsLike, *, unlike: Sequence[ModelLike], snapshots: Snapshots
    ) -> "NullModels":
        """The models that are given; a folder of models stands for those in it.

        Args:
            unlike: the two snapshots as they were given.

        Raises:
            ValueError: a model is given twice, or is one of the snapshots.
            ModelError: a model does not exist.
        """
        several = given if isinstance(given, tuple | list) else (given,)
        models = tuple(model for one in several for model in _models_in(one))
        hashes = tuple(map(sha256_of, models))
        known = {sha256_of(model): model for model in unlike} if models else {}
        for model, weights in zip(models, hashes, strict=True):
            if weights in known:
                raise ValueError(
                    f"`null` must be a training of its own, got {shown(model)}, which has the "
                    f"weights of {shown(known[weights])}. `clean` trains null models"
                )
            known[weights] = model
        return cls(models, hashes, snapshots)

    def __len__(self) -> int:
        return len(self.given)

    @property
    def recorded(self) -> dict[str, object]:
        """Provenance for the record."""
        if not self.given:
            return {}
        paths = [fspath(one) if isinstance(one, str | PathLike) else None for one in self.given]
        return {"nulls": {"path": paths, "sha256": list(self.hashes)}}

    def moved(self, before: "LanguageModel", after: "LanguageModel") -> float | None:
        """How far the update moved the weights; None if that is not known."""
        return _distance(before, after) if self.given else None

    def opened(
        self, given: ModelLike, before: "LanguageModel", moved: float | None
    ) -> "tuple[LanguageModel, float | None]":
        """A null model, and how far it moved the weights as a multiple of the update's change.

        Args:
            given: one of the models.
            before: the model that the update and the null models continue.
            moved: how far the update moved the weights.
        """
        from vestige.models.weight_change import stretch

        null = self.snapshots.read(given)
        own = _distance(before, null)
        if own is None or moved is None:
            return null, None
        if LIKE[0] <= own / moved < 1:
            if not isinstance(given, str | PathLike):
                null = deepcopy(null)
            stretch(_unwrapped(before), _unwrapped(null), moved / own)
        return null, own / moved


def _distance(before: "LanguageModel", after: "LanguageModel") -> float | None:
    """Distance between the weights of two models; None for adapted and other models."""
    from vestige.models.weight_change import weight_change

    if getattr(_unwrapped(before), "adapted", False):
        return None
    change = weight_change(_unwrapped(before), _unwrapped(after))
    return change if change > 0 and isfinite(change) else None


def _unwrapped(model: "LanguageModel") -> "LanguageModel":
    """The model itself, without the wrapper over shared ids."""
    from vestige.models.shared_vocabulary import SharedIds

    return model.model if isinstance(model, SharedIds) else model


def _models_in(place: ModelLike) -> list[ModelLike]:
    """The model, or the models in a folder."""
    from vestige.models.folders import is_model

    if not isinstance(place, str | PathLike):
        return [place]
    folder = Path(place)
    if is_model(folder) or not folder.is_dir():
        return [fspath(place)]
    return [str(inner) for inner in sorted(folder.iterdir()) if is_model(inner)] or [fspath(place)]
