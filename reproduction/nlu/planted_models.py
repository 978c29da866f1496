"""Intent-and-slot models that have learnt a corpus with planted secrets.

The undefended model has the weights of its last epoch. Early stopping needs no training of its
own: it is the same training, and its model has the weights of the best epoch before its patience
was at an end.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from reproduction.nlu.utterance_texts import Parts, UtteranceText, read_parts
from reproduction.runner import Trial
from vestige.data.canaries.patterns import SecretPattern, paper_pattern
from vestige.data.canaries.utterances import SecretCanary, plant_secrets, secret_canaries
from vestige.data.utterances import Utterances
from vestige.models.bilstm_crf import IntentSlotModel
from vestige.models.checkpoints import load_intent_slot, save_model
from vestige.training import checkpoint
from vestige.training.config import TrainingConfig
from vestige.training.history import EarlyStopping, EpochRecord, best_epoch
from vestige.training.loop import learn
from vestige.training.new_models import new_intent_slot_model, vectors_for, with_vectors, words_of
from vestige.training.utterances import UtteranceTask, evaluate_utterances

LAST, BEST = "last", "best"


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A model and how it learns.

    Attributes:
        vectors: of its words, see `read_word_vectors`; None: drawn at random.
        hidden_size: of each direction of each layer.
        training: its seed is the trial's.
        patience: epochs without a better validation loss, for early stopping.
        dropout: the paper's D, 20 % of words' vectors and 10 % of layers' outputs.
        characters: the paper's CE.
    """

    vectors: str | None
    hidden_size: int
    training: TrainingConfig
    patience: int = 20
    dropout: bool = False
    characters: bool = False


@dataclass(frozen=True, kw_only=True)
class PlantedModel(Trial):
    """One training on a corpus with secrets; its models are `LAST` and `BEST`.

    Attributes:
        data: the folder of corpora.
        text: what it learns besides the secrets.
        patterns: names and lengths of the secrets, such as "pin:4".
        copies: of each secret, validation included; 0: none is planted.
        learner: the model.
        seed: of secrets, places, weights and order.
    """

    outputs = (LAST, BEST)
    data: Path | None = field(compare=False)
    text: UtteranceText
    patterns: tuple[str, ...]
    copies: int
    learner: Learner
    seed: int

    @property
    def canaries(self) -> tuple[SecretCanary, ...]:
        """For each pattern the secret, and one that is never planted."""
        made: list[SecretCanary] = []
        for name in self.patterns:
            text, intent = paper_pattern(name)
            made += secret_canaries(text, intent=intent, copies=max(self.copies, 1), seed=self.seed)
        return tuple(made)

    def canary(self, pattern: str) -> SecretCanary:
        """The secret of a pattern."""
        return self.canaries[2 * self.patterns.index(pattern)]

    def model(self, weights: str) -> IntentSlotModel:
        """The finished model with the weights of its last or of its best epoch."""
        model = load_intent_slot(self.directory / weights, device="cpu")
        if not isinstance(model, IntentSlotModel):
            raise TypeError(f"{self.directory} must hold a bi-LSTM, got {type(model).__name__}")
        return model

    def make(self) -> dict[str, object]:
        """Plant, train, and score both models on the test part."""
        parts = read_parts(self.text, self.data)
        training, validation = self._planted(parts)
        model = self._fresh(parts)
        config = replace(self.learner.training, seed=self.seed, keep="last")
        early = _Early(EarlyStopping(self.learner.patience))
        task = UtteranceTask(model.encode(training), validation)
        learn(model, task, config=config, observe=early)
        found: dict[str, object] = {"history": [record.row() for record in early.records]}
        for name, epoch in ((LAST, len(early.records)), (BEST, early.epoch)):
            if name == BEST:
                checkpoint.restore(model, early.weights)
            save_model(model, self.directory / name)
            found[name] = asdict(evaluate_utterances(model, parts.test)) | {"epoch": epoch}
        return found

    def _fresh(self, parts: Parts) -> IntentSlotModel:
        """The untrained model; copies of secrets must not move a word's id."""
        patterns = [canary.parsed for canary in self.canaries]
        words = {word for pattern in patterns for word in known_words(pattern)}
        vectors = None
        if self.learner.vectors is not None:  # a model with them knows words it has not learnt
            unheard = words_of(parts.test)
            known = unheard | words | words_of(parts.training, parts.validation)
            vectors = vectors_for(known, self.learner.vectors)
            words |= with_vectors(unheard, vectors)
        return new_intent_slot_model(
            parts.training + parts.validation,
            vectors=vectors,
            words=words,
            intents=[pattern.intent for pattern in patterns],
            tags=[tag for pattern in patterns for tag in pattern.tags],
            seed=self.seed,
            **shape(self.learner),
        )

    def _planted(self, parts: Parts) -> tuple[Utterances, Utterances]:
        """Training and validation utterances with the secrets in them."""
        if not self.copies:
            return parts.training, parts.validation
        found = plant_secrets(parts.training, parts.validation, self.canaries, seed=self.seed)
        return found[0], found[1]


def known_words(pattern: SecretPattern) -> list[str]:
    """All words that a pattern's utterances can have."""
    words = [word for word in pattern.words if word is not None]
    return [*words, *(word for place in pattern.candidates for word in place)]


def shape(learner: Learner) -> dict[str, Any]:
    """The settings of a learner's network."""
    return {
        "hidden_size": learner.hidden_size,
        "input_dropout": 0.2 if learner.dropout else 0.0,
        "hidden_dropout": 0.1 if learner.dropout else 0.0,
        "char_filters": 30 if learner.characters else 0,
    }


class _Early:
    """Remembers the weights that early stopping would have kept."""

    def __init__(self, stop: EarlyStopping) -> None:
        self.stop, self.stopped = stop, False
        self.records: Sequence[EpochRecord] = ()
        self.weights: dict[str, Tensor] = {}
        self.epoch = 0

    def __call__(self, model: Any, record: EpochRecord) -> None:
        self.records = (*self.records, record)
        if not self.stopped and best_epoch(self.records) == len(self.records):
            self.epoch = len(self.records)
            found = checkpoint.weights(model).items()
            self.weights = {name: tensor.clone() for name, tensor in found}
        self.stopped = self.stopped or self.stop(self.records)
