"""LoRA adapters, low-rank trained matrices added to frozen weights, and distances between weights.

Hu et al. (2021), "LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685.
An adapter folder holds only the low-rank matrices and the name of its base.
"""

import copy
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from peft.tuners.lora.layer import LoraLayer
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import ModulesToSaveWrapper
from safetensors import safe_open
from torch import Tensor, nn

from vestige import _validate
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError
from vestige.models import pretrained
from vestige.models.folders import ADAPTER, ADAPTER_CONFIG, gguf_file, model_folder
from vestige.models.foreign_files import read_adapter
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.pretrained import CPU
from vestige.models.protocols import LanguageModel

_LORA_REMEDY = "Pass a LoRA adapter whose base is in base_model_name_or_path."


def add_lora(
    model: HuggingFaceLanguageModel,
    *,
    rank: int = 8,
    alpha: float = 16,
    dropout: float = 0.0,
    target_modules: Sequence[str] | None = None,
) -> HuggingFaceLanguageModel:
    """`model` with trainable matrices A and B of low rank and frozen W: W + alpha / rank * B A.

    B starts from zero, so the first outputs equal those of `model`, which does not change. Both
    share the frozen weights, which train in neither. A starts from torch's global generator.

    Args:
        model: a whole model as it was loaded; the adapter names its folder as base.
        rank: rows of A.
        alpha: see the formula.
        dropout: on the input of A.
        target_modules: names of the linear layers to adapt; None: PEFT's choice.

    Raises:
        ValueError: a value is out of range, or `model` is an adapter already.
        ModelError: there are no such layers.
    """
    _validate.positive(rank=rank, alpha=alpha)
    _validate.fraction(dropout=dropout)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=None if target_modules is None else list(target_modules),
        # GPT-2's layers store transposed weights; otherwise PEFT warns.
        fan_in_fan_out=any(type(layer).__name__ == "Conv1D" for layer in model.modules()),
    )
    return _with_adapter(model, config)


def adapter_like(model: HuggingFaceLanguageModel, folder: Path) -> HuggingFaceLanguageModel:
    """`model` with a new adapter of the kind and shape of the one in `folder`; see `add_lora`."""
    config = _config(folder)
    config.inference_mode = False
    config.base_model_name_or_path = None  # the base is `model`
    if hasattr(config, "init_lora_weights"):
        config.init_lora_weights = True  # other values rewrite the shared weights of the base
    return _with_adapter(model, config)


def _with_adapter(model: HuggingFaceLanguageModel, config: PeftConfig) -> HuggingFaceLanguageModel:
    if model.adapted:
        raise ValueError("model must be a whole model, got an adapter: load it with merge=True")
    config.task_type = "CAUSAL_LM"
    try:
        with only_our_warnings():
            network = get_peft_model(_with_shared_tensors(model), config)
    except ValueError as error:
        raise ModelError(
            f"{type(model.network).__name__} takes no adapter: {error}",
            remedy="Set target_modules to linear layers of this architecture.",
        ) from error
    return HuggingFaceLanguageModel(network, model.vocabulary).train(model.training)


def _with_shared_tensors(model: HuggingFaceLanguageModel) -> Any:
    """A copy of a network's modules with the same tensors, since PEFT changes the modules."""
    network = model.network
    tensors = [*network.parameters(), *network.buffers()]
    return copy.deepcopy(network, memo={id(tensor): tensor for tensor in tensors})


def load_adapter(
    folder: Path,
    *,
    base: str | Path | LanguageModel | None = None,
    merge: bool = False,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = CPU,
) -> HuggingFaceLanguageModel:
    """Read an adapter and its base.

    Args:
        folder: holds adapter_config.json and adapter_model.safetensors.
        base: folder or hub name of the base, or the loaded base, which shares its weights and is
            not changed; None: the base that the adapter names, see `base_of`.
        merge: add the adapter to the base's weights.
        dtype, device: see `pretrained.load`.

    Raises:
        ModelError: adapter or base is missing or damaged, or they do not fit together.
    """
    if not (folder / ADAPTER).is_file():
        raise ModelError(
            f"{folder} has no {ADAPTER}; pickle files (adapter_model.bin) are not loaded, since "
            "they can run code",
            remedy="Save the adapter again with save_pretrained of a recent peft.",
        )
    _config(folder)
    if isinstance(base, LanguageModel):
        if not isinstance(base, HuggingFaceLanguageModel) or base.adapted:
            raise ModelError(
                f"{folder} is an adapter; its base is not a whole Hugging Face model",
                remedy="Pass the base that it was trained on.",
            )
        if merge:
            raise ValueError("merge must not be given with a loaded base, whose weights it changes")
        base_model, wiring = base, _with_shared_tensors(base)
    else:
        path = base_of(folder) if base is None else model_folder(base)
        base_model = pretrained.load(path, dtype=dtype, device=device)
        wiring = base_model.network
    try:
        with only_our_warnings():
            _resize_embeddings(wiring, folder / ADAPTER)
            network: Any = PeftModel.from_pretrained(
                wiring, str(folder), autocast_adapter_dtype=False
            )
    except Exception as error:  # KeyError, RuntimeError, SafetensorError, ...
        raise ModelError(
            f"the adapter in {folder} does not fit its base: {error}",
            remedy="Pass the base that it was trained on, or save the adapter again.",
        ) from error
    if merge:
        embeddings = (wiring.get_input_embeddings(), wiring.get_output_embeddings())
        adapted = any(isinstance(layer, BaseTunerLayer) for layer in embeddings)
        if wiring.config.tie_word_embeddings and adapted:  # PEFT warns
            raise ModelError(
                f"the adapter in {folder} changes embeddings and head separately; its base ties "
                "their weights",
                remedy="Load it without merging.",
            )
        network = network.merge_and_unload()
        network.name_or_path = ""  # its weights differ from those in the base's folder
    vocabulary = base_model.vocabulary
    if (folder / "tokenizer.json").is_file():
        vocabulary = SubwordVocabulary.from_pretrained(folder)
    return HuggingFaceLanguageModel(network, vocabulary).eval()


def _resize_embeddings(network: Any, adapter: Path) -> None:
    """Resize the embeddings of a base to those of an adapter that was trained with more tokens.

    The adapter has the new rows. New parameters keep the embeddings of the base unchanged.
    """
    layers = [network.get_input_embeddings(), network.get_output_embeddings()]
    names = [name for name, module in network.named_modules() if module in layers]
    with safe_open(adapter, framework="pt") as file:
        full_keys = [key for key in file.keys() if "lora_" not in key]  # noqa: SIM118
        embedding_keys = [key for key in full_keys if any(f".{name}." in key for name in names)]
        rows = max((file.get_slice(key).get_shape()[0] for key in embedding_keys), default=0)
    if rows <= len(layers[0].weight):
        return
    for module in filter(None, layers):
        module.weight = nn.Parameter(module.weight.data, requires_grad=False)
    network.resize_token_embeddings(rows, mean_resizing=False)


@contextmanager
def only_our_warnings() -> Iterator[None]:
    """Raise PEFT's serious warnings as errors, and ignore the others."""
    with warnings.catch_warnings():
        # PEFT initialises missing weights and only warns.
        warnings.filterwarnings("error", message="Found missing adapter keys")
        # `load_adapter` refuses to merge in this case.
        warnings.filterwarnings("ignore", message="Model has `tie_word_embeddings=True`")
        # PEFT corrects the setting per layer and warns.
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to")
        # PEFT 0.21 uses an old name of transformers 5.23.
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing")
        yield


def base_of(folder: Path) -> str | Path:
    """Folder or hub name of an adapter's base.

    A relative path starts from the adapter's folder; or from the working directory, if no model is
    there.

    Raises:
        ModelError: the adapter is damaged, or its base is missing.
    """
    file = folder / ADAPTER_CONFIG
    name = _config(folder).base_model_name_or_path
    if not name:
        raise ModelError(f"{file} names no base", remedy=_LORA_REMEDY)
    for path in (folder / name, Path(name)):
        if path.resolve() == folder.resolve():
            continue  # "." names the working directory of the training, not the adapter
        if model_folder(path).is_dir() or gguf_file(path) is not None:
            return model_folder(path)
    if Path(name).is_absolute() or name.startswith("."):
        raise ModelError(
            f"the base of the adapter in {folder} is not at {name}",
            remedy=f"Move it back, or write its new path into base_model_name_or_path in {file}.",
        )
    return str(name)


def _config(folder: Path) -> PeftConfig:
    """Validated configuration of an adapter that changes weights."""
    file = folder / ADAPTER_CONFIG
    read_adapter(file)
    try:
        with only_our_warnings():
            config = PeftConfig.from_pretrained(str(folder))
    except Exception as error:  # for example TypeError for fields of another version
        raise ModelError(
            f"{file} does not describe an adapter: {error!r}", remedy="Save the adapter again."
        ) from error
    if config.is_prompt_learning:
        raise ModelError(f"{file} describes no weight change", remedy=_LORA_REMEDY)
    return config


@torch.no_grad()
def weight_change(before: nn.Module, after: nn.Module) -> float:
    """Euclidean norm of the difference of two models' weights.

    For an adapter, the norm of its changes, layer by layer; NaN if a change is not a matrix. Rows
    that only one model has, such as those of new tokens, do not count.

    Args:
        before: the model before the update; for an adapter its base.
        after: the model after the update.
    """
    adapted = getattr(after, "adapted", False)
    changes = _adapter_changes(after) if adapted else _differences(before, after)
    return math.sqrt(sum(float(change.float().square().sum()) for change in changes))


@torch.no_grad()
def scale_update(before: nn.Module, after: nn.Module, factor: float) -> None:
    """Multiply the difference of a model's weights from an earlier model by `factor`, in place.

    Args:
        before: the model before the update; for an adapter its base.
        after: the model after the update; an adapter is scaled.
        factor: more than 0.
    """
    pairs = [(before, after)]
    if getattr(after, "adapted", False):
        for layer in after.modules():
            if isinstance(layer, LoraLayer):
                layer.scale_layer(factor)
        pairs = [pair for layer in after.modules() for pair in _replaced_modules(layer)]
    for old, new in (weights for pair in pairs for weights in _common_weights(*pair)):
        new.add_(new - old.to(new.dtype), alpha=factor - 1)


def _adapter_changes(adapter: nn.Module) -> Iterator[Tensor]:
    """The weight changes of an adapter, layer by layer; NaN if a change is not a matrix."""
    for layer in adapter.modules():
        if isinstance(layer, BaseTunerLayer):
            layers: Any = layer
            has_delta = hasattr(layers, "get_delta_weight")
            for name in layers.active_adapters:
                yield layers.get_delta_weight(name) if has_delta else torch.tensor(math.nan)
        for old, new in _replaced_modules(layer):
            yield from _differences(old, new)


def _replaced_modules(layer: Any) -> list[tuple[nn.Module, nn.Module]]:
    """Pairs of the modules that an adapter replaces here and their replacements."""
    if not isinstance(layer, ModulesToSaveWrapper):
        return []
    wrapper: Any = layer
    replacements = (wrapper.modules_to_save[name] for name in wrapper.active_adapters)
    return [(wrapper.original_module, module) for module in replacements]


def _differences(before: nn.Module, after: nn.Module) -> Iterator[Tensor]:
    return (new.float() - old.float() for old, new in _common_weights(before, after))


def _common_weights(before: nn.Module, after: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Old and new values of parameters with the same name, cut to the shape that both have."""
    old_parameters = dict(before.named_parameters())
    for name, parameter in after.named_parameters():
        if name in old_parameters:
            old = old_parameters[name].to(parameter.device)
            sizes = zip(old.shape, parameter.shape, strict=True)
            common = tuple(slice(min(a, b)) for a, b in sizes)
            yield old[common], parameter[common]
