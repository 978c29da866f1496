"""A model of intents and slots before its first step, with its utterances.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 6, for dropout, early stopping and character embeddings; Ma and Hovy (2016), table 1, for
the filters of the last.
"""

from os import fspath
from typing import Any, Literal

from vestige.data.canaries.utterances import SecretManifest
from vestige.data.utterances import Labels
from vestige.models.checkpoints import load_intent_slot
from vestige.models.folders import DESCRIPTION, LABELS, model_folder
from vestige.models.nlu_encoder import IntentSlotEncoder, new_encoder
from vestige.models.protocols import choose_device
from vestige.models.white_box import IntentSlotNetwork
from vestige.preparation.options import ModelOptions, NluOptions, TrainingOptions
from vestige.preparation.prepared import Prepared, is_path, loaded
from vestige.preparation.texts import Texts
from vestige.session import Session
from vestige.training.config import TrainingConfig
from vestige.training.new_models import (
    new_intent_slot_model,
    vectors_for,
    with_vectors,
    words_of,
)
from vestige.training.utterances import UtteranceTask, score_with_intervals

DROPPED = {"input_dropout": 0.2, "hidden_dropout": 0.1}
"""What `dropout` means."""
FILTERS = 30
"""What `char_embeddings` means."""
UNUSED = ("sequence_length", "batching", "evaluate_every")
"""Settings that a training on utterances does not have."""


def prepared_utterances(
    run: Session,
    texts: Texts,
    *,
    start: Any,
    model: ModelOptions,
    training: TrainingOptions,
    nlu: NluOptions,
) -> Prepared:
    """A model of intents and slots and its utterances; it is scored on the test part."""
    stop = nlu.stop(validated=len(texts.held) > 0)
    settings: dict[str, Any] = {"epochs": 30 if start is None else 10, "batch_size": 32}
    if start is None:
        network = _new_intent_slot(run, texts, model, nlu)
    else:
        network = _continued_intent_slot(run, texts, start)
        if isinstance(network, IntentSlotEncoder):
            settings |= {"learning_rate": 5e-5, "schedule": "cosine", "max_grad_norm": 1.0}
    network = network.to(choose_device(run.device))
    settings |= training.chosen
    keep: Literal["best", "last"] = "best" if nlu.early_stopping else "last"

    def scores() -> dict[str, object]:
        found = score_with_intervals(network, texts.test) if texts.test else {}
        tested = {f"test_{name}": value for name, value in found.items()}
        return {"task": "nlu", **nlu.recorded, **tested}

    return Prepared(
        kind="IntentSlotTraining",
        model=network,
        task=UtteranceTask(network.encode(texts.training), texts.held if len(texts.held) else None),
        config=TrainingConfig(seed=run.seed, keep=keep, **settings),
        stop=stop,
        unused=UNUSED,
        recorded=nlu.recorded,
        scores=scores,
    )


def labels_of(texts: Texts) -> Labels:
    """The labels of the training part, the validation part and the canaries."""
    learned, planted = texts.training + texts.held, texts.planted
    if not isinstance(planted, SecretManifest):
        return Labels.of(learned)
    return Labels.of(learned, intents=planted.intents, tags=planted.tags)


def _new_intent_slot(
    run: Session, texts: Texts, model: ModelOptions, nlu: NluOptions
) -> IntentSlotNetwork:
    """A new model; it knows words of the test part only by their vectors."""
    learned, planted = texts.training + texts.held, texts.planted
    words = set(planted.words) if isinstance(planted, SecretManifest) else set()
    vectors = None
    if nlu.vectors is not None:
        tested = words_of(texts.test) if texts.test else set()
        unseen = {word.lower() if nlu.lowercase else word for word in tested}
        vectors = vectors_for(words_of(learned) | words | unseen, nlu.vectors)
        words |= with_vectors(unseen, vectors)
    shape = model.shape | (DROPPED if nlu.dropout else {})
    size, labels = shape.get("embedding_size"), labels_of(texts)
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
        seed=run.seed,
        frozen_embeddings=nlu.vectors_frozen,
        char_filters=FILTERS if nlu.char_embeddings else 0,
        **shape,
    )


def _continued_intent_slot(run: Session, texts: Texts, start: Any) -> IntentSlotNetwork:
    """The model to continue: a copy of a loaded one, or a new one on an encoder's folder."""
    if is_path(start):
        folder = model_folder(fspath(start))
        if not any((folder / name).is_file() for name in (DESCRIPTION, LABELS)):
            labels = labels_of(texts)
            return new_encoder(fspath(start), labels.intents, labels.tags, seed=run.seed)
    network: IntentSlotNetwork = loaded(start, load_intent_slot, "cpu")
    return network
