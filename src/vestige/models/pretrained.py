"""Reading models that transformers reads: folders, names on the hub, GGUF files.

Never runs code from a model's folder and never reads pickle.
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
from vestige.memory import held_numbers, require_filled
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
        device: where they go; None: over all GPUs, layer after layer, and what these cannot hold
            on the host.

    Raises:
        ModelError: it is not a whole model of a supported kind.
    """
    from transformers import AutoModelForCausalLM

    def unlike(config: Any) -> str | None:
        seq2seq = getattr(config, "is_encoder_decoder", False)
        return "it is an encoder-decoder, not a causal language model" if seq2seq else None

    network, address = read_pretrained(
        source, AutoModelForCausalLM, unlike, REMEDY, dtype=dtype, device=device
    )
    # An adapter names its base by this: a relative path would not outlive the working directory.
    network.name_or_path = str(Path(source).absolute()) if Path(source).exists() else str(source)
    vocabulary = SubwordVocabulary.from_pretrained(address)
    try:
        return HuggingFaceLanguageModel(network, vocabulary).eval()
    except VestigeError:
        raise
    except Exception as error:  # of whatever the network cannot do with its first tokens
        raise ModelError(f"{source} cannot be queried: {error}", remedy=REMEDY) from error


def read_pretrained(
    source: str | Path,
    kind: Any,
    unlike: Callable[[Any], str | None],
    remedy: str,
    *,
    spare: tuple[str, ...] = (),
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = CPU,
) -> tuple[Any, str]:
    """A network of transformers, and the folder, file or hub name of its tokenizer.

    Args:
        source: a folder, a GGUF file or a hub name.
        kind: the class that reads it, such as `AutoModelForCausalLM`.
        unlike: says what is wrong with a configuration; None where nothing is.
        remedy: for a model of another kind.
        spare: prefixes of weights that may be absent.
        dtype, device: see `load`.

    Raises:
        ModelError: it is not a whole model of this kind.
    """
    import transformers
    from transformers import AutoConfig

    name = str(source)
    folder, weights, packed = _found(Path(source), remedy)
    # Weights that stay packed would be multiplied by code from the hub; older versions unpack.
    unpacked = getattr(transformers, "GgufConfig", None) if packed else None
    plain = {} if unpacked is None else {"quantization_config": unpacked(dequantize=True)}
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, **packed)
        problem = unlike(config)
        if problem is not None:
            raise ValueError(problem)
        if weights:
            held = (gguf_weights(weights[0]) if packed else held_numbers(weights)).total()
            build = partial(kind.from_config, config)
            require_filled(held, build, dtype=dtype, device=device)
        with _quiet():  # the report is judged below
            network, report = kind.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                device_map="balanced" if device is None else _on(device),
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                **packed,
                **plain,
            )
    except Exception as error:  # KeyError to SafetensorError, by what is wrong with the files
        raise ModelError(f"{name} cannot be loaded: {error}", remedy=remedy) from error
    # What a file lacks, transformers fills with random numbers and goes on.
    missing = [key for key in report["missing_keys"] if not key.startswith(spare)]
    absent = [*missing, *report["mismatched_keys"]]
    if absent:
        raise ModelError(
            f"the weights in {name} do not fit its config.json: {len(absent)} are missing or have "
            f"another shape, such as {absent[0]}",
            remedy=remedy,
        )
    if packed:  # what is read is a plain network, and is saved as one
        network.hf_quantizer, network.is_quantized = None, False
        vars(network.config).pop("quantization_config", None)
    return network, str(Path(folder, *packed.values()))


def _found(place: Path, remedy: str) -> tuple[str, list[Path], dict[str, str]]:
    """Folder or hub name, its files of weights if they are here, and its GGUF file by name."""
    if (file := gguf_file(place)) is not None:
        gguf_weights(file)
        _require_package("gguf", f"{file} is a GGUF file")
        return str(file.parent), [file], {"gguf_file": file.name}
    name = str(place)
    if not place.is_dir() and not in_reach(name):
        place = downloaded(name) or place
        if not place.is_dir():
            raise ModelError(f"{name}: no such folder or hub model", remedy=remedy)
    if not place.is_dir():
        return name, [], {}
    packing = require_sound(place, remedy=remedy).get("quantization_config")
    if isinstance(packing, dict) and packing.get("quant_method") == "bitsandbytes":
        _require_package("bitsandbytes", f"{place} has weights packed by bitsandbytes")
    return str(place), pretrained_files(place), {}


def _require_package(name: str, why: str) -> None:
    if find_spec(name) is None:
        raise ModelError(
            f"{why}; loading it needs the package {name}",
            remedy=f"Install it: pip install 'vestige[{name}]'.",
        )


def _on(device: torch.device) -> dict[str, torch.device] | None:
    """Where transformers puts weights as it reads them; None: on the host."""
    return None if device.type == "cpu" else {"": device}


@contextmanager
def _quiet() -> Iterator[None]:
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

    found = try_to_load_from_cache(name, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def in_reach(name: str) -> bool:
    """Whether a name that is no folder may be asked of the hub now.

    A name of the hub is NAME or OWNER/NAME, with no folder of that name beside it.
    """
    parts = Path(name).parts
    owned = len(parts) == 2 and not Path(parts[0]).is_dir() and parts[0] != "/"
    return (len(parts) == 1 or owned) and _hub_answers()


def _hub_answers() -> bool:
    """Whether the hub answers, tried once: its own client retries for most of a minute."""
    from huggingface_hub import constants
    from huggingface_hub.utils._http import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # of whichever library makes the request
        return False
    return True
