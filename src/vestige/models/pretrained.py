"""Loading models of transformers: folders, names on the hub, GGUF files.

Code from a model's folder is never run, and pickle files are never read.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError, VestigeError
from vestige.memory import parameter_counts, require_filled
from vestige.models.folders import gguf_file, pretrained_files
from vestige.models.foreign_files import gguf_weights, require_sound
from vestige.models.hugging_face import HuggingFaceLanguageModel

CPU = torch.device("cpu")
REMEDY = (
    "Pass the folder of a whole causal language model (config.json, *.safetensors, "
    "tokenizer.json), a GGUF file, or a hub name that is online or downloaded."
)


def load(
    source: str | Path, *, dtype: torch.dtype = torch.float32, device: torch.device | None = CPU
) -> HuggingFaceLanguageModel:
    """Read a causal language model from a folder, a GGUF file or a hub name.

    Args:
        source: the model.
        dtype: of its weights in memory.
        device: of the weights; None: all GPUs, layer by layer, and the host for the rest.

    Raises:
        ModelError: it is incomplete, or its kind is not supported.
    """
    from transformers import AutoModelForCausalLM

    def config_problem(config: Any) -> str | None:
        seq2seq = getattr(config, "is_encoder_decoder", False)
        return "it is an encoder-decoder, not a causal language model" if seq2seq else None

    network, address = read_pretrained(
        source, AutoModelForCausalLM, config_problem, REMEDY, dtype=dtype, device=device
    )
    # An adapter names its base by this path, so it must be absolute.
    network.name_or_path = str(Path(source).absolute()) if Path(source).exists() else str(source)
    vocabulary = SubwordVocabulary.from_pretrained(address)
    try:
        return HuggingFaceLanguageModel(network, vocabulary).eval()
    except VestigeError:
        raise
    except Exception as error:  # any error of its first forward pass
        raise ModelError(f"{source} cannot be queried: {error}", remedy=REMEDY) from error


def read_pretrained(
    source: str | Path,
    kind: Any,
    config_problem: Callable[[Any], str | None],
    remedy: str,
    *,
    optional: tuple[str, ...] = (),
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = CPU,
) -> tuple[Any, str]:
    """A network of transformers, and the folder, file or hub name of its tokenizer.

    Args:
        source: a folder, a GGUF file or a hub name.
        kind: the class that reads it, such as `AutoModelForCausalLM`.
        config_problem: what is wrong with a configuration; None: nothing.
        remedy: of the error for another kind of model.
        optional: prefixes of weights that may be missing.
        dtype, device: see `load`.

    Raises:
        ModelError: it is incomplete or of another kind.
    """
    import transformers
    from transformers import AutoConfig

    name = str(source)
    folder, weights, gguf = _locate(Path(source), remedy)
    # Quantized weights would run code from the hub; older versions always dequantize.
    dequantized: dict[str, Any] = {}
    if gguf and (gguf_config := getattr(transformers, "GgufConfig", None)):
        dequantized["quantization_config"] = gguf_config(dequantize=True)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, **gguf)
        problem = config_problem(config)
        if problem is not None:
            raise ValueError(problem)
        if weights:
            count = (gguf_weights(weights[0]) if gguf else parameter_counts(weights)).total()
            build = partial(kind.from_config, config)
            require_filled(count, build, dtype=dtype, device=device)
        device_map: Any = "balanced"
        if device is not None:
            device_map = None if device.type == "cpu" else {"": device}
        with _quiet_transformers():  # the report is checked below
            network, report = kind.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                device_map=device_map,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                **gguf,
                **dequantized,
            )
    except Exception as error:  # KeyError, SafetensorError, ...: depends on the defect
        raise ModelError(f"{name} cannot be loaded: {error}", remedy=remedy) from error
    # transformers fills missing weights with random numbers.
    missing = [key for key in report["missing_keys"] if not key.startswith(optional)]
    absent = [*missing, *report["mismatched_keys"]]
    if absent:
        raise ModelError(
            f"the weights in {name} do not fit its config.json: {len(absent)} are missing or have "
            f"another shape, such as {absent[0]}",
            remedy=remedy,
        )
    if gguf:  # the network is dequantized, and is saved so
        network.hf_quantizer, network.is_quantized = None, False
        vars(network.config).pop("quantization_config", None)
    return network, str(Path(folder, *gguf.values()))


def _locate(path: Path, remedy: str) -> tuple[str, list[Path], dict[str, str]]:
    """Folder or hub name, its weight files if they are local, and the name of its GGUF file."""
    if (file := gguf_file(path)) is not None:
        gguf_weights(file)
        _require_package("gguf", f"{file} is a GGUF file")
        return str(file.parent), [file], {"gguf_file": file.name}
    name = str(path)
    if not path.is_dir() and not hub_reachable(name):
        path = downloaded(name) or path
        if not path.is_dir():
            raise ModelError(f"{name}: no such folder or hub model", remedy=remedy)
    if not path.is_dir():
        return name, [], {}
    quantization = require_sound(path, remedy=remedy).get("quantization_config")
    if isinstance(quantization, dict) and quantization.get("quant_method") == "bitsandbytes":
        _require_package("bitsandbytes", f"{path} has weights packed by bitsandbytes")
    return str(path), pretrained_files(path), {}


def _require_package(name: str, why: str) -> None:
    if find_spec(name) is None:
        raise ModelError(
            f"{why}; loading it needs the package {name}",
            remedy=f"Install it: pip install 'vestige[{name}]'.",
        )


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def downloaded(name: str) -> Path | None:
    """The folder of a hub model in the local cache."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, "config.json")
    return Path(config).parent if isinstance(config, str) else None


def hub_reachable(name: str) -> bool:
    """Whether a name that is no folder can be looked up on the hub now.

    A hub name is NAME or OWNER/NAME, where OWNER is not a local folder.
    """
    parts = Path(name).parts
    has_owner = len(parts) == 2 and not Path(parts[0]).is_dir() and parts[0] != "/"
    return (len(parts) == 1 or has_owner) and _hub_answers()


def _hub_answers() -> bool:
    """Whether the hub answers one request; its own client retries for most of a minute."""
    from huggingface_hub import constants
    from huggingface_hub.utils._http import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # of whichever library makes the request
        return False
    return True
