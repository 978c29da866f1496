"""Which intent-and-slot model `vestige train --task nlu` begins with, and how it is trained."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from vestige.data.encoded_utterances import Labels
    from vestige.data.secret_manifest import SecretManifest
    from vestige.data.utterances import Utterances
    from vestige.models.white_box import IntentSlotNetwork
    from vestige.training.config import TrainingConfig
    from vestige.training.history import EarlyStopping

PATIENCE = 20
"""What stands for `--patience`, in epochs (Parikh et al. 2022, section 6)."""

DROPPED = {"input_dropout": 0.2, "hidden_dropout": 0.1}
"""What `--dropout` means (ibid.)."""

FILTERS = 30
"""What `--char-embeddings` means (Ma and Hovy 2016, arXiv:1603.01354, table 1)."""


class Parts(NamedTuple):
    """What is read; validation and test may be empty."""

    training: "Utterances"
    validation: "Utterances"
    test: "Utterances"


@dataclass(frozen=True, kw_only=True)
class WantedNlu:
    """The options as they were given; None where one was not.

    Attributes:
        start: the model to continue, or a Hugging Face encoder to fine-tune.
        shape: sizes of the network by name.
        training: settings of `TrainingConfig` by name.
    """

    start: str | None
    vectors: str | None
    vectors_frozen: bool
    dropout: bool
    early_stopping: bool
    patience: int | None
    char_embeddings: bool
    lowercase: bool
    seed: int
    device: str
    shape: dict[str, int | None] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def habits(self) -> dict[str, object]:
        """What may protect or expose, as a summary says it."""
        return {
            "dropout": self.dropout,
            "early_stopping": self.early_stopping,
            "char_embeddings": self.char_embeddings,
            "vectors": self.vectors,
            "vectors_frozen": self.vectors_frozen,
        }

    def check(self) -> None:
        """Raise ValueError where options contradict each other."""
        if self.vectors_frozen and self.vectors is None:
            raise ValueError("--vectors-frozen must come with --vectors, which it freezes")
        if self.patience is not None and not self.early_stopping:
            raise ValueError("--patience must come with --early-stopping, which it belongs to")
        fresh_only = {
            "--vectors": self.vectors,
            "--dropout": self.dropout or None,
            "--char-embeddings": self.char_embeddings or None,
            "--lowercase": self.lowercase or None,
            **{f"--{name.replace('_', '-')}": size for name, size in self.shape.items()},
        }
        given = [option for option, value in fresh_only.items() if value is not None]
        if self.start is not None and given:
            raise ValueError(f"{given[0]} must not be given with --from, whose model has its own")

    def stop(self, *, validated: bool) -> "EarlyStopping | None":
        """When to end, if not after the last epoch.

        Raises:
            ValueError: there is nothing to judge an epoch by.
        """
        from vestige.training.history import EarlyStopping

        if not self.early_stopping:
            return None
        if not validated:
            raise ValueError(
                "--early-stopping must come with utterances to validate on: --validation or "
                "--hold-out"
            )
        return EarlyStopping(PATIENCE if self.patience is None else self.patience)


def prepare(
    wanted: WantedNlu, parts: Parts, planted: "SecretManifest | None"
) -> "tuple[IntentSlotNetwork, TrainingConfig]":
    """The model to train, on its device, and the configuration.

    Args:
        wanted: the options.
        parts: the utterances.
        planted: what was planted in them.

    Raises:
        ValueError: a size is not that of the vectors, or a setting is out of range.
        VestigeError: model or vectors cannot be had.
    """
    from vestige.models.protocols import choose_device
    from vestige.training.config import TrainingConfig

    where = choose_device(wanted.device)
    settings: dict[str, Any] = {"epochs": 30, "batch_size": 32}
    if wanted.start is None:
        model = _fresh(wanted, parts, planted)
    else:
        model, settings = _continued(wanted.start, parts, planted, wanted.seed)
    settings |= {name: value for name, value in wanted.training.items() if value is not None}
    keep: Literal["best", "last"] = "best" if wanted.early_stopping else "last"
    return model.to(where), TrainingConfig(seed=wanted.seed, keep=keep, **settings)


def _fresh(
    wanted: WantedNlu, parts: Parts, planted: "SecretManifest | None"
) -> "IntentSlotNetwork":
    from vestige.training.new_utterance_model import (
        new_intent_slot_model,
        vectors_for,
        with_vectors,
        words_of,
    )

    learnt = parts.training + parts.validation
    words = set(planted.words) if planted else set()
    vectors = None
    if wanted.vectors is not None:
        unheard = {word.lower() if wanted.lowercase else word for word in words_of(parts.test)}
        vectors = vectors_for(words_of(learnt) | words | unheard, wanted.vectors)
        words |= with_vectors(unheard, vectors)
    shape: dict[str, Any] = {n: size for n, size in wanted.shape.items() if size is not None}
    shape |= DROPPED if wanted.dropout else {}
    size, labels = shape.get("embedding_size"), _labels(parts, planted)
    if vectors is not None and size not in (None, vectors.dim):
        raise ValueError(
            f"--embedding-size must be {vectors.dim}, as {wanted.vectors} has it, got {size}"
        )
    return new_intent_slot_model(
        learnt,
        vectors=vectors,
        words=words,
        intents=labels.intents,
        tags=labels.tags,
        lowercase=wanted.lowercase,
        seed=wanted.seed,
        frozen_embeddings=wanted.vectors_frozen,
        char_filters=FILTERS if wanted.char_embeddings else 0,
        **shape,
    )


def _continued(
    start: str, parts: Parts, planted: "SecretManifest | None", seed: int
) -> "tuple[IntentSlotNetwork, dict[str, Any]]":
    """The model to go on with, and the training that suits it."""
    from vestige.models.checkpoints import DESCRIPTION, load_intent_slot
    from vestige.models.folders import ANSWERS, model_folder
    from vestige.models.nlu_encoder import IntentSlotEncoder, new_encoder

    folder = model_folder(start)
    model: IntentSlotNetwork
    if any((folder / name).is_file() for name in (DESCRIPTION, ANSWERS)):
        model = load_intent_slot(start, device="cpu")
    else:
        labels = _labels(parts, planted)
        model = new_encoder(start, labels.intents, labels.tags, seed=seed)
    settings: dict[str, Any] = {"epochs": 10, "batch_size": 32}
    if isinstance(model, IntentSlotEncoder):
        settings |= {"learning_rate": 5e-5, "schedule": "cosine", "max_grad_norm": 1.0}
    return model, settings


def _labels(parts: Parts, planted: "SecretManifest | None") -> "Labels":
    from vestige.data.encoded_utterances import Labels

    learnt = parts.training + parts.validation
    if planted is None:
        return Labels.of(learnt)
    return Labels.of(learnt, intents=planted.intents, tags=planted.tags)
