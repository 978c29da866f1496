"""What a run directory says about where its numbers come from."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.utterances import Utterances
    from vestige.models.protocols import Network

COMMAND = "vestige.command"
"""Where the click context holds the command line as it was given."""


def record(
    context: Any,
    configuration: Mapping[str, object],
    *,
    seed: int | None = None,
    models: Mapping[str, object] | None = None,
    data: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """The `run` of `results.save`.

    Args:
        context: the click context of the verb.
        configuration: every setting that the result depends on.
        seed: where chance entered.
        models: `of_model` by role.
        data: `of_corpus` by role.
    """
    return {
        "command": context.meta.get(COMMAND, []),
        "configuration": configuration,
        "seed": seed,
        "models": models or {},
        "data": data or {},
    }


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
