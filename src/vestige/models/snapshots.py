"""Models that are compared: opened in one precision and over one set of token ids.

Weights as they are stored take least memory, and where the device multiplies that precision in
hardware also least time (on a CPU with its instructions bfloat16 is 2.6 times as fast as float32,
float16 without them 3.4 times slower). Logits and scores are float32 all the same.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError

from vestige.arguments import ModelLike
from vestige.data.corpus import Corpus
from vestige.errors import DataError, ModelError, VestigeError
from vestige.memory import free_memory, held_numbers
from vestige.models.checkpoints import load_model
from vestige.models.folders import (
    ADAPTER_CONFIG,
    gguf_file,
    model_folder,
    of_model,
    sha256_of,
    weight_files,
)
from vestige.models.foreign_files import PACKED, gguf_weights
from vestige.models.protocols import LanguageModel, length_limit, single_device
from vestige.models.shared_ids import SharedVocabulary
from vestige.models.token_statistics import CachedOutputs, Texts, TokenStatistics
from vestige.monitor import Monitor
from vestige.parallel import connected

_HALVES = {"BF16": torch.bfloat16, "F16": torch.float16, PACKED: torch.float16}
"""Packed weights have scales of float16, which holds their values."""


def stored_weights(model: ModelLike) -> tuple[torch.dtype, int] | None:
    """Type and number of a model's weights; of an adapter, its base's; None: unreadable."""
    if isinstance(model, LanguageModel):
        parameters = list(model.parameters())
        numbers = sum(parameter.numel() for parameter in parameters)
        return (parameters[0].dtype if parameters else torch.float32), numbers
    try:
        return _on_disk(model)
    except (VestigeError, OSError, ValueError, SafetensorError):
        return None  # whoever reads it will say so


def common_dtype(models: Sequence[ModelLike], device: torch.device | None) -> torch.dtype:
    """The precision in which models are read that are compared with each other.

    That in which all of them are stored, where the device (None: all GPUs) multiplies it in
    hardware or there is no room for float32; else float32: a difference of precision would look
    like one of training.
    """
    found = [one for one in map(stored_weights, models) if one is not None]
    if len({dtype for dtype, _ in found}) != 1:
        return torch.float32
    dtype, wide = found[0][0], sum(numbers for _, numbers in found) * torch.float32.itemsize
    fits = device is not None and device.type == "cpu" and wide < free_memory()
    return torch.float32 if fits and not _in_hardware(dtype) else dtype


def _on_disk(path: str | PathLike[str]) -> tuple[torch.dtype, int]:
    folder = model_folder(fspath(path))
    if (folder / ADAPTER_CONFIG).is_file():
        from vestige.models.lora import base_of

        return _on_disk(base_of(folder))
    if not folder.exists():
        return _on_hub(str(path))
    packed = gguf_file(folder)
    held = held_numbers(weight_files(folder)) if packed is None else gguf_weights(packed)
    return _HALVES.get(max(held, key=held.__getitem__), torch.float32), held.total()


def _on_hub(name: str) -> tuple[torch.dtype, int]:
    """The type in a hub model's configuration; its weights may not be here yet."""
    from transformers import AutoConfig

    from vestige.models.pretrained import in_reach

    here = not in_reach(name)  # where nothing answers, its client would retry for half a minute
    config = AutoConfig.from_pretrained(name, trust_remote_code=False, local_files_only=here)
    return (config.dtype if config.dtype in _HALVES.values() else torch.float32), 0


def _in_hardware(dtype: torch.dtype) -> bool:
    """Whether this CPU multiplies a type of half precision by instructions of its own."""
    able = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return dtype == torch.bfloat16 and able is not None and bool(able())


@dataclass
class Reader:
    """Reads models that are compared: in one precision, and a base once for all its adapters.

    Attributes:
        monitor: gets a line if an adapter is put on another base than it names.
        bases: whole models that were read, by folder or hub name.
    """

    device: str
    dtype: torch.dtype
    monitor: Monitor
    bases: dict[str, LanguageModel] = field(default_factory=dict)

    def read(self, path: str, *, keep: bool = False) -> LanguageModel:
        """A model on disk; `keep` it if adapters may need it as their base."""
        place = _place(path)
        if place in self.bases:
            return self.bases[place]
        folder = model_folder(path)
        base = self._base(folder) if (folder / ADAPTER_CONFIG).is_file() else None
        model = load_model(path, device=self.device, dtype=self.dtype, base=base)
        if keep and base is None and model.architecture == "hugging-face":
            self.bases[place] = model
        return model

    def _base(self, adapter: Path) -> LanguageModel:
        """The base of an adapter; where that cannot be read, the one model that was."""
        from vestige.models.lora import base_of

        try:
            named = str(base_of(adapter))
            return self._same_weights(named) or self.read(named, keep=True)
        except ModelError:
            if len(self.bases) != 1:
                raise
        [(place, base)] = self.bases.items()
        self.monitor.log(f"The base of {adapter} is not here: Vestige uses {place} as its base.")
        return base

    def _same_weights(self, named: str) -> LanguageModel | None:
        """A model that was read of these weights, wherever they are."""
        if not self.bases or _place(named) in self.bases:
            return self.bases.get(_place(named))
        try:
            weights = sha256_of(named)
        except ModelError:  # it is still to be downloaded
            return None
        return next((m for place, m in self.bases.items() if sha256_of(place) == weights), None)


def _place(path: str) -> str:
    folder = model_folder(path)
    return str(folder.resolve()) if folder.exists() else path


@dataclass(frozen=True)
class Readings:
    """What models output for lists of texts.

    Attributes:
        statistics: by list, then by model; the model in question is the first.
        read: tokens of the first list that were scored, and all that it has.
        known: by list, (t,) which tokens `statistics` has; None: all.
        shown: most probable tokens that the first model shows; None: it shows everything.
    """

    statistics: Mapping[str, Mapping[str, TokenStatistics]]
    read: tuple[int, int]
    known: Mapping[str, NDArray[np.bool_]] | None = None
    shown: int | None = None

    def by_model(self, *lists: str) -> dict[str, list[TokenStatistics]]:
        """By model, the statistics of some lists, or of all."""
        chosen = [self.statistics[name] for name in lists or self.statistics]
        return {model: [own[model] for own in chosen] for model in chosen[0]}


@dataclass(frozen=True)
class Snapshots:
    """Local models by role, such as "before" and "after", over one set of token ids.

    Attributes:
        models: the model in question first.
        recorded: provenance of each.
        shared: their token ids; None for a model alone.
        reader: of further models that are compared with these.
    """

    models: dict[str, LanguageModel]
    recorded: dict[str, object]
    shared: SharedVocabulary | None = None
    reader: Reader | None = None

    @classmethod
    def open(cls, given: Mapping[str, ModelLike], *, device: str, monitor: Monitor) -> "Snapshots":
        """Read models, a path once; the ids are those of the first two.

        Args:
            monitor: gets a line for each difference of the two that does not prevent comparing.

        Raises:
            ModelError: one cannot be read.
            IncompatibleModels: a token id stands for different texts.
        """
        reader = Reader(device, common_dtype(list(given.values()), single_device(device)), monitor)
        loaded: dict[str, LanguageModel] = {}
        models: dict[str, LanguageModel] = {}
        for role, one in given.items():
            if isinstance(one, str | PathLike):
                path = str(one)
                loaded[path] = models[role] = loaded.get(path) or reader.read(path, keep=True)
            else:
                models[role] = one
        recorded: dict[str, object] = {role: of_model(given[role], models[role]) for role in given}
        if len(models) == 1:
            return cls({role: model.eval() for role, model in models.items()}, recorded)
        first, second, *_ = models.values()
        shared = SharedVocabulary.of(first, second)
        for line in shared.differences(models):
            monitor.log(line)
        read = {role: shared.read_by(model).eval() for role, model in models.items()}
        return cls(read, recorded, shared, reader)

    @classmethod
    def with_base(
        cls, model: ModelLike, base: ModelLike | None, *, device: str, monitor: Monitor
    ) -> "Snapshots":
        """A "target", and its "base" if there is one; that of an adapter need not be given.

        Raises:
            ModelError: one cannot be read.
            IncompatibleModels: a token id stands for different texts.
        """
        base = base or base_of_adapter(model)
        if base is None:
            return cls.open({"target": model}, device=device, monitor=monitor)
        two = cls.open({"base": base, "target": model}, device=device, monitor=monitor)
        roles = ("target", "base")
        models = {role: two.models[role] for role in roles}
        return replace(two, models=models, recorded={role: two.recorded[role] for role in roles})

    def read(self, model: ModelLike) -> LanguageModel:
        """Another model that is compared with these."""
        assert self.shared is not None
        assert self.reader is not None
        if isinstance(model, str | PathLike):
            return self.shared.read_by(self.reader.read(fspath(model)))
        return self.shared.read_by(model.eval())

    @property
    def target(self) -> LanguageModel:
        """The model in question."""
        return next(iter(self.models.values()))

    @property
    def longest(self) -> int | None:
        """Tokens of a text that all models read at once; None: any number."""
        most = length_limit(*self.models.values())
        return None if most is None else most - 1

    def encoded(self, texts: Sequence[str]) -> list[list[int]]:
        """The first tokens of each text, as many as all models read at once."""
        return [ids[: self.longest] for ids in self.target.vocabulary.encode_batch(list(texts))]

    def encoded_lists(self, lists: Mapping[str, Corpus]) -> dict[str, list[list[int]]]:
        """The first tokens of each text, by list; a text without tokens is a DataError."""
        rows = {name: self.encoded(list(corpus)) for name, corpus in lists.items()}
        for name, texts in rows.items():
            if empty := [number for number, ids in enumerate(texts, start=1) if not ids]:
                raise DataError(
                    f"text {empty[0]} of `{name}` has no token of the model's vocabulary",
                    remedy="Remove it.",
                )
        return rows

    def tokens_read(self, texts: Sequence[str]) -> tuple[int, int]:
        """Known tokens that are read of some texts, and all tokens that they have."""
        vocabulary = self.target.vocabulary
        rows = vocabulary.encode_batch(list(texts))
        read = [token for ids in rows for token in ids[: self.longest]]
        known = sum(token != vocabulary.unk_id for token in read)
        return known, sum(map(len, rows))

    def statistics(
        self, texts: Texts, outputs: CachedOutputs, *, of: str, likeliest: int = 0
    ) -> dict[str, TokenStatistics]:
        """Statistics of texts (ids of each), by role; `of` names the texts for the progress."""
        return {
            role: outputs.statistics(
                model,
                self.recorded[role],
                texts,
                task=f"reading {of} with the {role}",
                likeliest=likeliest,
            )
            for role, model in self.models.items()
        }

    def readings(self, lists: Mapping[str, Corpus], outputs: CachedOutputs) -> Readings:
        """Statistics of all lists under all models."""
        nodes = outputs.nodes
        with nullcontext() if nodes is None else connected(nodes.address):
            found = {
                name: self.statistics(rows, outputs, of=f"`{name}`")
                for name, rows in self.encoded_lists(lists).items()
            }
        return Readings(found, self.tokens_read(list(next(iter(lists.values())))))


def base_of_adapter(model: ModelLike) -> str | None:
    """The base that an adapter's folder names."""
    from vestige.models.lora import base_of

    if not isinstance(model, str | PathLike):
        return None
    folder = model_folder(fspath(model))
    return str(base_of(folder)) if (folder / ADAPTER_CONFIG).is_file() else None


def shown(given: object) -> str:
    """A path, or the class of an object, for messages."""
    return fspath(given) if isinstance(given, str | PathLike) else f"<{type(given).__name__}>"
