"""The folder of a model: its files, their hash, its replacement, and its record in a run.

A directory cannot be renamed over another one. So the old one is first moved to a hidden name, and
a reader between the two renames finds it there. A Hugging Face folder can name its weight files
(in `config.json`, or shards in an index). Such a name must not have a path, so that the hashed
files are exactly the loaded files. Symbolic links are followed, as the cache of the hub needs.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from vestige.data import writing
from vestige.data.files import read_object
from vestige.errors import ModelError

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.utterances import Utterances
    from vestige.models.protocols import Network

DESCRIPTION, CONFIG, ADAPTER_CONFIG = "model.json", "config.json", "adapter_config.json"
DESCRIPTIONS = (DESCRIPTION, CONFIG, ADAPTER_CONFIG)
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER, HEADS, GGUF = "adapter_model.safetensors", "heads.safetensors", ".gguf"
LABELS = "intent_slot.json"
"""File with the labels of an encoder with heads, an intent-and-slot model."""
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
SAVE_REMEDY = "Save the model with save_pretrained of transformers 5, which writes safetensors."


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """New folder that replaces `directory` if the block succeeds.

    If the block raises or the process dies, `directory` does not change. The umask decides who
    may read the folder, since models are made for release.

    Raises:
        ModelError: the directory cannot be written.
    """
    directory = directory.absolute()
    try:
        if directory.exists() and not directory.is_dir():
            raise NotADirectoryError(f"{directory} is a file")
        with writing.staging_directory(directory) as new:
            yield new
            writing.share(new)
            old = _hidden_name(directory)
            if directory.exists():
                shutil.rmtree(old, ignore_errors=True)
                os.replace(directory, old)
            os.replace(new, directory)
            shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"the model cannot be saved in {directory}: {error}",
            remedy="Choose a writable directory on a disk with space.",
        ) from error


def existing_directory(directory: Path) -> Path:
    """The directory, or its predecessor after a kill between the two renames."""
    old = _hidden_name(directory.absolute())
    return old if not directory.exists() and old.is_dir() else directory


def model_folder(path: str | Path) -> Path:
    """Folder of the files of a model: `path`, or `path`/model in the output of a training."""
    folder = existing_directory(Path(path))
    inner = existing_directory(folder / "model")
    return inner if inner.is_dir() and not _has_description(folder) else folder


def gguf_file(path: Path) -> Path | None:
    """The GGUF file at a path, or the only one in a folder without another model."""
    if path.suffix == GGUF:
        return None if path.is_dir() else path
    if any((path / name).exists() for name in DESCRIPTIONS) or not path.is_dir():
        return None
    files = list(path.glob(f"*{GGUF}"))
    return files[0] if len(files) == 1 else None


def is_model(path: Path) -> bool:
    """Whether a path holds a model or a finished training."""
    folder = model_folder(path)
    return _has_description(folder) or ((file := gguf_file(folder)) is not None and file.is_file())


def on_hub(path: str | Path) -> bool:
    """Whether a path may be the name of a hub model."""
    return not Path(path).exists() and HUB_NAME.fullmatch(str(path)) is not None


def require_model(folder: Path) -> None:
    """Raise ModelError if a folder has no model."""
    if gguf_file(folder) is not None or _has_description(folder):
        return
    problem = f"has no {DESCRIPTION}, {CONFIG} or {ADAPTER_CONFIG}"
    if not folder.is_dir():
        problem = "is a file" if folder.is_file() else "does not exist"
    raise ModelError(
        f"{folder} {problem}",
        remedy=(
            "Pass a directory of `vestige train`, a Hugging Face model (folder, GGUF file or hub "
            "name) or a PEFT adapter folder."
        ),
    )


def weight_files(folder: Path) -> list[Path]:
    """Weight files of a folder or GGUF file, in loading order; of an adapter, its own.

    Raises:
        ModelError: there is none, or a file in the folder names weights outside it.
    """
    if (file := gguf_file(folder)) is not None:
        return _require_files([file])
    if (folder / LABELS).is_file():
        return sorted([*pretrained_files(folder), folder / HEADS])
    if (folder / DESCRIPTION).is_file():
        return _require_files([folder / WEIGHTS])
    if (folder / ADAPTER_CONFIG).is_file():
        return _require_files([folder / ADAPTER])
    return pretrained_files(folder)


def pretrained_files(folder: Path) -> list[Path]:
    """Weight files that transformers reads from a folder without an adapter."""
    config = folder / CONFIG
    weights = _read_json(config).get("transformers_weights") if config.is_file() else None
    if weights is not None:
        weights = _file_name(weights, config)
    elif (folder / WEIGHTS).is_file():
        weights = WEIGHTS
    elif (folder / INDEX).is_file():
        weights = INDEX
    else:
        pickles = [file for ending in PICKLES for file in folder.glob(ending)]
        raise ModelError(
            f"{pickles[0]} is a pickle file, which can run code"
            if pickles
            else f"{folder} has no weights: neither {WEIGHTS} nor its shards",
            remedy=SAVE_REMEDY,
        )
    if not weights.endswith(".index.json"):
        return _require_files([folder / weights])
    index = folder / weights
    shards = _read_json(_require_files([index])[0]).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ModelError(f"{index} has no weight_map", remedy=SAVE_REMEDY)
    names = sorted({_file_name(name, index) for name in shards.values()})
    return _require_files([folder / name for name in names])


def sha256(files: list[Path]) -> str:
    """SHA-256 (hex) over the contents of some files."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def fingerprint(path: str | Path) -> str:
    """SHA-256 (hex) of the weights that loading a model reads; of an adapter, its own.

    Raises:
        ModelError: a weight file is missing, or is outside the folder.
    """
    folder = model_folder(path)
    if on_hub(path):
        from vestige.models.pretrained import downloaded

        folder = downloaded(str(path)) or folder
    require_model(folder)
    return sha256(weight_files(folder))


def sha256_of(source: "str | PathLike[str] | Network") -> str:
    """SHA-256 of a model's weight files, or of names, shapes, types and values of its tensors."""
    if isinstance(source, str | PathLike):
        return fingerprint(fspath(source))
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(source.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def model_record(source: object, model: "Network") -> dict[str, object]:
    """Record of a model: path (None for an object), kind, size, SHA-256, and base of an adapter."""
    path = fspath(source) if isinstance(source, str | PathLike) else None
    base = getattr(model, "base", None) if path is not None else None
    return {
        "path": path,
        "architecture": getattr(model, "architecture", type(model).__name__),
        "parameters": _parameters(model),
        "sha256": sha256_of(model if path is None else path),
        "vocabulary": model.vocabulary.fingerprint(),
        **({"base": {"path": base, "sha256": fingerprint(base)}} if base else {}),
    }


def network_record(model: "Network") -> dict[str, object]:
    """Record of a model before training: its size, vocabulary and configuration."""
    return {
        "architecture": model.architecture,
        "parameters": _parameters(model),
        "vocabulary": model.vocabulary.fingerprint(),
        "tokens": len(model.vocabulary),
        **(asdict(model.config) if model.config is not None else {}),
    }


def corpus_record(source: object, corpus: "Corpus | Utterances") -> dict[str, object]:
    """Record of a corpus: path (None for an object), size and SHA-256."""
    path = fspath(source) if isinstance(source, str | PathLike) else None
    return {"path": path, "documents": len(corpus), "sha256": corpus.fingerprint()}


def _parameters(model: "Network") -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _hidden_name(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.before")


def _has_description(folder: Path) -> bool:
    return any((folder / name).is_file() for name in DESCRIPTIONS)


def _file_name(name: Any, file: Path) -> str:
    """A name of a weight file, which must not have a path."""
    valid = isinstance(name, str) and Path(name).name == name and "\0" not in name
    if not valid or not name.endswith((".safetensors", ".safetensors.index.json")):
        raise ModelError(
            f"{file} names weights by {name!r}, which is not a safetensors file in the same folder",
            remedy="Download the model again from its source. If the error remains, do not use it.",
        )
    return str(name)


def _read_json(file: Path) -> dict[str, Any]:
    return read_object(file, error=ModelError, remedy=SAVE_REMEDY)


def _require_files(files: list[Path]) -> list[Path]:
    for file in files:
        if not file.is_file():
            raise ModelError(f"{file} is missing", remedy=SAVE_REMEDY)
    return files
