"""What a run folder says about the models and corpora behind its numbers."""

import hashlib
from os import PathLike, fspath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.utterances import Utterances
    from vestige.models.protocols import Network


def of_model(source: object, model: "Network") -> dict[str, object]:
    """Where a model was read from, what it is, and the SHA-256 of its weights.

    Of an adapter, where its base was read from and the SHA-256 of the base's weights as well.
    """
    from vestige.models.checkpoints import fingerprint

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
    from vestige.models.checkpoints import fingerprint

    if isinstance(source, str | PathLike):
        return fingerprint(fspath(source))
    return _of_tensors(source)


def _of_tensors(model: "Network") -> str:
    """SHA-256 over names, shapes, types and values of a model's tensors."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
