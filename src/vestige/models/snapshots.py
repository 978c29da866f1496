"""The snapshots that a verb compares, and their provenance."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.arguments import ModelLike
from vestige.models.folders import of_model, of_object, sha256_of
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
        from vestige.models.folders import ADAPTER_CONFIG, model_folder
        from vestige.models.hugging_face import HuggingFaceLanguageModel

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


def shown(given: object) -> str:
    """A path, or the class of an object, for messages."""
    return fspath(given) if isinstance(given, str | PathLike) else f"<{type(given).__name__}>"
