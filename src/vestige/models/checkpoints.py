"""Models on disk: safetensors and JSON, never pickle; written completely or not at all.

A Vestige checkpoint is a directory with

    model.json          format, architecture, configuration, SHA-256 of weights and vocabulary
    model.safetensors   the weights
    vocabulary.json     or tokenizer.json with tokenizer_config.json
    source/             the vocabulary of sources, for a model that has one

`load_model` also reads Hugging Face folders, hub names and PEFT adapter folders; only then
does it import their libraries.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import safetensors
import torch
from safetensors.torch import load_model as load_weights
from safetensors.torch import save_model as save_weights

from vestige.data.files import Count, Excerpt, Name, Sha256, read_json, require_regular
from vestige.data.vocabulary import Vocabulary, WordVocabulary, differences, load_vocabulary
from vestige.errors import AccessDenied, IncompatibleModels, ModelError, VestigeError
from vestige.memory import require_fit, require_room
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.folders import (
    ADAPTER_CONFIG,
    CONFIG,
    DESCRIPTION,
    LABELS,
    WEIGHTS,
    gguf_file,
    model_folder,
    on_hub,
    replacing,
    require_model,
    sha256,
)
from vestige.models.protocols import LanguageModel, Network, NextToken, choose_device, single_device
from vestige.models.recurrent_network import (
    GRUConfig,
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
)
from vestige.models.remote.options import refuse_endpoint
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel
from vestige.models.transformer import CausalTransformer, TransformerConfig
from vestige.models.white_box import IntentSlotNetwork

FORMAT = 1
SOURCE = "source"
"""Folder of the second vocabulary, and the field of `model.json` with its SHA-256."""
_ROUNDING = 1e-6
"""Largest logarithm of a probability in a table, for rounding errors."""
SAVE_AGAIN = "Save the model again, or pass another checkpoint."
AnyNetwork = TypeVar("AnyNetwork", bound=Network)


class _Description(Excerpt):
    """Schema of model.json; other fields are allowed."""

    format: int
    architecture: Name
    config: dict[str, Any]
    vocab_size: Count
    vocabulary: Sha256
    sha256: Sha256
    source: Sha256 | None = None


def _table(vocabulary: Vocabulary, _: Mapping[str, Any], size: int) -> LanguageModel:
    if size != len(vocabulary):
        raise ValueError(f"a table of {size:,} tokens; the vocabulary has {len(vocabulary):,}")
    require_room(3 * 8 * size**2, f"a table of {size:,} tokens")
    uniform = torch.full((size, size), 1 / size, dtype=torch.float64)
    return TableModel(uniform[0], uniform, vocabulary)


def _intent_slot(vocabulary: Vocabulary, config: Mapping[str, Any], _: int) -> Network:
    if not isinstance(vocabulary, WordVocabulary):
        raise ValueError("an intent-and-slot model needs a vocabulary with words")
    return IntentSlotModel(vocabulary, IntentSlotConfig(**config))


BUILDERS: dict[str, Callable[[Vocabulary, Mapping[str, Any], int], Network]] = {
    "gru": lambda words, config, _: GRULanguageModel(words, GRUConfig(**config)),
    "intent-slot": _intent_slot,
    "lstm": lambda words, config, _: LSTMLanguageModel(words, LSTMConfig(**config)),
    "seq2seq": lambda words, config, _: Seq2SeqModel(
        config[SOURCE], words, Seq2SeqConfig(**{k: v for k, v in config.items() if k != SOURCE})
    ),
    "table": _table,
    "transformer": lambda words, config, _: CausalTransformer(words, TransformerConfig(**config)),
}


def save_model(model: Network, directory: str | Path) -> None:
    """Write a model atomically, for `load_model` and `load_intent_slot`; replaces an old one.

    Hugging Face models become a Hugging Face folder, LoRA adapters an adapter folder, and encoders
    with heads a Hugging Face folder with one more file.

    Raises:
        ModelError: the directory cannot be written.
    """
    with replacing(Path(directory)) as folder:
        if model.architecture not in BUILDERS:
            model.write(folder)
            return
        model.vocabulary.save(folder)
        save_weights(model, str(folder / WEIGHTS))
        description = {
            "format": FORMAT,
            "architecture": model.architecture,
            "config": asdict(model.config) if model.config is not None else {},
            "vocab_size": getattr(model, "vocab_size", len(model.vocabulary)),
            "vocabulary": model.vocabulary.fingerprint(),
            "sha256": sha256([folder / WEIGHTS]),
        }
        if isinstance(model, Seq2SeqModel):
            (folder / SOURCE).mkdir()
            model.source_vocabulary.save(folder / SOURCE)
            description[SOURCE] = model.source_vocabulary.fingerprint()
        (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", "utf-8")


def load_model(
    path: str | Path,
    *,
    device: str = "auto",
    base: str | Path | LanguageModel | None = None,
    merge: bool = False,
    dtype: torch.dtype = torch.float32,
) -> LanguageModel:
    """Read a model, ready for attacks: on its device and in evaluation mode.

    Args:
        path: a Vestige checkpoint, a training's output directory, a Hugging Face causal
            language model (folder, GGUF file or hub name) or a PEFT adapter folder.
        device: "auto" (CUDA, else CPU), a torch device, or "balanced" for a model of transformers
            over all GPUs, layer after layer.
        base: of an adapter, if not the base that it names; a loaded model shares its weights.
        merge: of an adapter: add it to the weights of its base.
        dtype: of the weights of a model of transformers, see `common_dtype`; train in float32.

    Raises:
        ModelError: the model is missing, incomplete or changed; names file and reason.
        ValueError: this machine has no such device.
    """
    if not Path(path).exists():
        refuse_endpoint(path)
    target, folder = single_device(device), model_folder(path)
    model = _load_checkpoint(folder)
    if model is None and (folder / ADAPTER_CONFIG).is_file():
        from vestige.models.lora import load_adapter

        model = load_adapter(folder, base=base, merge=merge, dtype=dtype, device=target)
    elif model is None and ((folder / CONFIG).is_file() or gguf_file(folder) or on_hub(path)):
        from vestige.models.pretrained import load

        model = load(folder if folder.exists() else str(path), dtype=dtype, device=target)
    elif model is None:
        require_model(folder)
    if isinstance(model, Seq2SeqModel):
        raise AccessDenied(
            f"{path} is a sequence-to-sequence model: it needs a source text",
            remedy="Load it with `load_seq2seq` and use `given(source)`, or pass a language model.",
        )
    if not isinstance(model, LanguageModel):
        raise AccessDenied(
            f"{path} is an intent-and-slot model and predicts no next words",
            remedy="Pass a language model, or run `vestige extract` with --pattern or a manifest.",
        )
    return _prepared(model, path, target)


def load_seq2seq(path: str | Path, *, device: str = "auto") -> Seq2SeqModel:
    """Read a sequence-to-sequence model, ready for attacks: `given(source)` is a `NextToken`.

    Args:
        path: a Vestige checkpoint, or a training's output directory.
        device: "auto" (CUDA, else CPU) or a torch device.

    Raises:
        ModelError: the model is missing, incomplete, changed or of another kind.
    """
    commands = "`vestige train --task translation` or `--task dialogue`"
    return _load_kind(Seq2SeqModel, path, device, "takes no source text", commands)


def load_intent_slot(path: str | Path, *, device: str = "auto") -> IntentSlotNetwork:
    """Read an intent-and-slot model, ready for attacks: on its device and in evaluation mode.

    Args:
        path: a Vestige checkpoint, a training's output directory, or an encoder with heads as
            `save_model` writes it.
        device: "auto" (CUDA, else CPU) or a torch device.

    Raises:
        ModelError: the model is missing, incomplete, changed or a language model.
    """
    kind: Any = IntentSlotNetwork  # abstract, and only compared with
    model: IntentSlotNetwork = _load_kind(
        kind, path, device, "has no intents", "`vestige train --task nlu`"
    )
    return model


def check_compatible(before: NextToken, after: NextToken) -> tuple[str, ...]:
    """Require two snapshots to have the same text for each id; returns their other differences.

    Raises:
        IncompatibleModels: an id has different texts, or the output sizes differ.
    """
    remedy = "Train the second with --from the first, or train both with one vocabulary."
    if len(before.vocabulary) != len(after.vocabulary) or before.vocab_size != after.vocab_size:
        raise IncompatibleModels(
            f"vocabularies differ: BEFORE has {len(before.vocabulary)} tokens ({before.vocab_size} "
            f"outputs), AFTER {len(after.vocabulary)} ({after.vocab_size} outputs)",
            remedy=remedy,
        )
    try:
        return differences(before.vocabulary, after.vocabulary)
    except ValueError as error:
        raise IncompatibleModels(
            f"vocabularies differ: both have {len(before.vocabulary)} tokens, but {error}",
            remedy=remedy,
        ) from error


@torch.no_grad()
def _prepared(model: AnyNetwork, path: str | Path, device: torch.device | None) -> AnyNetwork:
    """The model on its device, after a check of its weights."""
    table = isinstance(model, TableModel)
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor.is_meta or not tensor.is_floating_point():  # its weights are not in memory
            continue
        valid = tensor <= _ROUNDING if table else torch.isfinite(tensor)  # false for NaN
        if not bool(valid.all()):
            raise ModelError(
                f"{path}: {name} has weights that are NaN or infinite",
                remedy="Pass an earlier checkpoint, or train again with a lower --learning-rate.",
            )
    if device is None and model.architecture != "hugging-face":  # that is on several devices
        device = choose_device()
    return (model if device is None else model.to(device)).eval()


def _load_kind(
    kind: type[AnyNetwork], path: str | Path, device: str, lacks: str, commands: str
) -> AnyNetwork:
    target, folder = choose_device(device), model_folder(path)
    require_model(folder)
    model = _load_checkpoint(folder)
    if isinstance(model, kind):
        return _prepared(model, path, target)
    actual = "a language model"
    if isinstance(model, Seq2SeqModel):
        actual = "a sequence-to-sequence model"
    elif isinstance(model, IntentSlotNetwork):
        actual = "an intent-and-slot model"
    raise ModelError(f"{path} is {actual} and {lacks}", remedy=f"Pass a model of {commands}.")


def _load_checkpoint(folder: Path) -> Network | None:
    """The model of a Vestige checkpoint; None for other folders."""
    if (folder / LABELS).is_file():
        from vestige.models.nlu_encoder import load_encoder

        return load_encoder(folder)
    file = folder / DESCRIPTION
    if not file.is_file():
        return None
    description = read_json(file, _Description, error=ModelError, remedy=SAVE_AGAIN)
    name = description.architecture
    if description.format != FORMAT or name not in BUILDERS:
        raise ModelError(
            f"{file} has format {description.format!r} and architecture {name!r}; this version of "
            f"Vestige reads format {FORMAT} ({', '.join(sorted(BUILDERS))})",
            remedy="Install the version of Vestige that wrote it, or save the model again.",
        )
    weights = folder / WEIGHTS
    require_regular(weights, error=ModelError, remedy=SAVE_AGAIN)
    if sha256([weights]) != description.sha256:
        raise ModelError(
            f"{weights} does not have the SHA-256 in {DESCRIPTION}: it is incomplete or was "
            "changed",
            remedy=SAVE_AGAIN,
        )
    vocabulary, config = _vocabulary(folder, description.vocabulary), dict(description.config)
    if name == Seq2SeqModel.architecture:
        config[SOURCE] = _vocabulary(folder / SOURCE, description.source)

    def build() -> Network:
        return BUILDERS[name](vocabulary, config, description.vocab_size)

    try:
        if name != TableModel.architecture:  # a table is created with its probabilities
            require_fit(weights, build)  # allocate no more than the file has
        model = build()
        load_weights(model, weights)
    except (ValueError, TypeError, RuntimeError, safetensors.SafetensorError) as error:
        raise ModelError(
            f"{weights} does not fit the configuration in {DESCRIPTION}: {error}", remedy=SAVE_AGAIN
        ) from error
    return model


def _vocabulary(folder: Path, expected: str | None) -> Vocabulary:
    try:
        vocabulary = load_vocabulary(folder)
    except (VestigeError, OSError, ValueError) as error:
        raise ModelError(
            f"the vocabulary in {folder} cannot be read: {error}", remedy=SAVE_AGAIN
        ) from error
    if vocabulary.fingerprint() != expected:
        raise ModelError(
            f"the vocabulary in {folder} is not the one in {DESCRIPTION}", remedy=SAVE_AGAIN
        )
    return vocabulary
