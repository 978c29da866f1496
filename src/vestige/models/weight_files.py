"""Weight files of a model: what is hashed is exactly what is loaded.

A Hugging Face folder may name its weights: `config.json` a file of another name, an index the
shards. Such a name must be a plain one, since a path could lead to weights that nobody hashed.
Symbolic links are followed, as the cache of the hub needs: a hash covers what they lead to.

Every tokenizer and vocabulary is hashed as it was read, and needs no list of files.
"""

from pathlib import Path
from typing import Any

from vestige.data.files import read_object
from vestige.errors import ModelError
from vestige.models.folders import ANSWERS, gguf_file

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
HEADS = "heads.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
SAVE = "Save the model with save_pretrained of transformers 5, which writes safetensors."


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
