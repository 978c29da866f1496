"""A model's folder: its files, their hash, its replacement, and its record in a run.

A directory cannot be renamed over another one: the old one is moved to a hidden name first, and a
reader between the two renames finds it there. A Hugging Face folder may name its weights
(`config.json` another file, an index the shards). Such a name must have no path: what is hashed is
exactly what is loaded. Symbolic links are followed, as the cache of the hub needs.
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
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER, HEADS, GGUF = "adapter_model.safetensors", "heads.safetensors", ".gguf"
ANSWERS = "intent_slot.json"
"""The labels of an encoder with heads: its folder is an intent-and-slot model."""
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
SAVE = "Save the model with save_pretrained of transformers 5, which writes safetensors."


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """Fresh folder that replaces `directory` when the block ends well.

    When the block raises, or the process dies, `directory` stays what it was. Others may read it
    as far as the umask lets them, since a model is what is meant for release.

    Raises:
        ModelError: the directory cannot be written.
    """
    directory = directory.absolute()
    try:
        if directory.exists() and not directory.is_dir():
            raise NotADirectoryError(f"{directory} is a file")
        with writing.staging_directory(directory) as fresh:
            yield fresh
            writing.share(fresh)
            aside = _aside(directory)
            if directory.exists():
                shutil.rmtree(aside, ignore_errors=True)
                os.replace(directory, aside)
            os.replace(fresh, directory)
            shutil.rmtree(aside, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"the model cannot be saved in {directory}: {error}",
            remedy="Choose a writable directory on a disk with space.",
        ) from error


def standing(directory: Path) -> Path:
    """The directory, or its predecessor where a kill came between the two renames."""
    former = _aside(directory.absolute())
    return former if not directory.exists() and former.is_dir() else directory


def model_folder(path: str | Path) -> Path:
    """Folder of a model's files: `path`, or its "model" where a training wrote it."""
    folder = standing(Path(path))
    inner = standing(folder / "model")
    return inner if inner.is_dir() and not _described(folder) else folder


def gguf_file(path: Path) -> Path | None:
    """The GGUF file at a path, or the only one in a folder that describes no other model."""
    if path.suffix == GGUF:
        return None if path.is_dir() else path
    if any((path / name).exists() for name in DESCRIPTIONS) or not path.is_dir():
        return None
    found = list(path.glob(f"*{GGUF}"))
    return found[0] if len(found) == 1 else None


def is_model(path: Path) -> bool:
    """Whether a path holds a model or a finished training."""
    folder = model_folder(path)
    return _described(folder) or ((file := gguf_file(folder)) is not None and file.is_file())


def on_hub(path: str | Path) -> bool:
    """Whether a path may be the name of a model on the hub."""
    return not Path(path).exists() and HUB_NAME.fullmatch(str(path)) is not None


def require_model(folder: Path) -> None:
    """Raise ModelError unless a folder holds a model."""
    if gguf_file(folder) is not None or _described(folder):
        return
    what = f"has no {DESCRIPTION}, {CONFIG} or {ADAPTER_CONFIG}"
    if not folder.is_dir():
        what = "is a file" if folder.is_file() else "does not exist"
    raise ModelError(
        f"{folder} {what}",
        remedy=(
            "Pass a directory of `vestige train`, a Hugging Face model (folder, GGUF file or hub "
            "name) or a PEFT adapter folder."
        ),
    )


def weight_files(folder: Path) -> list[Path]:
    """Files from which the weights of a folder, or of a GGUF file, are loaded, in their order.

    Of an adapter these are its own; its base is a model of its own.

    Raises:
        ModelError: there is none, or a name in the folder's files leads out of it.
    """
    if (packed := gguf_file(folder)) is not None:
        return _existing([packed])
    if (folder / ANSWERS).is_file():
        return sorted([*pretrained_files(folder), folder / HEADS])
    if (folder / DESCRIPTION).is_file():
        return _existing([folder / WHOLE])
    if (folder / ADAPTER_CONFIG).is_file():
        return _existing([folder / ADAPTER])
    return pretrained_files(folder)


def pretrained_files(folder: Path) -> list[Path]:
    """Weight files that transformers reads, of a folder without an adapter."""
    config = folder / CONFIG
    named = _content(config).get("transformers_weights") if config.is_file() else None
    if named is not None:
        named = _plain(named, config)
    elif (folder / WHOLE).is_file():
        named = WHOLE
    elif (folder / INDEX).is_file():
        named = INDEX
    else:
        pickled = [file for ending in PICKLES for file in folder.glob(ending)]
        raise ModelError(
            f"{pickled[0]} is a pickle file, which can run code"
            if pickled
            else f"{folder} has no weights: neither {WHOLE} nor its shards",
            remedy=SAVE,
        )
    if not named.endswith(".index.json"):
        return _existing([folder / named])
    index = folder / named
    shards = _content(_existing([index])[0]).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ModelError(f"{index} has no weight_map", remedy=SAVE)
    names = sorted({_plain(name, index) for name in shards.values()})
    return _existing([folder / name for name in names])


def sha256(files: list[Path]) -> str:
    """SHA-256 (hex) over the contents of some files."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def fingerprint(path: str | Path) -> str:
    """SHA-256, in hexadecimal, over the weights that loading a model reads; of an adapter, its own.

    Raises:
        ModelError: no weight file there, or one that is named lies outside the model's folder.
    """
    folder = model_folder(path)
    if on_hub(path):
        from vestige.models.pretrained import downloaded

        folder = downloaded(str(path)) or folder
    require_model(folder)
    return sha256(weight_files(folder))


def sha256_of(source: "str | PathLike[str] | Network") -> str:
    """SHA-256 of the weights of a model: of its files, or of an object's tensors.

    Of tensors it covers names, shapes, types and values.
    """
    if isinstance(source, str | PathLike):
        return fingerprint(fspath(source))
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(source.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def of_model(source: object, model: "Network") -> dict[str, object]:
    """Record of a model: its path, None for an object, its kind and size, and its SHA-256.

    Of an adapter on disk, the path and the SHA-256 of its base as well.
    """
    path = fspath(source) if isinstance(source, str | PathLike) else None
    base = getattr(model, "base", None) if path is not None else None
    return {
        "path": path,
        "architecture": getattr(model, "architecture", type(model).__name__),
        "parameters": _size(model),
        "sha256": sha256_of(model if path is None else path),
        "vocabulary": model.vocabulary.fingerprint(),
        **({"base": {"path": base, "sha256": fingerprint(base)}} if base else {}),
    }


def of_network(model: "Network") -> dict[str, object]:
    """Record of a model before it is trained: its size, its vocabulary and its settings."""
    return {
        "architecture": model.architecture,
        "parameters": _size(model),
        "vocabulary": model.vocabulary.fingerprint(),
        "tokens": len(model.vocabulary),
        **(asdict(model.config) if model.config is not None else {}),
    }


def of_corpus(source: object, corpus: "Corpus | Utterances") -> dict[str, object]:
    """Record of a corpus: its path, None for an object, its size and its SHA-256."""
    path = fspath(source) if isinstance(source, str | PathLike) else None
    return {"path": path, "documents": len(corpus), "sha256": corpus.fingerprint()}


def _size(model: "Network") -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _aside(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.before")


def _described(folder: Path) -> bool:
    return any((folder / name).is_file() for name in DESCRIPTIONS)


def _plain(name: Any, file: Path) -> str:
    """File name, if it has no path in it."""
    plain = isinstance(name, str) and Path(name).name == name and "\0" not in name
    if not plain or not name.endswith((".safetensors", ".safetensors.index.json")):
        raise ModelError(
            f"{file} names weights by {name!r}, which is not a safetensors file in the same folder",
            remedy="Download the model again from its source. If the error remains, do not use it.",
        )
    return str(name)


def _content(file: Path) -> dict[str, Any]:
    return read_object(file, error=ModelError, remedy=SAVE)


def _existing(files: list[Path]) -> list[Path]:
    for file in files:
        if not file.is_file():
            raise ModelError(f"{file} is missing", remedy=SAVE)
    return files
