"""LoRA adapters, low-rank trained matrices beside frozen weights, and how far weights moved.

Hu et al. (2021), "LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685.
An adapter folder holds the low-rank matrices alone and names its base.
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

_LORA = "Pass a LoRA adapter whose base is in base_model_name_or_path."


def add_lora(
    model: HuggingFaceLanguageModel,
    *,
    rank: int = 8,
    alpha: float = 16,
    dropout: float = 0.0,
    target_modules: Sequence[str] | None = None,
) -> HuggingFaceLanguageModel:
    """`model` with trainable matrices A and B of low rank and frozen W: W + alpha / rank * B A.

    B starts from zero: the outputs are at first those of `model`, which keeps them. The two share
    the frozen weights, which no longer train in either. A starts from torch's global generator.

    Args:
        model: a whole model as it was loaded: an adapter names its base by the folder.
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
        # GPT-2's layers store their weights transposed; PEFT would find out and warn.
        fan_in_fan_out=any(type(layer).__name__ == "Conv1D" for layer in model.modules()),
    )
    return _with_adapter(model, config)


def adapter_like(model: HuggingFaceLanguageModel, folder: Path) -> HuggingFaceLanguageModel:
    """`model` with a fresh adapter of the kind and shape of the one in `folder`; see `add_lora`."""
    config = _config(folder)
    config.inference_mode = False
    config.base_model_name_or_path = None  # this base, and not where the other one's was
    if hasattr(config, "init_lora_weights"):
        config.init_lora_weights = True  # others rewrite the base's weights, which are shared
    return _with_adapter(model, config)


def _with_adapter(model: HuggingFaceLanguageModel, config: PeftConfig) -> HuggingFaceLanguageModel:
    if model.adapted:
        raise ValueError("model must be a whole model, got an adapter: load it with merge=True")
    config.task_type = "CAUSAL_LM"
    try:
        with only_our_warnings():
            network = get_peft_model(_rewirable(model), config)
    except ValueError as error:
        raise ModelError(
            f"{type(model.network).__name__} takes no adapter: {error}",
            remedy="Set target_modules to linear layers of this architecture.",
        ) from error
    return HuggingFaceLanguageModel(network, model.vocabulary).train(model.training)


def _rewirable(model: HuggingFaceLanguageModel) -> Any:
    """A copy of a network's wiring, with the same tensors: PEFT rewires what it is given."""
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
        base: folder or hub name of the base, or the base itself, which shares its weights and is
            not changed; None: the one that the adapter names, see `base_of`.
        merge: fold the adapter into the base's weights instead of computing it beside them.
        dtype, device: see `pretrained.load`.

    Raises:
        ModelError: adapter or base are missing, broken or do not fit together.
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
        whole, wiring = base, _rewirable(base)
    else:
        place = base_of(folder) if base is None else model_folder(base)
        whole = pretrained.load(place, dtype=dtype, device=device)
        wiring = whole.network
    try:
        with only_our_warnings():
            _widen(wiring, folder / ADAPTER)
            network: Any = PeftModel.from_pretrained(
                wiring, str(folder), autocast_adapter_dtype=False
            )
    except Exception as error:  # by what is wrong: KeyError, RuntimeError, SafetensorError, ...
        raise ModelError(
            f"the adapter in {folder} does not fit its base: {error}",
            remedy="Pass the base that it was trained on, or save the adapter again.",
        ) from error
    if merge:
        ends = (wiring.get_input_embeddings(), wiring.get_output_embeddings())
        adapted = any(isinstance(end, BaseTunerLayer) for end in ends)
        if wiring.config.tie_word_embeddings and adapted:  # PEFT writes the tensor twice, and warns
            raise ModelError(
                f"the adapter in {folder} changes embeddings and head separately; its base ties "
                "their weights",
                remedy="Load it without merging.",
            )
        network = network.merge_and_unload()
        network.name_or_path = ""  # no longer what stands in the base's folder
    own = (folder / "tokenizer.json").is_file()
    vocabulary = SubwordVocabulary.from_pretrained(folder) if own else whole.vocabulary
    return HuggingFaceLanguageModel(network, vocabulary).eval()


def _widen(wiring: Any, adapter: Path) -> None:
    """Give a wiring as many embeddings as an adapter holds that was trained with more tokens.

    The rows come with the adapter. Resizing works in place: embeddings of a base are not touched.
    """
    ends = [wiring.get_input_embeddings(), wiring.get_output_embeddings()]
    names = [name for name, module in wiring.named_modules() if module in ends]
    with safe_open(adapter, framework="pt") as file:
        whole = [key for key in file.keys() if "lora_" not in key]  # noqa: SIM118
        kept = [key for key in whole if any(f".{name}." in key for name in names)]
        rows = max((file.get_slice(key).get_shape()[0] for key in kept), default=0)
    if rows <= len(ends[0].weight):
        return
    for module in filter(None, ends):
        module.weight = nn.Parameter(module.weight.data, requires_grad=False)
    wiring.resize_token_embeddings(rows, mean_resizing=False)


@contextmanager
def only_our_warnings() -> Iterator[None]:
    """PEFT's warnings that matter as errors, the others not at all."""
    with warnings.catch_warnings():
        # What a file lacks, PEFT starts afresh and only warns.
        warnings.filterwarnings("error", message="Found missing adapter keys")
        # That matters when it is merged, which `load_adapter` refuses.
        warnings.filterwarnings("ignore", message="Model has `tie_word_embeddings=True`")
        # It goes by the layer where linear and transposed ones are mixed, and says so.
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to")
        # PEFT 0.21 still asks transformers 5.23 by the old name.
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing")
        yield


def base_of(folder: Path) -> str | Path:
    """Folder or hub name of an adapter's base; a relative one may start from the adapter's folder.

    Raises:
        ModelError: the adapter is broken, or its base is not there.
    """
    file = folder / ADAPTER_CONFIG
    named = _config(folder).base_model_name_or_path
    if not named:
        raise ModelError(f"{file} names no base", remedy=_LORA)
    for place in (Path(named), folder / named):
        if model_folder(place).is_dir() or gguf_file(place) is not None:
            return model_folder(place)
    if Path(named).is_absolute() or named.startswith("."):
        raise ModelError(
            f"the base of the adapter in {folder} is not at {named}",
            remedy=f"Move it back, or write its new path into base_model_name_or_path in {file}.",
        )
    return str(named)


def _config(folder: Path) -> PeftConfig:
    """Checked configuration of an adapter that changes weights."""
    file = folder / ADAPTER_CONFIG
    read_adapter(file)
    try:
        with only_our_warnings():
            config = PeftConfig.from_pretrained(str(folder))
    except Exception as error:  # such as a TypeError for fields of another version
        raise ModelError(
            f"{file} does not describe an adapter: {error!r}", remedy="Save the adapter again."
        ) from error
    if config.is_prompt_learning:
        raise ModelError(f"{file} describes no weight change", remedy=_LORA)
    return config


@torch.no_grad()
def weight_change(before: nn.Module, after: nn.Module) -> float:
    """Euclidean norm of the difference of two models' weights.

    Of an adapter it is the norm of what it adds to its base, layer by layer; NaN where that is no
    matrix. Rows that only one model has, such as those of new tokens, do not count.

    Args:
        before: the model before the update; of an adapter its base.
        after: the model after it.
    """
    parts = _added(after) if getattr(after, "adapted", False) else _moved(before, after)
    return math.sqrt(sum(float(part.float().square().sum()) for part in parts))


@torch.no_grad()
def stretch(before: nn.Module, after: nn.Module, by: float) -> None:
    """Move a model's weights `by` times as far from those before it, in place.

    Args:
        before: the model before the update; of an adapter its base.
        after: the model after it; an adapter adds `by` times as much.
        by: more than 0.
    """
    pairs = [(before, after)]
    if getattr(after, "adapted", False):
        for layer in after.modules():
            if isinstance(layer, LoraLayer):
                layer.scale_layer(by)
        pairs = [pair for layer in after.modules() for pair in _replaced(layer)]
    for old, new in (both for pair in pairs for both in _shared(*pair)):
        new.add_(new - old.to(new.dtype), alpha=by - 1)


def _added(adapter: nn.Module) -> Iterator[Tensor]:
    """What an adapter adds, a layer at a time; a tensor of NaN where that is no matrix."""
    for layer in adapter.modules():
        if isinstance(layer, BaseTunerLayer):
            layers: Any = layer
            known = hasattr(layers, "get_delta_weight")
            for name in layers.active_adapters:
                yield layers.get_delta_weight(name) if known else torch.tensor(math.nan)
        for old, new in _replaced(layer):
            yield from _moved(old, new)


def _replaced(layer: Any) -> list[tuple[nn.Module, nn.Module]]:
    """The modules that an adapter replaces here, each with its own."""
    if not isinstance(layer, ModulesToSaveWrapper):
        return []
    wrapper: Any = layer
    own = (wrapper.modules_to_save[name] for name in wrapper.active_adapters)
    return [(wrapper.original_module, module) for module in own]


def _moved(before: nn.Module, after: nn.Module) -> Iterator[Tensor]:
    return (new.float() - old.float() for old, new in _shared(before, after))


def _shared(before: nn.Module, after: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Old and new weights of each parameter of one name, in the part that both have."""
    earlier = dict(before.named_parameters())
    for name, parameter in after.named_parameters():
        if name in earlier:
            old = earlier[name].to(parameter.device)
            sizes = zip(old.shape, parameter.shape, strict=True)
            part = tuple(slice(min(a, b)) for a, b in sizes)
            yield old[part], parameter[part]
