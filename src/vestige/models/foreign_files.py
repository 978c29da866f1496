"""Checks of foreign files before a library reads them.

Libraries trust the content of files: they create a million layers one by one, square a table of
positions, match a pattern of names endlessly, or read more settings than a file can hold. So a
schema limits the size fields of config.json and adapter_config.json first, and the header of a GGUF
file is read within the file's bounds (github.com/ggml-org/ggml, docs/gguf.md, version 3).
"""

import struct
from collections import Counter
from math import prod
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import Field, create_model

from vestige.data.files import Excerpt, Name, read_json, read_object, require_regular
from vestige.data.regular_expressions import slow_reason
from vestige.errors import ModelError
from vestige.memory import MOST_LAYERS, WIDEST
from vestige.models.folders import ADAPTER_CONFIG, CONFIG, INDEX

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
PACKED = "packed"

_Layers = Annotated[int, Field(ge=1, le=MOST_LAYERS)]
_Width = Annotated[int, Field(ge=1, le=WIDEST)]
_Tokens = Annotated[int, Field(ge=1, le=2**24)]
_Rank = Annotated[int, Field(ge=1, le=2**14)]
_Scale = Annotated[float, Field(gt=0, le=1e6)]
_SIZES: tuple[tuple[Any, str], ...] = (
    (Name, "model_type"),
    (_Layers, "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers"),
    (
        _Width | list[_Width],  # some architectures have one per layer
        "hidden_size n_embd d_model embedding_size word_embed_proj_dim intermediate_size n_inner "
        "ffn_dim num_attention_heads num_key_value_heads n_head num_heads head_dim",
    ),
    (
        _Tokens,
        "vocab_size type_vocab_size n_positions n_ctx max_position_embeddings sliding_window",
    ),
    (Annotated[int, Field(ge=0, le=10**5)], "num_labels"),
    (Annotated[int, Field(ge=1, le=1_000)], "num_local_experts"),
)
"""Size fields, by the names that architectures use."""
_FIELDS: dict[str, Any] = {
    name: (kind | None, None) for kind, names in _SIZES for name in names.split()
}
_Sizes: Any = create_model("_Sizes", __base__=Excerpt, **_FIELDS)
_Config = create_model("_Config", __base__=_Sizes, text_config=(_Sizes | None, None))


_PATTERNS = ["target_modules", "exclude_modules", "layers_pattern", "rank_pattern", "alpha_pattern"]
"""Fields of adapters that may be regular expressions."""


class Adapter(Excerpt):
    """Configuration of an adapter, with PEFT's names."""

    base_model_name_or_path: str | None = None
    peft_type: Name | None = None
    r: _Rank = 8
    lora_alpha: _Scale = 8.0
    lora_dropout: Annotated[float, Field(ge=0, le=1)] | None = None
    target_modules: list[Name] | str | None = None
    exclude_modules: list[Name] | str | None = None
    modules_to_save: list[Name] | None = None
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[Name] | str | None = None
    rank_pattern: dict[str, _Rank] | None = None
    alpha_pattern: dict[str, _Scale] | None = None
    megatron_config: Literal[None] = None


def require_sound(folder: Path, *, remedy: str) -> dict[str, Any]:
    """Check config.json and the files of a folder; returns the content of config.json.

    Raises:
        ModelError: names file and field; or the folder is an adapter, or has no tokenizer.
    """
    # transformers would load any base that the adapter names.
    if (folder / ADAPTER_CONFIG).is_file():
        raise ModelError(
            f"{folder} is an adapter, not a whole model",
            remedy="Pass its base, or merge both and save the result.",
        )
    read_json(folder / CONFIG, _Config, error=ModelError, remedy=remedy)
    for name in ("generation_config.json", INDEX):
        if (folder / name).exists():
            read_object(folder / name, error=ModelError, remedy=remedy)
    for file in folder.glob("*.safetensors"):
        require_regular(file, error=ModelError, remedy=remedy)
    # Without a tokenizer, transformers creates an empty one.
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise ModelError(
            f"{folder} has no tokenizer ({', '.join(TOKENIZERS)})",
            remedy="Save the tokenizer into the folder with its save_pretrained.",
        )
    return read_object(folder / CONFIG, error=ModelError, remedy=remedy)


def read_adapter(file: Path) -> Adapter:
    """Read an adapter_config.json.

    Raises:
        ModelError: a field is missing, of another type or size, or matching a pattern may not
            terminate.
    """
    remedy = "Save the adapter again, with layer names in target_modules."
    adapter = read_json(file, Adapter, error=ModelError, remedy=remedy)
    for name in _PATTERNS:
        value = getattr(adapter, name) or ()
        patterns = [value] if isinstance(value, str) else value if isinstance(value, dict) else ()
        for pattern in patterns:
            slow = slow_reason(pattern, longest=1_000, repetitions=3)
            if slow is not None:
                raise ModelError(
                    f'{file} is not valid: matching "{name}" may not terminate: {slow}',
                    remedy=remedy,
                )
    return adapter


# GGUF

_TEXT, _LIST = 8, 9
_NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_FLOATS = {0: "F32", 1: "F16", 30: "BF16"}
"""Types of tensors that are not quantised, by their GGUF number."""
_LIMITS = {"tensors": 1_000_000, "settings": 10_000, "dimensions": 4, "bytes of a name": 1_000}
_SETTING_LIMITS = {
    "block_count": MOST_LAYERS,
    "context_length": 2**24,
    "expert_count": 1_000,
    "embedding_length": WIDEST,
    "feed_forward_length": WIDEST,
    "attention.head_count": WIDEST,
    "attention.head_count_kv": WIDEST,
    "attention.key_length": WIDEST,
    "attention.value_length": WIDEST,
}


def gguf_weights(file: Path) -> Counter[str]:
    """Count of weights in a GGUF file by type ("F32", ...; `PACKED` if quantised).

    Raises:
        ModelError: it is not a GGUF file, is incomplete, or has impossible sizes.
    """
    remedy = "Download the file again, or pass the model's folder of safetensors."
    size = require_regular(file, error=ModelError, remedy=remedy)
    try:
        with file.open("rb") as stream:
            return _Header(stream, size).weights()
    except (ValueError, OSError) as error:
        raise ModelError(f"{file} is not a valid GGUF file: {error}", remedy=remedy) from error


class _Header:
    """Reads the header of a GGUF file, never beyond its end."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self.stream, self.remaining = stream, size

    def weights(self) -> Counter[str]:
        if self.take(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        if (version := self.number("I")) not in (2, 3):
            raise ValueError(f"version {version}; 2 or 3 is needed")
        tensors, number = self.number("Q"), self.number("Q")
        self.require("tensors", tensors)
        self.require("settings", number)
        settings = {self.name(): self.value(self.number("I")) for _ in range(number)}
        family = settings.get("general.architecture")
        for name, limit in _SETTING_LIMITS.items():
            value = settings.get(f"{family}.{name}", 1)
            if not isinstance(value, int) or not 0 <= value <= limit:
                raise ValueError(f"{name} is {str(value)[:40]!r}; at most {limit:,} is possible")
        counts: Counter[str] = Counter()
        for _ in range(tensors):
            self.name()
            self.require("dimensions", dimensions := self.number("I"))
            shape = [self.number("Q") for _ in range(dimensions)]
            counts[_FLOATS.get(self.number("I"), PACKED)] += prod(shape)
            self.number("Q")
        if counts.total() > 8 * self.remaining:  # no weight takes less than a bit
            raise ValueError(f"{counts.total():,} weights in {self.remaining:,} bytes")
        return counts

    def require(self, what: str, number: int) -> None:
        if number > _LIMITS[what]:
            raise ValueError(f"{number:,} {what}; at most {_LIMITS[what]:,} are possible")

    def take(self, length: int) -> bytes:
        if length > self.remaining:
            raise ValueError("it is incomplete")
        self.remaining -= length
        return self.stream.read(length)

    def number(self, form: str) -> int:
        value: int = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]
        return value

    def name(self) -> str:
        self.require("bytes of a name", length := self.number("Q"))
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int) -> int | float | str:
        """The value of a setting; for a list its length."""
        if kind == _TEXT:
            return self.take(self.number("Q")).decode("utf-8", "replace")
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind != _LIST:
            raise ValueError(f"a setting of unknown type {kind}")
        inner, length = self.number("I"), self.number("Q")
        if inner in _NUMBERS:
            self.take(length * struct.calcsize(f"<{_NUMBERS[inner]}"))
        elif inner != _TEXT:
            raise ValueError(f"a list of unknown type {inner}")
        elif 8 * length > self.remaining:  # each text begins with its length
            raise ValueError("it is incomplete")
        else:
            for _ in range(length):
                self.take(self.number("Q"))
        return length
