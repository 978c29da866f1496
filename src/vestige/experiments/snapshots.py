"""A model trained for an experiment: found again when the experiment is repeated."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vestige.data.canary import Canary
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.file_lock import LOCK, discard
from vestige.data.vocabulary import Vocabulary
from vestige.defences.registry import Defence, NoDefence
from vestige.errors import RunError
from vestige.experiments.regularization.exposure_callback import Watch
from vestige.models.checkpoints import load_model
from vestige.models.protocols import LanguageModel, choose_device
from vestige.training.config import TrainingConfig
from vestige.training.history import EpochRecord, StopAtPerplexity, best_epoch
from vestige.training.presets import Shape, new_model
from vestige.training.snapshot import snapshot

UNDEFENDED = NoDefence()


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training that can be sent to another process.

    Attributes:
        directory: the training's own.
        corpus: what to learn.
        vocabulary: what the ids mean.
        config: how; its seed draws fresh weights too.
        start: the shape of fresh weights, or the directory of the training to continue.
        validation: decides which epoch is kept.
        defence: under which it learns.
        levels: validation perplexities, falling, at which the model is measured; it ends at the
            last. None: it learns to its last epoch.
        canaries: whose exposure is watched on the way to the levels.
        probed: documents with users, from which a fresh discriminator tells authors at the end.
    """

    directory: Path
    corpus: Corpus
    vocabulary: Vocabulary
    config: TrainingConfig
    start: Shape | Path
    validation: Corpus
    defence: Defence = UNDEFENDED
    levels: tuple[float, ...] = ()
    canaries: tuple[Canary, ...] = ()
    probed: Corpus | None = None


def is_finished(directory: Path) -> bool:
    """Whether a training ran to its end there."""
    return (directory / "model" / "model.json").is_file()


def train_all(
    trainings: Iterable[Training],
    *,
    map_fn: Callable[..., Iterable[Path]] = map,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Run those trainings that are not finished, each after the one that it continues.

    Args:
        trainings: with directories of their own; the same one may come twice.
        map_fn: `map`, or one over processes.
        say: told in a line what is to be trained, and what has been.

    Raises:
        RunError: a finished training was made with another configuration.
    """
    waiting = {training.directory: training for training in trainings}
    for training in list(waiting.values()):
        if is_finished(training.directory):
            _check_config(training)
            discard(training.directory / LOCK)
            del waiting[training.directory]
    while waiting:
        ready = [t for t in waiting.values() if t.start not in waiting]
        if not ready:
            raise ValueError(f"trainings must not continue one another in a circle: {[*waiting]}")
        say(f"{len(waiting)} trainings to go; each writes a log.jsonl, first {ready[0].directory}")
        for directory in map_fn(_train, ready):
            say(f"trained {directory}: perplexity {kept_epoch(directory).validation_perplexity}")
            del waiting[directory]


def kept_epoch(directory: Path) -> EpochRecord:
    """The record of the epoch whose weights a finished training kept."""
    history: list[dict[str, Any]] = json.loads((directory / "history.json").read_text("utf-8"))
    records = [EpochRecord(**entry) for entry in history]
    return records[best_epoch(records) - 1]


def kept_precision(directory: Path) -> str:
    """The number format in which a training multiplied, such as "float32"."""
    recorded: str = json.loads((directory / "training.json").read_text("utf-8"))["precision"]
    return recorded.removeprefix("torch.")


def _train(training: Training) -> Path:
    config, start = training.config, training.start

    def fresh() -> LanguageModel:
        if isinstance(start, Path):
            return load_model(start)
        model = new_model(training.vocabulary, start, seed=config.seed)
        return model.to(choose_device())

    snapshot(
        training.directory,
        training.corpus,
        start=fresh,
        vocabulary=training.vocabulary,
        config=config,
        validation=training.validation,
        defence=training.defence,
        stop=StopAtPerplexity(training.levels[-1]) if training.levels else None,
        observe=_watch(training),
    )
    return training.directory


def _watch(training: Training) -> Watch | None:
    if not training.levels:
        return None
    return Watch(
        directory=training.directory,
        canaries=training.canaries,
        levels=training.levels,
        validation=encode(training.validation, training.vocabulary),
        probed=None if training.probed is None else encode(training.probed, training.vocabulary),
        sequence_length=training.config.sequence_length,
    )


def _check_config(training: Training) -> None:
    file = training.directory / "training.json"
    found = json.loads(file.read_text("utf-8"))["config"] if file.exists() else {}
    asked = asdict(training.config)
    differing = [name for name in asked if name in found and found[name] != asked[name]]
    if differing:
        name = differing[0]
        raise RunError(
            f"{training.directory} holds a training with {name} = {found[name]!r}, not "
            f"{asked[name]!r}",
            remedy="Choose another --out for another scale, or remove that training.",
        )
