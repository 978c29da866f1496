"""Checkpoints: a training resumes to the same bits after any interruption.

A checkpoint has the states of torch's random generators, except for a private training, whose
randomness follows from a secret (`directory.secret_of`) and the step.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from vestige.data.encoded import EncodedCorpus
from vestige.data.files import Count, Measurements, conform, parse_object
from vestige.data.writing import replacing_path
from vestige.errors import TrainingError
from vestige.models.protocols import LanguageModel, Network
from vestige.training.directory import CHECKPOINT, CONFIGURATION
from vestige.training.history import EpochRecord
from vestige.training.steps import Learns, Private

START = "model weights at the start"
_START_AGAIN = "Start again in a new directory."


class _Epoch(Measurements):
    epoch: float
    step: Count
    learning_rate: float
    perplexity: float | None
    validation_perplexity: float | None
    validation_accuracy: float | None
    tokens: Count = 0
    seconds: float = 0.0
    measures: dict[str, float | None] = Field(default_factory=dict)


class _Facts(Measurements):
    """Schema of a checkpoint's metadata."""

    step: Count
    tokens: Count
    stopped: bool
    seconds: float
    epochs: list[_Epoch]


@dataclass(kw_only=True)
class Progress:
    """Progress of a training, apart from model and optimizer.

    Attributes:
        loss: float64 scalar, the summed loss of the tokens since the last evaluation, in nats.
        step: steps taken.
        tokens: since the last evaluation.
        state: for the next window; None at the start of an epoch.
        epochs: records of the evaluations so far.
        best: the weights of the best record so far; empty without validation data.
        stopped: a StopFn has ended the training.
        seconds: of learning since the last evaluation.
    """

    loss: Tensor
    step: int = 0
    tokens: int = 0
    state: Any = None
    epochs: tuple[EpochRecord, ...] = ()
    best: Mapping[str, Tensor] = field(default_factory=dict)
    stopped: bool = False
    seconds: float = 0.0


def weights(model: Network) -> dict[str, Tensor]:
    """Trainable parameters, each once, and buffers."""
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return parameters | dict(model.named_buffers())


@torch.no_grad()
def restore(model: Network, saved: Mapping[str, Tensor]) -> None:
    """Copy weights into a model, in place."""
    for name, tensor in weights(model).items():
        tensor.copy_(saved[name])


def save(
    directory: Path,
    progress: Progress,
    model: Network,
    optimizer: torch.optim.Optimizer,
    step: object,
) -> None:
    """Replace the checkpoint atomically."""
    state = progress.state
    groups: dict[str, Mapping[str, Any]] = {
        "model": weights(model),
        "best": progress.best,
        "state": {} if state is None else {f.name: getattr(state, f.name) for f in fields(state)},
        **{f"optimizer.{n}": moments for n, moments in optimizer.state_dict()["state"].items()},
        "step": step.tensors() if isinstance(step, Learns) else {},
    }
    tensors = {
        f"{group}.{name}": t for group, contents in groups.items() for name, t in contents.items()
    }
    tensors["loss"] = progress.loss
    if not isinstance(step, Private):
        tensors["chance.cpu"] = torch.get_rng_state()
        if model.device.type == "cuda":
            tensors["chance.cuda"] = torch.cuda.get_rng_state(model.device)
    facts = {
        **{name: getattr(progress, name) for name in ("step", "tokens", "stopped", "seconds")},
        "epochs": [asdict(record) for record in progress.epochs],
    }
    contents = {name: t.contiguous() for name, t in tensors.items() if isinstance(t, Tensor)}
    try:
        # Private: moments, losses and random states are not noised, or not all of them.
        with replacing_path(directory / CHECKPOINT) as part:
            save_file(contents, part, metadata={"position": json.dumps(facts)})
    except (SafetensorError, OSError) as error:
        raise TrainingError(
            f"{directory / CHECKPOINT} cannot be written ({error})",
            remedy="Free space on the disk, then resume: the previous checkpoint is intact.",
        ) from error


def load(
    directory: Path, model: Network, optimizer: torch.optim.Optimizer, step: object
) -> Progress | None:
    """Restore model, optimizer, step and random generators from the checkpoint.

    Returns:
        The progress, or None if the training was interrupted before its first checkpoint.

    Raises:
        TrainingError: the checkpoint is damaged.
    """
    path = directory / CHECKPOINT
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = (file.metadata() or {}).get("position", "").encode()
            facts = parse_object(
                metadata, path, error=TrainingError, remedy=_START_AGAIN, finite=False
            )
            conform(facts, _Facts, path, error=TrainingError, remedy=_START_AGAIN)
            # Clones are aligned by torch's allocator. Views into the file may not be, and vector
            # kernels round unaligned ends differently.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        _require_shapes(weights(model), under("model", tensors))
        restore(model, under("model", tensors))
        load_optimizer(optimizer, under("optimizer", tensors))
        if isinstance(step, Learns):
            step.restore(under("step", tensors))
        if "chance.cpu" in tensors:
            torch.set_rng_state(tensors["chance.cpu"])
        if model.device.type == "cuda" and "chance.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["chance.cuda"], model.device)
        return Progress(
            step=facts["step"],
            loss=tensors["loss"].to(model.device),
            tokens=facts["tokens"],
            state=_carried(model, under("state", tensors)),
            epochs=tuple(EpochRecord(**record) for record in facts["epochs"]),
            best={k: v.to(model.device) for k, v in under("best", tensors).items()},
            stopped=facts["stopped"],
            seconds=facts["seconds"],
        )
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise TrainingError(
            f"{path} is not a complete checkpoint of this training ({error})",
            remedy=_START_AGAIN,
        ) from error


def _require_shapes(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless tensors have the expected names and shapes."""
    if expected.keys() != actual.keys():
        raise ValueError("it has weights of another model")
    for name, tensor in expected.items():
        if tensor.shape != actual[name].shape:
            raise ValueError(f"{name} has the shape {tuple(actual[name].shape)}")


def _carried(model: Network, tensors: Mapping[str, Tensor]) -> Any:
    """Carried state of the model, with the saved tensors."""
    if not tensors or not isinstance(model, LanguageModel):
        return None
    return replace(model.start(1), **{k: v.to(model.device) for k, v in tensors.items()})


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose names begin with a prefix and a dot, by the rest of their names."""
    start = f"{prefix}."
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state of an optimizer from tensors by "index.name"."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def identity(model: Network, settings: Mapping[str, object]) -> dict[str, object]:
    """Identity of a training: equal identities give the same bits."""
    return {
        "format": 1,
        **settings,
        "model architecture": model.architecture,
        CONFIGURATION: None if model.config is None else asdict(model.config),
        "model vocabulary": model.vocabulary.fingerprint(),
        START: start_of(model),
    }


def start_of(model: Network) -> str:
    """SHA-256 (hex) of the initial weights of a training."""
    return _hash(_named_bytes(weights(model)))


def corpus_hash(data: EncodedCorpus | None) -> str | None:
    """SHA-256 (hex) over all parts of a corpus that affect a training; None without a corpus."""
    if data is None:
        return None
    parts: list[bytes | memoryview] = [data.tokens.data, data.offsets.data]
    if data.users is not None:  # batches by user depend on them
        parts += [data.users.data, "\n".join(data.names).encode()]
    return _hash(parts)


def _named_bytes(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    for name, tensor in tensors.items():
        yield f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode()
        yield tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data


def _hash(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
