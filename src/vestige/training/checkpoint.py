"""Checkpoints: a training resumes to the same bits after any interruption.

    training.json            what is being trained, on what and how; written first
    checkpoint.safetensors   everything the next step depends on, in one file
    history.json             a record an epoch, for people and plots
    log.jsonl                a line every few steps, for people and plots
    model/                   the best model; the last thing written

Every file but the log is written beside its place and renamed into it, so that a kill at any
moment leaves the one before. Chance is part of the checkpoint: torch's generators stand in it. In
a private training they do not: its chance follows from a secret (`key_file`) and the step.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from vestige.data.encoded import EncodedCorpus
from vestige.data.files import (
    LARGEST,
    Count,
    Measurements,
    conform,
    parse_object,
    read_bytes,
    read_object,
)
from vestige.data.writing import make_directory, replacing_name, write_text
from vestige.errors import TrainingError
from vestige.models.protocols import LanguageModel, Network
from vestige.training.history import EpochRecord
from vestige.training.steps import Learns, Private

IDENTITY, CHECKPOINT = "training.json", "checkpoint.safetensors"
HISTORY, LOG, MODEL = "history.json", "log.jsonl", "model"
CONFIGURATION = "model configuration"  # dropout is in no weight
_AFRESH = "Start again in a new directory."
_NO_LOG = "Remove it: the training does not need it."
_HASH = 64  # letters of a SHA-256


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


class _LogLine(Measurements):
    """Schema of a line of the log."""

    step: Count
    clipped: float | None = None
    median_norm: float | None = None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a training, beside model and optimizer.

    Attributes:
        step: steps taken.
        loss: float64 scalar, the summed loss of the tokens since the last evaluation, in nats.
        tokens: their number.
        state: carried into the next window; None at the start of an epoch.
        epochs: records of the evaluations so far.
        best: the weights of the best record so far; empty without validation data.
        stopped: a StopFn has ended the training.
        seconds: of learning since the last evaluation.
    """

    step: int
    loss: Tensor
    tokens: int
    state: Any
    epochs: tuple[EpochRecord, ...]
    best: Mapping[str, Tensor]
    stopped: bool = False
    seconds: float = 0.0


def weights(model: Network) -> dict[str, Tensor]:
    """Trainable parameters, each once, and buffers."""
    found = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return found | dict(model.named_buffers())


@torch.no_grad()
def restore(model: Network, kept: Mapping[str, Tensor]) -> None:
    """Copy weights into a model, in place."""
    for name, tensor in weights(model).items():
        tensor.copy_(kept[name])


def save(
    directory: Path,
    position: Progress,
    model: Network,
    optimizer: torch.optim.Optimizer,
    step: object,
) -> None:
    """Replace the checkpoint atomically."""
    tensors = {f"model.{name}": tensor for name, tensor in weights(model).items()}
    tensors |= {f"best.{name}": tensor for name, tensor in position.best.items()}
    tensors |= {f"state.{name}": tensor for name, tensor in _tensors(position.state).items()}
    for index, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": moments[name] for name in moments}
    if isinstance(step, Learns):
        tensors |= {f"step.{name}": tensor for name, tensor in step.tensors().items()}
    tensors["loss"] = position.loss
    if not isinstance(step, Private):
        tensors["chance.cpu"] = torch.get_rng_state()
    if model.device.type == "cuda" and not isinstance(step, Private):
        tensors["chance.cuda"] = torch.cuda.get_rng_state(model.device)
    facts = {
        "step": position.step,
        "tokens": position.tokens,
        "stopped": position.stopped,
        "seconds": position.seconds,
        "epochs": [asdict(record) for record in position.epochs],
    }
    held = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        # What it holds was not noised, or not all of it: moments, losses, chance.
        with replacing_name(directory / CHECKPOINT) as part:
            save_file(held, part, metadata={"position": json.dumps(facts)})
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
        The position, or None when the training was interrupted before its first checkpoint.

    Raises:
        TrainingError: the checkpoint is not whole.
    """
    path = directory / CHECKPOINT
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            told = (file.metadata() or {}).get("position", "").encode()
            facts = _facts(told, path)
            # Clones lie where torch's own allocator puts tensors: views into the file may not be
            # aligned, and vector kernels round their unaligned ends differently.
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
            remedy=_AFRESH,
        ) from error


def identity(model: Network, settings: Mapping[str, object]) -> dict[str, object]:
    """Identity of a training: equal identities end in the same bits."""
    config = None if model.config is None else asdict(model.config)
    return {
        "format": 1,
        **settings,
        "model architecture": model.architecture,
        CONFIGURATION: config,
        "model vocabulary": model.vocabulary.fingerprint(),
        "model weights at the start": _hash(_named_bytes(weights(model))),
    }


def open_directory(directory: Path, asked: Mapping[str, object], *, resume: bool) -> None:
    """Begin a training's directory, or check that it holds this training.

    Raises:
        TrainingError: it holds a training and `resume` is off, or it holds another one.
    """
    path = directory / IDENTITY
    if not path.exists():
        if (directory / MODEL).exists() or (directory / CHECKPOINT).exists():
            raise TrainingError(
                f"{directory} has a model, but not its training",
                remedy="Train into a new directory.",
            )
        try:
            make_directory(directory)
            write_json(path, asked)
        except OSError as error:
            raise TrainingError(
                f"{directory} cannot be written ({error})",
                remedy="Choose a writable directory on a disk with space.",
            ) from error
        return
    if not resume:
        raise TrainingError(
            f"{directory} already has a training",
            remedy="Pass --resume, or another directory.",
        )
    before = read_object(path, error=TrainingError, remedy=_AFRESH, finite=False)
    before.setdefault(CONFIGURATION, asked.get(CONFIGURATION))  # older ones do not say it
    differing = _differences(before, json.loads(json.dumps(asked)))
    if differing:
        raise TrainingError(
            f"{directory} has another training: {'; '.join(differing)}",
            remedy="Resume with the same settings, data and model, or choose another directory.",
        )


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def cut_log(directory: Path, step: int) -> None:
    """Drop log lines past a step, and an incomplete last line."""
    path = directory / LOG
    if not path.exists():
        return
    kept = [line for line, entry in log_lines(path) if entry.get("step", 0) <= step]
    write_text(path, "".join(f"{line}\n" for line in kept))


def log_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lines of a log, parsed, without an incomplete last line.

    Raises:
        TrainingError: a line is no JSON, or says no step, or the log is no ordinary file.
    """
    content = read_bytes(path, limit=LARGEST, error=TrainingError, remedy=_NO_LOG)
    for number, line in enumerate(content.splitlines(), 1):
        if not line.endswith(b"}"):
            continue
        where = f"{path}, line {number},"
        entry = parse_object(line, where, error=TrainingError, remedy=_NO_LOG, finite=False)
        conform(entry, _LogLine, where, error=TrainingError, remedy=_NO_LOG)
        yield line.decode(), entry


def _facts(told: bytes, path: Path) -> dict[str, Any]:
    entry = parse_object(told, path, error=TrainingError, remedy=_AFRESH, finite=False)
    conform(entry, _Facts, path, error=TrainingError, remedy=_AFRESH)
    return entry  # as it was: 1 and 1.0 are not the same bits


def _require_shapes(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless tensors have the expected names and shapes."""
    if wanted.keys() != found.keys():
        raise ValueError("it has weights of another model")
    for name, tensor in wanted.items():
        if tensor.shape != found[name].shape:
            raise ValueError(f"{name} has the shape {tuple(found[name].shape)}")


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix and a dot, by the rest of their names."""
    start = f"{prefix}."
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}


def _tensors(state: Any) -> dict[str, Tensor]:
    if state is None:
        return {}
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _carried(model: Network, tensors: Mapping[str, Tensor]) -> Any:
    """Carried state of the model, with the saved tensors."""
    if not tensors or not isinstance(model, LanguageModel):
        return None
    return replace(model.start(1), **{k: v.to(model.device) for k, v in tensors.items()})


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state of an optimizer from tensors by "index.name"."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _differences(before: Any, now: Any, where: str = "") -> list[str]:
    both = isinstance(before, dict) and isinstance(now, dict)
    if both and before.get("name") == now.get("name"):
        keys = sorted(before.keys() | now.keys())
        inside = f"{where}." if where else ""
        return [
            line
            for key in keys
            for line in _differences(before.get(key), now.get(key), f"{inside}{key}")
        ]
    if before == now:
        return []
    return [f"{where} was {_brief(before)} and is {_brief(now)}"]


def _brief(value: Any) -> Any:
    """Setting in a message: a name, or the beginning of a hash."""
    if isinstance(value, dict) and "name" in value:
        value = value["name"]
    if not isinstance(value, str):
        return value
    return value.partition(".<locals>")[0] if len(value) < _HASH else value[:12]


def corpus_hash(data: EncodedCorpus) -> str:
    """SHA-256 (hex) over all parts of a corpus that affect a training."""
    parts: list[bytes | memoryview] = [data.tokens.data, data.offsets.data]
    if data.users is not None:  # they decide about batches by user
        parts += [data.users.data, "\n".join(data.names).encode()]
    return _hash(iter(parts))


def _named_bytes(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    for name, tensor in tensors.items():
        yield f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode()
        yield tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data


def _hash(parts: Iterator[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
