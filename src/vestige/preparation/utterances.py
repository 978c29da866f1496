"""Training on labelled utterances: a model of intents and slots.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 6, for dropout, early stopping and character embeddings; Ma and Hovy (2016), table 1, for
the filters of the last.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple

from vestige.data.encoded_utterances import Labels
from vestige.data.read_records import ReadRecords
from vestige.data.secret_manifest import SecretManifest
from vestige.data.utterance_parts import planted_secrets, utterance_parts
from vestige.data.utterances import Utterances
from vestige.defences.registry import NoDefence
from vestige.models.checkpoints import DESCRIPTION, load_intent_slot
from vestige.models.folders import ANSWERS, model_folder
from vestige.models.nlu_encoder import IntentSlotEncoder, new_encoder
from vestige.models.protocols import choose_device
from vestige.models.white_box import IntentSlotNetwork
from vestige.preparation.lineage import lineage
from vestige.preparation.options import ModelOptions, NluOptions
from vestige.preparation.privacy import entry_of
from vestige.preparation.trained import Trained
from vestige.preparation.training_run import TrainingRun, used
from vestige.training.config import TrainingConfig
from vestige.training.history import EarlyStopping
from vestige.training.new_utterance_model import (
    new_intent_slot_model,
    vectors_for,
    with_vectors,
    words_of,
)
from vestige.training.scored_utterances import IntentSlotTraining, score_with_intervals
from vestige.training.utterances import UtteranceTask
from vestige.training_options import TrainingOptions

PATIENCE = 20
"""Epochs without improvement before early stopping."""

DROPPED = {"input_dropout": 0.2, "hidden_dropout": 0.1}
"""What `dropout` means."""

FILTERS = 30
"""What `char_embeddings` means."""

UNUSED = ("sequence_length", "batching", "evaluate_every")
"""Settings that a training on utterances does not have."""


class Parts(NamedTuple):
    """The utterances of a training; validation and test may be empty."""

    training: Utterances
    validation: Utterances
    test: Utterances
    planted: SecretManifest | None = None

    @property
    def labels(self) -> Labels:
        """The labels of what is learned and of what was planted."""
        learned = self.training + self.validation
        if self.planted is None:
            return Labels.of(learned)
        return Labels.of(learned, intents=self.planted.intents, tags=self.planted.tags)


def read_parts(data: Any, *, seed: int, **reading: Any) -> Parts:
    """The utterances of a training; see `utterance_parts` for `reading`."""
    planted = planted_secrets(data)
    training, held, test = utterance_parts(data, seed=seed, planted=planted, **reading)
    return Parts(training, held, test or Utterances.of([]), planted)


def train_utterances(
    job: TrainingRun,
    parts: Parts,
    *,
    model: ModelOptions,
    training: TrainingOptions,
    nlu: NluOptions,
) -> Trained:
    """Train a model of intents and slots, score it on the test part, and save its run.

    Args:
        job: the training in its directory.
        parts: what it reads.
        model: of a new model.
        training: how it is trained.
        nlu: of a new model, and when to stop.

    Raises:
        ValueError: options exclude each other.
        VestigeError: the model cannot be read, or the training fails.
    """
    stop = early_stop(nlu, validated=len(parts.validation) > 0)
    network, config = beginning(job, parts, model=model, training=training, nlu=nlu)
    held, test = (part if len(part) else None for part in (parts.validation, parts.test))
    job.record(network, parts.training, held, test)
    if parts.planted is not None:
        job.run.data["planted"] = {"sha256": parts.planted.sha256}
    own = ReadRecords.of_texts(
        [one.text for one in parts.training], [one.text for one in parts.validation]
    )
    descent = lineage(job.out, own, start=job.start, vocabulary=None)
    entry = entry_of(NoDefence(), None, None, descent)
    lesson = UtteranceTask(network.encode(parts.training), held)
    history = job.learn(network, lesson, config, lineage=descent, entry=entry, stop=stop)
    if not job.finished:
        scored = None if test is None else score_with_intervals(network, test)
        trained = IntentSlotTraining(history=history, habits=nlu.recorded, test=scored)
        settings = used(config, network)
        settings = {name: value for name, value in settings.items() if name not in UNUSED}
        job.save(trained, {**settings, **nlu.recorded})
    found = job.found(history)
    _log_kept(found.summary, job.run.log)
    return found


def early_stop(nlu: NluOptions, *, validated: bool) -> EarlyStopping | None:
    """When to stop before the last epoch; None for never.

    Raises:
        ValueError: no utterances validate.
    """
    if not nlu.early_stopping:
        return None
    if not validated:
        raise ValueError("`early_stopping` needs validation utterances. Pass `validation`")
    return EarlyStopping(PATIENCE if nlu.patience is None else nlu.patience)


def beginning(
    job: TrainingRun,
    parts: Parts,
    *,
    model: ModelOptions,
    training: TrainingOptions,
    nlu: NluOptions,
) -> tuple[IntentSlotNetwork, TrainingConfig]:
    """The model before the first step, on its device, and its training."""
    device = choose_device(job.run.device)
    settings: dict[str, Any] = {"epochs": 30, "batch_size": 32}
    if job.start is None:
        network = _new(job, parts, model, nlu)
    else:
        network, settings = _continued(job, parts)
    settings |= training.chosen
    keep: Literal["best", "last"] = "best" if nlu.early_stopping else "last"
    return network.to(device), TrainingConfig(seed=job.run.seed, keep=keep, **settings)


def _new(job: TrainingRun, parts: Parts, model: ModelOptions, nlu: NluOptions) -> IntentSlotNetwork:
    """A new model; it knows words of the test part only by their vectors."""
    planted = parts.planted
    learned = parts.training + parts.validation
    words = set(planted.words) if planted else set()
    vectors = None
    if nlu.vectors is not None:
        unseen = {word.lower() if nlu.lowercase else word for word in words_of(parts.test)}
        vectors = vectors_for(words_of(learned) | words | unseen, nlu.vectors)
        words |= with_vectors(unseen, vectors)
    shape: dict[str, Any] = model.shape
    shape |= DROPPED if nlu.dropout else {}
    size, labels = shape.get("embedding_size"), parts.labels
    if vectors is not None and size not in (None, vectors.dim):
        raise ValueError(
            f"`embedding_size` must be {vectors.dim}, the width of {nlu.vectors}, got {size}"
        )
    return new_intent_slot_model(
        learned,
        vectors=vectors,
        words=words,
        intents=labels.intents,
        tags=labels.tags,
        lowercase=nlu.lowercase,
        seed=job.run.seed,
        frozen_embeddings=nlu.vectors_frozen,
        char_filters=FILTERS if nlu.char_embeddings else 0,
        **shape,
    )


def _continued(job: TrainingRun, parts: Parts) -> tuple[IntentSlotNetwork, dict[str, Any]]:
    """The model to continue (a copy of a loaded one), and the training that suits it."""
    model: IntentSlotNetwork
    if not isinstance(job.start, str | PathLike):
        model = deepcopy(job.start)
    else:
        start = fspath(job.start)
        folder = model_folder(start)
        if any((folder / name).is_file() for name in (DESCRIPTION, ANSWERS)):
            model = load_intent_slot(start, device="cpu")
        else:
            labels = parts.labels
            model = new_encoder(start, labels.intents, labels.tags, seed=job.run.seed)
    settings: dict[str, Any] = {"epochs": 10, "batch_size": 32}
    if isinstance(model, IntentSlotEncoder):
        settings |= {"learning_rate": 5e-5, "schedule": "cosine", "max_grad_norm": 1.0}
    return model, settings


def _log_kept(summary: Mapping[str, Any], log: Callable[[str], None]) -> None:
    """Log the epoch that was kept and its loss."""
    if summary["stopped"]:
        log(f"Stopped after {summary['steps']:,} steps, without improvement for long enough")
    loss = summary.get("loss")
    shown = "" if loss is None else f", validation loss {loss:.3g} nats per utterance"
    log(f"Epoch {summary['epoch']:.3g} kept{shown}")
