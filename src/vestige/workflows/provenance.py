"""What a run directory says about the models and corpora behind its numbers."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.utterances import Utterances
    from vestige.models.protocols import LanguageModel, Network


def of_model(path: str | Path, model: "Network") -> dict[str, object]:
    """Where a model was read from, what it is, and the SHA-256 of its weights.

    Of an adapter, where its base was read from and the SHA-256 of the base's weights as well.
    """
    from vestige.models.checkpoints import fingerprint

    base = getattr(model, "base", None)

    return {
        "path": str(path),
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


def of_corpus(source: str | Path, corpus: "Corpus | Utterances") -> dict[str, object]:
    """Where a corpus was read from, its size, and its SHA-256."""
    return {"path": str(source), "documents": len(corpus), "sha256": corpus.fingerprint()}


def of_object(model: "LanguageModel") -> dict[str, object]:
    """What is known of a model that was given as an object: nobody knows its files."""
    return {
        "path": None,
        "architecture": getattr(model, "architecture", type(model).__name__),
        "vocabulary": model.vocabulary.fingerprint(),
    }
