"""A model's folder: its files, their hash, its replacement, and what a run records about it.

A directory cannot be renamed over another one. The old one is moved to a hidden name first, and
a reader between the two renames finds it there.

A Hugging Face folder may name its weights: `config.json` another file, an index the shards. Such
a name must have no path, since a path could lead to weights that were not hashed: what is hashed
is exactly what is loaded. Symbolic links are followed, as the cache of the hub needs.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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

DESCRIPTION = "model.json"
DESCRIPTIONS = (DESCRIPTION, "config.json", "adapter_config.json")
GGUF = ".gguf"
ANSWERS = "intent_slot.json"
"""The labels of an encoder with heads: its folder is an intent-and-slot model."""
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
HEADS = "heads.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
SAVE = "Save the model with save_pretrained of transformers 5, which writes safetensors."


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """Fresh folder that replaces `directory` when the block ends well.

    When the block raises, or the process dies, `directory` stays what it was. Others may read it
    as far as the umask lets them, since a model is what is meant for release.

    Raises:
        ModelError: the place cannot be written.
    """
    directory = directory.absolute()
    try:
        if directory.exists() and not directory.is_dir():
            raise NotADirectoryError(f"{directory} is a file")
        with writing.beside(directory) as fresh:
            yield fresh
            writing.share(fresh)
            _swap(fresh, directory)
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
    described = any((folder / name).is_file() for name in DESCRIPTIONS)
    return inner if inner.is_dir() and not described else folder


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
    described = any((folder / name).is_file() for name in DESCRIPTIONS)
    return described or ((file := gguf_file(folder)) is not None and file.is_file())


def sha256(files: list[Path]) -> str:
    """SHA-256 (hex) over the contents of some files."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def on_hub(path: str | Path) -> bool:
    """Whether a path may be the name of a model on the hub."""
    return not Path(path).exists() and HUB_NAME.fullmatch(str(path)) is not None


def require_model(folder: Path) -> None:
    """Raise ModelError unless a folder holds a model."""
    if gguf_file(folder) is None and not any((folder / name).is_file() for name in DESCRIPTIONS):
        raise not_a_model(folder)


def not_a_model(path: Path) -> ModelError:
    """The error for a path that holds no model."""
    what = f"has no {DESCRIPTION}, config.json or adapter_config.json"
    if path.is_file() or not path.exists():
        what = "is a file" if path.is_file() else "does not exist"
    return ModelError(
        f"{path} {what}",
        remedy=(
            "Pass a directory of `vestige train`, a Hugging Face model (folder, GGUF file or hub "
            "name) or a PEFT adapter folder."
        ),
    )


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


def weight_files(folder: Path) -> list[Path]:
    """Files from which the weights of a folder, or of a GGUF file, are loaded, in their order.

    Of an adapter these are its own; its base is a model of its own.

    Raises:
        ModelError: there is none, or a name in the folder's files leads out of it.
    """
    if (packed := gguf_file(folder)) is not None:
        return _there([packed])
    if (folder / ANSWERS).is_file():
        return sorted([*pretrained_files(folder), folder / HEADS])
    if (folder / "model.json").is_file():
        return _there([folder / WHOLE])
    if (folder / ADAPTER_CONFIG).is_file():
        return _there([folder / ADAPTER])
    return pretrained_files(folder)


def pretrained_files(folder: Path) -> list[Path]:
    """Weight files that transformers reads, of a folder without an adapter."""
    named = _named_by_config(folder)
    if named is None:
        named = WHOLE if (folder / WHOLE).is_file() else INDEX
    if named == INDEX and not (folder / INDEX).is_file():
        raise _no_weights(folder)
    if named.endswith(".index.json"):
        return _there(_shards(folder / named))
    return _there([folder / named])


def of_model(source: object, model: "Network") -> dict[str, object]:
    """Where a model was read from, what it is, and the SHA-256 of its weights.

    Of an adapter, where its base was read from and the SHA-256 of the base's weights as well.
    """
    if not isinstance(source, str | PathLike):
        return of_object(model)
    path = fspath(source)
    base = getattr(model, "base", None)

    return {
        "path": path,
        "architecture": model.architecture,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "sha256": fingerprint(path),
        "vocabulary": model.vocabulary.fingerprint(),
        **({"base": {"path": base, "sha256": fingerprint(base)}} if base else {}),
    }


def of_network(model: "Network") -> dict[str, object]:
    """What a model is before it is trained: its size, its vocabulary and its settings."""
    from dataclasses import asdict

    own = getattr(model, "config", None)
    return {
        "architecture": model.architecture,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabulary": model.vocabulary.fingerprint(),
        "tokens": len(model.vocabulary),
        **(asdict(own) if own is not None else {}),
    }


def of_corpus(source: object, corpus: "Corpus | Utterances") -> dict[str, object]:
    """Where a corpus was read from, its size, and its SHA-256; an object has no path."""
    path = fspath(source) if isinstance(source, str | PathLike) else None
    return {"path": path, "documents": len(corpus), "sha256": corpus.fingerprint()}


def of_object(model: "Network") -> dict[str, object]:
    """What a model that was given as an object is, and the SHA-256 of its tensors."""
    return {
        "path": None,
        "architecture": getattr(model, "architecture", type(model).__name__),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "sha256": _of_tensors(model),
        "vocabulary": model.vocabulary.fingerprint(),
    }


def sha256_of(source: "str | PathLike[str] | Network") -> str:
    """SHA-256 of the weights of a model: of its file, or of the tensors of an object."""
    if isinstance(source, str | PathLike):
        return fingerprint(fspath(source))
    return _of_tensors(source)


def _swap(fresh: Path, directory: Path) -> None:
    aside = _aside(directory)
    if directory.exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(directory, aside)
    os.replace(fresh, directory)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.before")


def _named_by_config(folder: Path) -> str | None:
    file = folder / "config.json"
    if not file.is_file():
        return None
    named = _content(file).get("transformers_weights")
    return None if named is None else _plain(named, file)


def _shards(index: Path) -> list[Path]:
    named = _content(index).get("weight_map")
    if not isinstance(named, dict) or not named:
        raise ModelError(f"{index} has no weight_map", remedy=SAVE)
    return [index.parent / name for name in sorted({_plain(n, index) for n in named.values()})]


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


def _there(files: list[Path]) -> list[Path]:
    for file in files:
        if not file.is_file():
            raise ModelError(f"{file} is missing", remedy=SAVE)
    return files


def _no_weights(folder: Path) -> ModelError:
    pickled = [file for ending in PICKLES for file in folder.glob(ending)]
    return ModelError(
        f"{pickled[0]} is a pickle file, which can run code"
        if pickled
        else f"{folder} has no weights: neither {WHOLE} nor its shards",
        remedy=SAVE,
    )


def _of_tensors(model: "Network") -> str:
    """SHA-256 over names, shapes, types and values of a model's tensors."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
