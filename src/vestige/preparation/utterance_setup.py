"""Set up the training of a model of intents and slots: model, utterances, settings.

Dropout, early stopping and character embeddings follow Parikh, Dupuy and Gupta (2022), "Canary
Extraction in Natural Language Understanding Models", section 6; the number of character filters
follows Ma and Hovy (2016), table 1.
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
from vestige.preparation.texts import Texts
from vestige.preparation.training_setup import TrainingSetup, is_path, model_to_continue
from vestige.session import Session
from vestige.training.config import TrainingConfig
from vestige.training.new_models import (
    new_intent_slot_model,
    vectors_for,
    with_vectors,
    words_of,
)
from vestige.training.utterances import UtteranceTask, score_with_intervals

DROPOUT_RATES = {"input_dropout": 0.2, "hidden_dropout": 0.1}
"""Rates of the option `dropout`."""
CHAR_FILTERS = 30
"""Filters of the option `char_embeddings`."""
UNUSED = ("sequence_length", "batching", "evaluate_every")
"""Settings that a training on utterances does not use."""


def utterance_setup(
    run: Session,
    texts: Texts,
    start: Any,
    *,
    model: ModelOptions,
    training: TrainingOptions,
    nlu: NluOptions,
) -> TrainingSetup:
    """Set up a model of intents and slots and its utterances."""
    stop = nlu.stop(validated=len(texts.validation) > 0)
    settings: dict[str, Any] = {"epochs": 30 if start is None else 10, "batch_size": 32}
    if start is None:
        network = _new_model(run, texts, model, nlu)
    else:
        network = _continued_model(run, texts, start)
        if isinstance(network, IntentSlotEncoder):
            settings |= {"learning_rate": 5e-5, "schedule": "cosine", "max_grad_norm": 1.0}
    network = network.to(choose_device(run.device))
    settings |= training.chosen
    keep: Literal["best", "last"] = "best" if nlu.early_stopping else "last"

    def measure() -> dict[str, object]:
        scores = score_with_intervals(network, texts.test) if texts.test else {}
        test_scores = {f"test_{name}": value for name, value in scores.items()}
        return {"task": "nlu", **nlu.recorded, **test_scores}

    return TrainingSetup(
        kind="IntentSlotTraining",
        model=network,
        task=UtteranceTask(
            network.encode(texts.training), texts.validation if len(texts.validation) else None
        ),
        config=TrainingConfig(seed=run.seed, keep=keep, **settings),
        stop=stop,
        unused=UNUSED,
        recorded=nlu.recorded,
        measure=measure,
    )


def labels_of(texts: Texts) -> Labels:
    """The labels of the training part, the validation part and the canaries."""
    utterances, planted = texts.training + texts.validation, texts.planted
    if not isinstance(planted, SecretManifest):
        return Labels.of(utterances)
    return Labels.of(utterances, intents=planted.intents, tags=planted.tags)


def _new_model(
    run: Session, texts: Texts, model: ModelOptions, nlu: NluOptions
) -> IntentSlotNetwork:
    """A new model. Words that occur only in the test part are known only by their vectors."""
    utterances, planted = texts.training + texts.validation, texts.planted
    words = set(planted.words) if isinstance(planted, SecretManifest) else set()
    vectors = None
    if nlu.vectors is not None:
        test_words = words_of(texts.test) if texts.test else set()
        test_words = {word.lower() if nlu.lowercase else word for word in test_words}
        vectors = vectors_for(words_of(utterances) | words | test_words, nlu.vectors)
        words |= with_vectors(test_words, vectors)
    shape = model.shape | (DROPOUT_RATES if nlu.dropout else {})
    size, labels = shape.get("embedding_size"), labels_of(texts)
    if vectors is not None and size not in (None, vectors.dim):
        raise ValueError(
            f"`embedding_size` must be {vectors.dim}, the width of {nlu.vectors}, got {size}"
        )
    return new_intent_slot_model(
        utterances,
        vectors=vectors,
        words=words,
        intents=labels.intents,
        tags=labels.tags,
        lowercase=nlu.lowercase,
        seed=run.seed,
        frozen_embeddings=nlu.vectors_frozen,
        char_filters=CHAR_FILTERS if nlu.char_embeddings else 0,
        **shape,
    )


def _continued_model(run: Session, texts: Texts, start: Any) -> IntentSlotNetwork:
    """The model to continue; the folder of an encoder becomes a new model."""
    if is_path(start):
        folder = model_folder(fspath(start))
        if not any((folder / name).is_file() for name in (DESCRIPTION, LABELS)):
            labels = labels_of(texts)
            return new_encoder(fspath(start), labels.intents, labels.tags, seed=run.seed)
    network: IntentSlotNetwork = model_to_continue(start, load_intent_slot, "cpu")
    return network
