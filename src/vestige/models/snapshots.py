"""Models that are compared: opened in one precision and over one set of token ids.

Weights in their stored type take least memory. If the device multiplies that type in hardware, they
also take least time: on a CPU with such instructions bfloat16 is 2.6 times as fast as float32, and
without them float16 is 3.4 times slower. Logits and scores are always float32.
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
from vestige.memory import free_memory, parameter_counts
from vestige.models.checkpoints import load_model
from vestige.models.folders import (
    ADAPTER_CONFIG,
    gguf_file,
    model_folder,
    model_record,
    sha256_of,
    weight_files,
)
from vestige.models.foreign_files import PACKED, gguf_weights
from vestige.models.protocols import LanguageModel, length_limit, single_device
from vestige.models.shared_ids import SharedVocabulary
from vestige.models.token_statistics import CachedOutputs, Texts, TokenStatistics
from vestige.monitor import Monitor
from vestige.parallel import connected

_HALF_TYPES = {"BF16": torch.bfloat16, "F16": torch.float16, PACKED: torch.float16}
"""Packed weights have scales in float16, which can represent their values."""


def stored_weights(model: ModelLike) -> tuple[torch.dtype, int] | None:
    """Type and number of a model's weights, for an adapter its base's; None: unreadable."""
    if isinstance(model, LanguageModel):
        parameters = list(model.parameters())
        count = sum(parameter.numel() for parameter in parameters)
        return (parameters[0].dtype if parameters else torch.float32), count
    try:
        return _on_disk(model)
    except (VestigeError, OSError, ValueError, SafetensorError):
        return None  # loading the model reports the error


def common_dtype(models: Sequence[ModelLike], device: torch.device | None) -> torch.dtype:
    """The precision in which compared models are read.

    The type in which all are stored, if the device (None: all GPUs) multiplies it in hardware or
    float32 does not fit in memory; else float32. Different precisions would look like a difference
    of training.
    """
    weights = [stored for stored in map(stored_weights, models) if stored is not None]
    if len({dtype for dtype, _ in weights}) != 1:
        return torch.float32
    dtype, size = weights[0][0], sum(count for _, count in weights) * torch.float32.itemsize
    fits = device is not None and device.type == "cpu" and size < free_memory()
    return torch.float32 if fits and not _in_hardware(dtype) else dtype


def _on_disk(path: str | PathLike[str]) -> tuple[torch.dtype, int]:
    folder = model_folder(fspath(path))
    if (folder / ADAPTER_CONFIG).is_file():
        from vestige.models.lora import base_of

        return _on_disk(base_of(folder))
    if not folder.exists():
        return _on_hub(str(path))
    gguf = gguf_file(folder)
    counts = parameter_counts(weight_files(folder)) if gguf is None else gguf_weights(gguf)
    return _HALF_TYPES.get(max(counts, key=counts.__getitem__), torch.float32), counts.total()


def _on_hub(name: str) -> tuple[torch.dtype, int]:
    """The type in the configuration of a hub model, whose weights may not be downloaded yet."""
    from transformers import AutoConfig

    from vestige.models.pretrained import hub_reachable

    offline = not hub_reachable(name)  # offline, the hub client retries for half a minute
    config = AutoConfig.from_pretrained(name, trust_remote_code=False, local_files_only=offline)
    return (config.dtype if config.dtype in _HALF_TYPES.values() else torch.float32), 0


def _in_hardware(dtype: torch.dtype) -> bool:
    """Whether this CPU has instructions to multiply a type of half precision."""
    has_bfloat16 = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return dtype == torch.bfloat16 and has_bfloat16 is not None and bool(has_bfloat16())


@dataclass
class Reader:
    """Reads compared models in one precision, and a base once for all its adapters.

    Attributes:
        monitor: reports an adapter that gets another base than it names.
        bases: whole models that were read, by folder or hub name.
    """

    device: str
    dtype: torch.dtype
    monitor: Monitor
    bases: dict[str, LanguageModel] = field(default_factory=dict)

    def read(self, path: str, *, keep: bool = False) -> LanguageModel:
        """A model on disk; `keep` a model that may be the base of adapters."""
        key = _model_key(path)
        if key in self.bases:
            return self.bases[key]
        folder = model_folder(path)
        base = self._base(folder) if (folder / ADAPTER_CONFIG).is_file() else None
        model = load_model(path, device=self.device, dtype=self.dtype, base=base)
        if keep and base is None and model.architecture == "hugging-face":
            self.bases[key] = model
        return model

    def _base(self, adapter: Path) -> LanguageModel:
        """The base of an adapter; if it cannot be read, the only model read so far."""
        from vestige.models.lora import base_of

        try:
            name = str(base_of(adapter))
            return self._same_weights(name) or self.read(name, keep=True)
        except ModelError:
            if len(self.bases) != 1:
                raise
        [(key, base)] = self.bases.items()
        self.monitor.log(f"The base of {adapter} is not here: Vestige uses {key} as its base.")
        return base

    def _same_weights(self, name: str) -> LanguageModel | None:
        """A model already read with the same weights, from any path."""
        if not self.bases or _model_key(name) in self.bases:
            return self.bases.get(_model_key(name))
        try:
            weights = sha256_of(name)
        except ModelError:  # not downloaded yet
            return None
        return next((model for key, model in self.bases.items() if sha256_of(key) == weights), None)


def _model_key(path: str) -> str:
    folder = model_folder(path)
    return str(folder.resolve()) if folder.exists() else path


@dataclass(frozen=True)
class Readings:
    """Token statistics of lists of texts under several models.

    Attributes:
        statistics: by list, then by model; the target is the first.
        read: number of scored tokens of the first list, and of all its tokens.
        known: by list, (t,) which tokens `statistics` covers; None: all.
        shown: most probable tokens that the target shows; None: all tokens.
    """

    statistics: Mapping[str, Mapping[str, TokenStatistics]]
    read: tuple[int, int]
    known: Mapping[str, NDArray[np.bool_]] | None = None
    shown: int | None = None

    def by_model(self, *lists: str) -> dict[str, list[TokenStatistics]]:
        """The statistics of the named lists, or of all, by model."""
        chosen = [self.statistics[name] for name in lists or self.statistics]
        return {model: [models[model] for models in chosen] for model in chosen[0]}


@dataclass(frozen=True)
class Snapshots:
    """Local models by role, such as "before" and "after", over one set of token ids.

    Attributes:
        models: the target is the first.
        recorded: provenance of each.
        shared: their token ids; None for a single model.
        reader: of further models to compare.
    """

    models: dict[str, LanguageModel]
    recorded: dict[str, object]
    shared: SharedVocabulary | None = None
    reader: Reader | None = None

    @classmethod
    def open(
        cls, sources: Mapping[str, ModelLike], *, device: str, monitor: Monitor
    ) -> "Snapshots":
        """Read models, each path once; the ids are those of the first two.

        Args:
            monitor: reports differences between the two that still allow a comparison.

        Raises:
            ModelError: one cannot be read.
            IncompatibleModels: a token id has different texts.
        """
        reader = Reader(
            device, common_dtype(list(sources.values()), single_device(device)), monitor
        )
        loaded: dict[str, LanguageModel] = {}
        models: dict[str, LanguageModel] = {}
        for role, source in sources.items():
            if isinstance(source, str | PathLike):
                path = str(source)
                loaded[path] = models[role] = loaded.get(path) or reader.read(path, keep=True)
            else:
                models[role] = source
        recorded: dict[str, object] = {
            role: model_record(sources[role], models[role]) for role in sources
        }
        if len(models) == 1:
            return cls({role: model.eval() for role, model in models.items()}, recorded)
        first, second, *_ = models.values()
        shared = SharedVocabulary.of(first, second)
        for line in shared.differences(models):
            monitor.log(line)
        read = {role: shared.adapt(model).eval() for role, model in models.items()}
        return cls(read, recorded, shared, reader)

    @classmethod
    def with_base(
        cls, model: ModelLike, base: ModelLike | None, *, device: str, monitor: Monitor
    ) -> "Snapshots":
        """A "target" and its "base", if any; the base of an adapter is found from its folder.

        Raises:
            ModelError: one cannot be read.
            IncompatibleModels: a token id has different texts.
        """
        base = base or base_of_adapter(model)
        if base is None:
            return cls.open({"target": model}, device=device, monitor=monitor)
        pair = cls.open({"base": base, "target": model}, device=device, monitor=monitor)
        roles = ("target", "base")
        models = {role: pair.models[role] for role in roles}
        return replace(pair, models=models, recorded={role: pair.recorded[role] for role in roles})

    def read(self, model: ModelLike) -> LanguageModel:
        """Read another model to compare with these."""
        assert self.shared is not None
        assert self.reader is not None
        if isinstance(model, str | PathLike):
            return self.shared.adapt(self.reader.read(fspath(model)))
        return self.shared.adapt(model.eval())

    @property
    def target(self) -> LanguageModel:
        """The first model."""
        return next(iter(self.models.values()))

    @property
    def longest(self) -> int | None:
        """Most tokens of a text that all models read at once; None: no limit."""
        limit = length_limit(*self.models.values())
        return None if limit is None else limit - 1

    def encoded(self, texts: Sequence[str]) -> list[list[int]]:
        """The first tokens of each text, as many as all models read at once."""
        return [ids[: self.longest] for ids in self.target.vocabulary.encode_batch(list(texts))]

    def encoded_lists(self, lists: Mapping[str, Corpus]) -> dict[str, list[list[int]]]:
        """The first tokens of each text, by list; a text without tokens is a DataError."""
        rows = {name: self.encoded(list(corpus)) for name, corpus in lists.items()}
        for name, encoded in rows.items():
            if empty := [number for number, ids in enumerate(encoded, start=1) if not ids]:
                raise DataError(
                    f"text {empty[0]} of `{name}` has no token of the model's vocabulary",
                    remedy="Remove it.",
                )
        return rows

    def tokens_read(self, texts: Sequence[str]) -> tuple[int, int]:
        """Number of known tokens that are read of texts, and number of all their tokens."""
        vocabulary = self.target.vocabulary
        rows = vocabulary.encode_batch(list(texts))
        read = [token for ids in rows for token in ids[: self.longest]]
        known = sum(token != vocabulary.unk_id for token in read)
        return known, sum(map(len, rows))

    def statistics(
        self, texts: Texts, outputs: CachedOutputs, *, of: str, likeliest: int = 0
    ) -> dict[str, TokenStatistics]:
        """Statistics of texts of ids, by role; `of` names the texts in the progress."""
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
        """Token statistics of all lists under all models."""
        nodes = outputs.nodes
        with nullcontext() if nodes is None else connected(nodes.address):
            statistics = {
                name: self.statistics(rows, outputs, of=f"`{name}`")
                for name, rows in self.encoded_lists(lists).items()
            }
        return Readings(statistics, self.tokens_read(list(next(iter(lists.values())))))


def base_of_adapter(model: ModelLike) -> str | None:
    """The base in the folder of an adapter; None for other models."""
    from vestige.models.lora import base_of

    if not isinstance(model, str | PathLike):
        return None
    folder = model_folder(fspath(model))
    return str(base_of(folder)) if (folder / ADAPTER_CONFIG).is_file() else None


def source_name(source: object) -> str:
    """A path, or the class of an object, for messages."""
    return fspath(source) if isinstance(source, str | PathLike) else f"<{type(source).__name__}>"
