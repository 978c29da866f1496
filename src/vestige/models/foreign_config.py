"""Checks of a model's configuration from elsewhere before it is loaded.

Libraries believe config.json and adapter_config.json: a million layers are made one after the
other, a table of positions is squared, a pattern of names is matched for ever. So the fields that
decide on sizes are held to a schema first; all others are the library's.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from vestige.data.files import Excerpt, Name, read_json, read_object, require_regular
from vestige.data.patterns import slow_reason
from vestige.errors import ModelError
from vestige.memory import MOST_LAYERS, WIDEST
from vestige.models.folders import ADAPTER_CONFIG

CONFIG = "config.json"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_OTHERS = ("generation_config.json", "model.safetensors.index.json")
_PATTERN, _REPETITIONS = 1_000, 3

Layers = Annotated[int, Field(ge=1, le=MOST_LAYERS)] | None
_Width = Annotated[int, Field(ge=1, le=WIDEST)]
Width = _Width | list[_Width] | None
"""Some architectures have one for each layer."""
Tokens = Annotated[int, Field(ge=1, le=2**24)] | None
Share = Annotated[float, Field(ge=0, le=1)]


class _Sizes(Excerpt):
    """Sizes, under the names that architectures give them."""

    model_type: Name | None = None
    vocab_size: Tokens = None
    type_vocab_size: Tokens = None
    num_hidden_layers: Layers = None
    num_layers: Layers = None
    n_layer: Layers = None
    n_layers: Layers = None
    encoder_layers: Layers = None
    decoder_layers: Layers = None
    hidden_size: Width = None
    n_embd: Width = None
    d_model: Width = None
    embedding_size: Width = None
    word_embed_proj_dim: Width = None
    intermediate_size: Width = None
    n_inner: Width = None
    ffn_dim: Width = None
    num_attention_heads: Width = None
    num_key_value_heads: Width = None
    n_head: Width = None
    num_heads: Width = None
    head_dim: Width = None
    n_positions: Tokens = None
    n_ctx: Tokens = None
    max_position_embeddings: Tokens = None
    sliding_window: Tokens = None
    num_labels: Annotated[int, Field(ge=0, le=10**5)] | None = None
    num_local_experts: Annotated[int, Field(ge=1, le=1_000)] | None = None
    text_config: "_Sizes | None" = None


class Adapter(Excerpt):
    """Configuration of an adapter.

    Attributes:
        base_model_name_or_path: folder or hub name of its base.
        r: rows of its matrices.
        lora_alpha: see `add_lora`.
        lora_dropout: likewise.
        target_modules: names of layers, or one regular expression for them.
    """

    base_model_name_or_path: str | None = None
    peft_type: Name | None = None
    r: Annotated[int, Field(ge=1, le=2**14)] = 8
    lora_alpha: Annotated[float, Field(gt=0, le=1e6)] = 8.0
    lora_dropout: Share | None = None
    target_modules: list[Name] | str | None = None
    exclude_modules: list[Name] | str | None = None
    modules_to_save: list[Name] | None = None
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[Name] | str | None = None
    rank_pattern: dict[str, Annotated[int, Field(ge=1, le=2**14)]] | None = None
    alpha_pattern: dict[str, Annotated[float, Field(gt=0, le=1e6)]] | None = None
    megatron_config: Literal[None] = None

    @property
    def patterns(self) -> dict[str, list[str]]:
        """Regular expressions that select layers, by field."""
        found = {
            "target_modules": self.target_modules,
            "exclude_modules": self.exclude_modules,
            "layers_pattern": self.layers_pattern,
        }
        written = {name: [value] for name, value in found.items() if isinstance(value, str)}
        keyed = {"rank_pattern": self.rank_pattern, "alpha_pattern": self.alpha_pattern}
        return written | {name: list(value) for name, value in keyed.items() if value}


def require_sound(folder: Path, *, remedy: str) -> None:
    """Require a sound config.json and ordinary files.

    Raises:
        ModelError: naming file and field; or the folder is an adapter, or has no tokenizer.
    """
    # transformers would read the weights of whatever base the adapter names.
    if (folder / ADAPTER_CONFIG).is_file():
        raise ModelError(
            f"{folder} is an adapter, not a whole model",
            remedy="Pass its base, or merge both and save the result.",
        )
    read_json(folder / CONFIG, _Sizes, error=ModelError, remedy=remedy)
    for name in _OTHERS:
        if (folder / name).exists():
            read_object(folder / name, error=ModelError, remedy=remedy)
    for file in folder.glob("*.safetensors"):
        require_regular(file, error=ModelError, remedy=remedy)
    # Without any, transformers makes up an empty tokenizer of the architecture's usual kind.
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise ModelError(
            f"{folder} has no tokenizer ({', '.join(TOKENIZERS)})",
            remedy="Save the tokenizer into the folder with its save_pretrained.",
        )


def read_adapter(file: Path) -> Adapter:
    """Read an adapter_config.json.

    Raises:
        ModelError: a field is missing, of another type or size, or a pattern of names may be
            matched for ever.
    """
    remedy = "Save the adapter again, with layer names in target_modules."
    found = read_json(file, Adapter, error=ModelError, remedy=remedy)
    for name, patterns in found.patterns.items():
        for pattern in patterns:
            slow = slow_reason(pattern, longest=_PATTERN, repetitions=_REPETITIONS)
            if slow is not None:
                raise ModelError(
                    f'{file} is not valid: matching "{name}" may not terminate: {slow}',
                    remedy=remedy,
                )
    return found
