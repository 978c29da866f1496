"""Models that are compared: read in one precision and over one set of token ids.

Weights as they are stored take least memory, and where the device multiplies that precision in
hardware also least time (on a CPU with its instructions bfloat16 is 2.6 times as fast as float32,
float16 without them 3.4 times slower). Logits and scores are float32 all the same.

A fine-tune often adds tokens (of a chat, of padding), pads its head to another width or begins its
texts with another token. The ids that both snapshots have still stand for the same texts, and are
compared. An id that one of them lacks has probability 0 there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors import SafetensorError
from torch import Tensor

from vestige.arguments import ModelLike
from vestige.data.vocabulary import Vocabulary, setting_differences
from vestige.errors import IncompatibleModels, ModelError, VestigeError
from vestige.memory import free_memory, held_numbers
from vestige.models.checkpoints import load_model
from vestige.models.folders import (
    ADAPTER_CONFIG,
    gguf_file,
    model_folder,
    of_model,
    of_object,
    sha256_of,
    weight_files,
)
from vestige.models.gguf_header import PACKED, read_header
from vestige.models.protocols import LanguageModel, placed
from vestige.monitor import Monitor

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

    That in which all of them are stored, where the device multiplies it in hardware or there is no
    room for float32; else float32: a difference of precision would look like one of training.

    Args:
        models: on disk, or loaded already.
        device: where they will be; None: over all GPUs.
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
    held = held_numbers(weight_files(folder)) if packed is None else read_header(packed).held
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
        device: where they go.
        dtype: the precision.
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
        base: Any = self._base(folder) if (folder / ADAPTER_CONFIG).is_file() else None
        model = load_model(path, device=self.device, dtype=self.dtype, base=base)
        if keep and base is None and _can_be_a_base(model):
            self.bases[place] = model
        return model

    def _base(self, adapter: Path) -> LanguageModel | None:
        """The base of an adapter; where that cannot be read, the one model that was."""
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
        return base if _can_be_a_base(base) else None

    def _same_weights(self, named: str) -> LanguageModel | None:
        """A model that was read of these weights, wherever they are."""
        if not self.bases or _place(named) in self.bases:
            return self.bases.get(_place(named))
        try:
            weights = sha256_of(named)
        except ModelError:  # it is still to be downloaded
            return None
        return next((m for place, m in self.bases.items() if sha256_of(place) == weights), None)


def _can_be_a_base(model: LanguageModel) -> bool:
    from vestige.models.hugging_face import HuggingFaceLanguageModel

    return isinstance(model, HuggingFaceLanguageModel)


def _place(path: str) -> str:
    folder = model_folder(path)
    return str(folder.resolve()) if folder.exists() else path


@dataclass(frozen=True)
class Snapshots:
    """The models by role ("before", "after") over shared ids, and their provenance."""

    models: dict[str, LanguageModel]
    recorded: dict[str, object]
    shared: "SharedVocabulary"
    reader: Reader

    def read(self, model: ModelLike) -> LanguageModel:
        """Another model that is compared with these."""
        if isinstance(model, str | PathLike):
            return self.shared.read_by(self.reader.read(fspath(model)))
        return self.shared.read_by(model.eval())


def load_snapshots(given: Mapping[str, ModelLike], *, device: str, monitor: Monitor) -> Snapshots:
    """Read the models "before" and "after", a path once, over one set of token ids.

    Args:
        monitor: gets a line for each difference of the two that does not prevent comparing them.

    Raises:
        IncompatibleModels: a token id stands for different texts.
    """
    reader = Reader(device, common_dtype(list(given.values()), placed(device)), monitor)
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


@dataclass(frozen=True)
class SharedVocabulary:
    """The token ids of two snapshots.

    Attributes:
        vocabulary: of the snapshot that has more of the ids; the later one if both have as many.
        texts: text of each id that either of them has, "" where neither has one.
        width: outputs of a model over the shared ids.
    """

    vocabulary: Vocabulary
    texts: tuple[str, ...]
    width: int

    @classmethod
    def of(cls, before: LanguageModel, after: LanguageModel) -> Self:
        """The ids of two snapshots together.

        Raises:
            IncompatibleModels: an id stands for different texts.
        """
        ours, theirs = before.vocabulary.texts(), after.vocabulary.texts()
        texts = _joined(ours, theirs)
        more = after if sum(map(bool, theirs)) >= sum(map(bool, ours)) else before
        same = tuple(ours) == tuple(theirs) and before.vocab_size == after.vocab_size
        return cls(more.vocabulary, texts, after.vocab_size if same else len(texts))

    def lacked_by(self, model: LanguageModel) -> list[int]:
        """The ids with a text that a model has no text of its own for.

        Raises:
            IncompatibleModels: an id stands for different texts.
        """
        own = model.vocabulary.texts()
        _joined(self.texts, own)
        known = [bool(text) for text in own] + [False] * len(self.texts)
        return [id for id, text in enumerate(self.texts) if text and not known[id]]

    def read_by(self, model: LanguageModel) -> LanguageModel:
        """The model over the shared ids: itself if these are its own.

        Raises:
            IncompatibleModels: an id stands for different texts.
        """
        lacked, shared = self.lacked_by(model), self.vocabulary
        alike = model.vocab_size == self.width and model.vocabulary.bos_id == shared.bos_id
        if alike and not lacked:
            return model
        return SharedIds(model, shared, width=self.width, lacked=lacked).eval()

    def differences(self, models: Mapping[str, LanguageModel]) -> list[str]:
        """A sentence for each difference of the models "before" and "after"."""
        before, after = models["before"], models["after"]
        found = [
            f"{role} lacks {lacked:,} of the tokens: it reads them as the end of a text, with "
            "probability 0."
            for role, model in models.items()
            if (lacked := len(self.lacked_by(model)))
        ]
        if before.vocab_size != after.vocab_size:
            found.append(
                f"The models have {before.vocab_size:,} and {after.vocab_size:,} outputs; those of "
                f"{self.width:,} tokens are compared."
            )
        one, other = before.vocabulary, after.vocabulary
        same = one.fingerprint() == other.fingerprint()
        if not same and (differing := setting_differences(one, other)):
            found.append(
                f"The vocabularies of BEFORE and AFTER differ in: {', '.join(differing)}. The "
                "search uses tokens; texts are split by each model's own tokenizer."
            )
        return found


class SharedIds(LanguageModel):
    """A snapshot over shared ids.

    An id that it lacks is read as the end of a text and has probability 0. Outputs beyond the
    shared ids, such as the padding of a head, are left out.

    Args:
        model: the snapshot; used as it is.
        vocabulary: of the shared ids.
        width: outputs.
        lacked: ids that the snapshot has no text for.
    """

    architecture: ClassVar[str] = "shared ids"
    carries_state: ClassVar[bool] = False
    model: Any
    _own_ids: Tensor
    _lacked: Tensor

    def __init__(
        self, model: LanguageModel, vocabulary: Vocabulary, *, width: int, lacked: Sequence[int]
    ) -> None:
        super().__init__()
        self.model, self.vocabulary, self.vocab_size = model, vocabulary, width
        ids = torch.arange(width, device=model.device)
        lacks = ids >= model.vocab_size
        lacks[list(lacked)] = True
        own = ids.where(~lacks, model.vocabulary.eos_id)
        self.register_buffer("_own_ids", own, persistent=False)  # it goes where the model goes
        self.register_buffer("_lacked", lacks.nonzero()[:, 0], persistent=False)

    @property
    def device(self) -> torch.device:
        return self.model.device  # type: ignore[no-any-return]

    @property
    def first_token(self) -> int:
        """The snapshot's own, which need not be the shared vocabulary's."""
        return int(self.model.first_token)

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens; None for any."""
        return getattr(self.model, "longest", None)

    @property
    def separate_head(self) -> bool:
        """Whether the snapshot's is; absent where the snapshot has no `body`."""
        return bool(self.model.separate_head)

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Logits (b, t, v) after each of the tokens (b, t), and the state after the last."""
        logits, state = self.model(self._own_ids[tokens], state)
        return self._shared(logits), state

    def body(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The snapshot's hidden vectors (b, t, h) after each of the tokens (b, t)."""
        return self.model.body(self._own_ids[tokens], state)  # type: ignore[no-any-return]

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden vectors, if `separate_head`."""
        return self._shared(self.model.predict(hidden))

    def start(self, n: int, *, anywhere: bool = False) -> Any:
        """See `NextToken.start`."""
        return self.model.start(n, anywhere=anywhere)

    def advance(self, state: Any, tokens: Tensor) -> Any:
        """See `NextToken.advance`."""
        return self.model.advance(state, self._own_ids[tokens])

    def read(self, state: Any, tokens: Tensor) -> Any:
        """See `NextToken.read`."""
        return self.model.read(state, self._own_ids[tokens])

    def logits(self, state: Any) -> Tensor:
        """(n, v) unnormalised log-probabilities, -inf for tokens that the snapshot lacks."""
        return self._shared(self.model.logits(state))

    def _shared(self, logits: Tensor) -> Tensor:
        width = min(self.vocab_size, logits.shape[-1])
        if not len(self._lacked):
            return logits[..., :width]
        shared = logits.new_full((*logits.shape[:-1], self.vocab_size), -torch.inf)
        shared[..., :width] = logits[..., :width]
        return shared.index_fill_(-1, self._lacked, -torch.inf)


def _joined(ours: Sequence[str], theirs: Sequence[str]) -> tuple[str, ...]:
    """Text of each id of either vocabulary."""
    for id, (mine, yours) in enumerate(zip(ours, theirs, strict=False)):
        if mine and yours and mine != yours:
            raise IncompatibleModels(
                f"vocabularies differ at token {id}",
                remedy=(
                    "Train the second with --from the first, or train both with one vocabulary. "
                    "The second may append tokens."
                ),
            )
    longer = ours if len(ours) >= len(theirs) else theirs
    both = min(len(ours), len(theirs))
    return (*(mine or yours for mine, yours in zip(ours, theirs, strict=False)), *longer[both:])
