"""Reading models that transformers reads: folders, names on the hub, GGUF files.

Never runs code from a model's folder and never reads pickle.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from vestige.data.files import read_object
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError, VestigeError
from vestige.memory import held_numbers, require_filled
from vestige.models.folders import gguf_file, pretrained_files
from vestige.models.foreign_config import require_sound
from vestige.models.gguf_header import read_header
from vestige.models.hugging_face import HuggingFaceLanguageModel

CPU = torch.device("cpu")
REMEDY = (
    "Pass the folder of a whole causal language model (config.json, *.safetensors, "
    "tokenizer.json), a GGUF file, or a hub name that is online or downloaded."
)


def load(
    source: str | Path, *, dtype: torch.dtype = torch.float32, device: torch.device | None = CPU
) -> HuggingFaceLanguageModel:
    """Read a causal language model, a folder or a hub name.

    Args:
        source: which.
        dtype: of its weights in memory.
        device: where they go; None: over all GPUs, layer after layer, and what these cannot hold
            on the host.

    Raises:
        ModelError: it is not a whole model of a kind that can be asked.
    """
    from transformers import AutoModelForCausalLM

    network, address = read_pretrained(
        source, AutoModelForCausalLM, _unlike_causal, REMEDY, dtype=dtype, device=device
    )
    # An adapter names its base by this: a relative path would not outlive the working directory.
    network.name_or_path = str(Path(source).absolute()) if Path(source).exists() else str(source)
    vocabulary = SubwordVocabulary.from_pretrained(address)
    try:
        return HuggingFaceLanguageModel(network, vocabulary).eval()
    except VestigeError:
        raise
    except Exception as error:  # the first words that a network reads show what it cannot do
        raise ModelError(f"{source} cannot be queried: {error}", remedy=REMEDY) from error


def _unlike_causal(config: Any) -> str | None:
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder, not a causal language model"
    return None


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
    """A network of transformers, and the folder or hub name of its tokenizer.

    Args:
        source: a folder or a hub name.
        kind: the class that reads it, such as `AutoModelForCausalLM`.
        unlike: says what is wrong with a configuration; None where nothing is.
        remedy: for a model of another kind.
        spare: prefixes of weights that may be absent.
        dtype: see `load`.
        device: see `load`.

    Raises:
        ModelError: it is not a whole model of this kind.
    """
    from transformers import AutoConfig

    name, files = str(source), _Files.of(source, remedy)
    try:
        config = AutoConfig.from_pretrained(files.folder, trust_remote_code=False, **files.packed)
        problem = unlike(config)
        if problem is not None:
            raise ValueError(problem)
        if (held := files.numbers()) is not None:
            build = partial(kind.from_config, config)
            require_filled(held, build, dtype=dtype, device=device)
        with _quiet():  # the report is judged below
            network, report = kind.from_pretrained(
                files.folder,
                config=config,
                dtype=dtype,
                device_map=_device_map(device),
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                **files.packed,
                **_unpacking(files),
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
    if files.packed:  # what is read is a plain network, and is saved as one
        network.hf_quantizer, network.is_quantized = None, False
        vars(network.config).pop("quantization_config", None)
    return network, files.address


@dataclass(frozen=True)
class _Files:
    """Where a model's files are.

    Attributes:
        folder: the folder, or the name on the hub.
        weights: those with weights; none where they are not here yet.
        packed: the name of its GGUF file, as transformers wants it told; none for safetensors.
    """

    folder: str
    weights: tuple[Path, ...] = ()
    packed: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, source: str | Path, remedy: str) -> "_Files":
        name, place = str(source), Path(source)
        if (packed := gguf_file(place)) is not None:
            read_header(packed)
            _require_package("gguf", f"{packed} is a GGUF file")
            return cls(str(packed.parent), (packed,), {"gguf_file": packed.name})
        if not place.is_dir() and not in_reach(name):
            place = downloaded(name) or place
            if not place.is_dir():
                raise ModelError(f"{name}: no such folder or hub model", remedy=remedy)
        if not place.is_dir():
            return cls(name)
        require_sound(place, remedy=remedy)
        if _packed_by(place / "config.json", remedy) == "bitsandbytes":
            _require_package("bitsandbytes", f"{place} has weights packed by bitsandbytes")
        return cls(str(place), tuple(pretrained_files(place)))

    def numbers(self) -> int | None:
        """How many its files hold; None where they are not here yet."""
        if not self.weights:
            return None
        held = read_header(self.weights[0]).held if self.packed else held_numbers(self.weights)
        return held.total()

    @property
    def address(self) -> str:
        """What the tokenizer is read from."""
        return str(Path(self.folder, *self.packed.values()))


def _packed_by(config: Path, remedy: str) -> object:
    """The name of what made weights smaller; None for plain ones."""
    how = read_object(config, error=ModelError, remedy=remedy).get("quantization_config")
    return how.get("quant_method") if isinstance(how, dict) else None


def _require_package(name: str, why: str) -> None:
    if find_spec(name) is None:
        raise ModelError(
            f"{why}; loading it needs the package {name}",
            remedy=f"Install it: pip install 'vestige[{name}]'.",
        )


def _unpacking(files: _Files) -> dict[str, Any]:
    """Ask for plain weights: those that stay packed are multiplied by code from the hub."""
    if not files.packed:
        return {}
    import transformers

    settings = getattr(transformers, "GgufConfig", None)  # older ones know plain weights only
    return {} if settings is None else {"quantization_config": settings(dequantize=True)}


def _device_map(device: torch.device | None) -> Any:
    """Where transformers puts weights as it reads them; None: on the host."""
    if device is None:
        return "balanced"
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
    """Whether a name that is no folder may be asked of the hub now."""
    return _may_be_on_hub(Path(name)) and _hub_answers()


def _may_be_on_hub(place: Path) -> bool:
    """Whether a name can be one of the hub: NAME or OWNER/NAME, and no folder's beside others."""
    parts = place.parts
    return len(parts) == 1 or (len(parts) == 2 and not Path(parts[0]).is_dir() and parts[0] != "/")


def _hub_answers() -> bool:
    """Whether the hub answers, tried once: its own client retries for most of a minute."""
    from huggingface_hub import constants
    from huggingface_hub.utils._http import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # of whichever library makes the request
        return False
    return True
