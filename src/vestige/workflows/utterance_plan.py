"""Model and configuration with which a training of intents and slots begins."""

from copy import deepcopy
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple

from vestige.data.encoded_utterances import Labels
from vestige.data.secret_manifest import SecretManifest
from vestige.data.utterances import Utterances
from vestige.models.checkpoints import DESCRIPTION, load_intent_slot
from vestige.models.folders import ANSWERS, model_folder
from vestige.models.nlu_encoder import IntentSlotEncoder, new_encoder
from vestige.models.protocols import choose_device
from vestige.models.white_box import IntentSlotNetwork
from vestige.training.config import TrainingConfig
from vestige.training.history import EarlyStopping
from vestige.training.new_utterance_model import (
    new_intent_slot_model,
    vectors_for,
    with_vectors,
    words_of,
)
from vestige.workflows import utterance_sources
from vestige.workflows.train import TrainingRequest

PATIENCE = 20
"""Epochs without a better one (Parikh et al. 2022, section 6)."""

DROPPED = {"input_dropout": 0.2, "hidden_dropout": 0.1}
"""What `dropout` means (ibid.)."""

FILTERS = 30
"""What `char_embeddings` means (Ma and Hovy 2016, arXiv:1603.01354, table 1)."""


class Parts(NamedTuple):
    """The utterances of a training; validation and test may be empty."""

    training: Utterances
    validation: Utterances
    test: Utterances
    planted: SecretManifest | None = None

    @property
    def labels(self) -> Labels:
        """The labels of what is learnt and of what was planted."""
        learnt = self.training + self.validation
        if self.planted is None:
            return Labels.of(learnt)
        return Labels.of(learnt, intents=self.planted.intents, tags=self.planted.tags)


def read_parts(request: TrainingRequest) -> Parts:
    """The utterances of a training."""
    planted = utterance_sources.secrets_of(request.data)
    sources = utterance_sources.Sources(
        data=request.data,
        format=request.format,
        columns=(request.tokens_column, request.tags_column, request.intent_column),
        limit=request.limit,
        validation=request.validation,
        hold_out=request.hold_out,
    )
    training, held, test = utterance_sources.read_parts(sources, request.seed, planted=planted)
    return Parts(training, held, test or Utterances.of([]), planted)


def stop_of(request: TrainingRequest, *, validated: bool) -> EarlyStopping | None:
    """When to end, if not after the last epoch.

    Raises:
        ValueError: there is nothing to judge an epoch by.
    """
    if not request.nlu.early_stopping:
        return None
    if not validated:
        raise ValueError(
            "`early_stopping` must come with utterances to validate on: `validation` or `hold_out`"
        )
    patience = request.nlu.patience
    return EarlyStopping(PATIENCE if patience is None else patience)


def prepare(request: TrainingRequest, parts: Parts) -> tuple[IntentSlotNetwork, TrainingConfig]:
    """The model to train, on its device, and the configuration."""
    where = choose_device(request.device)
    settings: dict[str, Any] = {"epochs": 30, "batch_size": 32}
    if request.start is None:
        model = _fresh(request, parts)
    else:
        model, settings = _continued(request, parts)
    settings |= request.training.chosen
    keep: Literal["best", "last"] = "best" if request.nlu.early_stopping else "last"
    return model.to(where), TrainingConfig(seed=request.seed, keep=keep, **settings)


def _fresh(request: TrainingRequest, parts: Parts) -> IntentSlotNetwork:
    nlu, planted = request.nlu, parts.planted
    learnt = parts.training + parts.validation
    words = set(planted.words) if planted else set()
    vectors = None
    if nlu.vectors is not None:
        unheard = {word.lower() if nlu.lowercase else word for word in words_of(parts.test)}
        vectors = vectors_for(words_of(learnt) | words | unheard, nlu.vectors)
        words |= with_vectors(unheard, vectors)
    shape: dict[str, Any] = request.model.shape
    shape |= DROPPED if nlu.dropout else {}
    size, labels = shape.get("embedding_size"), parts.labels
    if vectors is not None and size not in (None, vectors.dim):
        raise ValueError(
            f"`embedding_size` must be {vectors.dim}, as {nlu.vectors} has it, got {size}"
        )
    return new_intent_slot_model(
        learnt,
        vectors=vectors,
        words=words,
        intents=labels.intents,
        tags=labels.tags,
        lowercase=nlu.lowercase,
        seed=request.seed,
        frozen_embeddings=nlu.vectors_frozen,
        char_filters=FILTERS if nlu.char_embeddings else 0,
        **shape,
    )


def _continued(request: TrainingRequest, parts: Parts) -> tuple[IntentSlotNetwork, dict[str, Any]]:
    """The model to go on with (of a loaded one a copy), and the training that suits it."""
    model: IntentSlotNetwork
    if not isinstance(request.start, str | PathLike):
        model = deepcopy(request.start)
    else:
        start = fspath(request.start)
        folder = model_folder(start)
        if any((folder / name).is_file() for name in (DESCRIPTION, ANSWERS)):
            model = load_intent_slot(start, device="cpu")
        else:
            labels = parts.labels
            model = new_encoder(start, labels.intents, labels.tags, seed=request.seed)
    settings: dict[str, Any] = {"epochs": 10, "batch_size": 32}
    if isinstance(model, IntentSlotEncoder):
        settings |= {"learning_rate": 5e-5, "schedule": "cosine", "max_grad_norm": 1.0}
    return model, settings
