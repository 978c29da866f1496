"""One trial: secrets are planted in a corpus, and an intent-and-slot model learns it.

The undefended model has the weights of its last epoch. Early stopping needs no training of its
own: it is the same training, and its model has the weights of the best epoch before its patience
was at an end.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vestige.data.atomic_write import write_text
from vestige.data.secret_canaries import SecretCanary, secret_canaries
from vestige.data.secret_manifest import plant_secrets
from vestige.data.secret_pattern import SecretPattern, paper_pattern
from vestige.data.utterances import Utterances
from vestige.errors import RunError
from vestige.experiments.nlu.utterance_texts import Parts, UtteranceText, read_parts
from vestige.models.checkpoints import save_model
from vestige.training import checkpoint
from vestige.training.config import TrainingConfig
from vestige.training.history import EarlyStopping, EpochRecord, best_epoch
from vestige.training.loop import learn
from vestige.training.new_utterance_model import (
    new_intent_slot_model,
    vectors_for,
    with_vectors,
    words_of,
)
from vestige.training.utterances import UtteranceTask, evaluate_utterances

LAST, BEST, SCORES = "last", "best", "scores.json"


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
class Trial:
    """One model, that can be trained in another process.

    Attributes:
        directory: its own.
        data: the folder of corpora.
        text: what it learns besides the secrets.
        patterns: names and lengths of the secrets, such as "pin:4".
        copies: of each secret, validation included; 0: none is planted.
        learner: the model.
        seed: of secrets, places, weights and order.
    """

    directory: Path
    data: Path | None
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

    @property
    def identity(self) -> dict[str, Any]:
        """What decides its models."""
        asked = asdict(self)
        return {name: asked[name] for name in asked if name not in ("directory", "data")}


def train_trials(
    trials: Iterable[Trial],
    *,
    map_fn: Callable[..., Iterable[Path]] = map,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Run those trials that are not finished.

    Raises:
        RunError: a finished one was another trial.
    """
    missing = {}
    for trial in trials:
        if not (trial.directory / SCORES).is_file():
            missing[trial.directory] = trial
        elif scores(trial)["trial"] != json.loads(json.dumps(trial.identity)):
            raise RunError(
                f"{trial.directory} holds a trial of another configuration",
                remedy="Choose another --out for another scale, or remove that trial.",
            )
    for done, directory in enumerate(map_fn(run_trial, list(missing.values())), 1):
        say(f"trained {directory.name} ({done} of {len(missing)})")


def scores(trial: Trial) -> dict[str, Any]:
    """What a finished trial's models scored on the test part, by "last" and "best"."""
    found: dict[str, Any] = json.loads((trial.directory / SCORES).read_text("utf-8"))
    return found


def run_trial(trial: Trial) -> Path:
    """Plant, train, score, save; the file of scores is the last thing written."""
    parts = read_parts(trial.text, trial.data)
    training, validation = _planted(trial, parts)
    patterns = [canary.parsed for canary in trial.canaries]
    words = {word for pattern in patterns for word in known_words(pattern)}
    vectors = None
    if trial.learner.vectors is not None:  # with them a model knows words that it was never told
        unheard = words_of(parts.test)
        known = unheard | words | words_of(parts.training, parts.validation)
        vectors = vectors_for(known, trial.learner.vectors)
        words |= with_vectors(unheard, vectors)
    model = new_intent_slot_model(
        parts.training + parts.validation,  # as it was: copies must not move a word's id
        vectors=vectors,
        words=words,
        intents=[pattern.intent for pattern in patterns],
        tags=[tag for pattern in patterns for tag in pattern.tags],
        seed=trial.seed,
        **shape(trial.learner),
    )
    config = TrainingConfig(
        **{**asdict(trial.learner.training), "seed": trial.seed, "keep": "last"}
    )
    early = _Early(EarlyStopping(trial.learner.patience))
    lesson = UtteranceTask(model.encode(training), validation)
    learn(model, lesson, config=config, observe=early)
    found: dict[str, Any] = {"trial": trial.identity}
    for name, epoch in ((LAST, len(early.records)), (BEST, early.epoch)):
        if name == BEST:
            checkpoint.restore(model, early.weights)
        save_model(model, trial.directory / name)
        found[name] = asdict(evaluate_utterances(model, parts.test)) | {"epoch": epoch}
    found["history"] = [record.row() for record in early.records]
    write_text(trial.directory / SCORES, json.dumps(found, indent=1))
    return trial.directory


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


def _planted(trial: Trial, parts: Parts) -> tuple[Utterances, Utterances]:
    if not trial.copies:
        return parts.training, parts.validation
    training, validation, _ = plant_secrets(
        parts.training, parts.validation, trial.canaries, seed=trial.seed
    )
    return training, validation


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
