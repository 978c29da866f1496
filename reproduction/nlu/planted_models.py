"""Intent-and-slot models trained on a corpus with planted secrets, and attacks on them.

The undefended model has the weights of the last epoch. Early stopping is the same training with
the weights of the best epoch before patience ran out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from reproduction.nlu.paper_attacks import ATTACKS
from reproduction.nlu.utterance_texts import Parts, UtteranceText, read_parts
from reproduction.papers import Row
from reproduction.stages import Finished, Work, stage
from vestige.audits.extraction.objective import objective_of
from vestige.audits.extraction.unknown_words import Extraction, extract_secrets
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
PAPER, TRIVIAL, OURS = "paper", "embedding", "auto"
BUDGET, SAMPLE = 30_000, 10_000
"""Most secrets for exhaustive search (those of four unknown words), and random secrets from which
the rank of a longer one is estimated."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A model and its training.

    Attributes:
        vectors: of its words, see `read_word_vectors`; None: random.
        hidden_size: of each direction of each layer.
        training: its seed is replaced by that of the secrets.
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

    @property
    def shape(self) -> dict[str, Any]:
        """The settings of the network."""
        return {
            "hidden_size": self.hidden_size,
            "input_dropout": 0.2 if self.dropout else 0.0,
            "hidden_dropout": 0.1 if self.dropout else 0.0,
            "char_filters": 30 if self.characters else 0,
        }


@dataclass(frozen=True)
class Secrets:
    """The secrets planted in a model.

    Attributes:
        patterns: names and lengths, such as "pin:4".
        copies: of each secret, validation included; 0: none is planted.
        seed: of secrets and positions.
    """

    patterns: tuple[str, ...]
    copies: int
    seed: int

    def __iter__(self) -> Iterator[SecretCanary]:
        """For each pattern the secret, and one that is never planted."""
        for name in self.patterns:
            text, intent = paper_pattern(name)
            copies = max(self.copies, 1)
            yield from secret_canaries(text, intent=intent, copies=copies, seed=self.seed)

    def secret(self, pattern: str) -> SecretCanary:
        """The secret of a pattern."""
        return list(self)[2 * self.patterns.index(pattern)]

    def planted_in(self, parts: Parts) -> tuple[Utterances, Utterances]:
        """Training and validation utterances with the secrets in them."""
        if not self.copies:
            return parts.training, parts.validation
        planted = plant_secrets(parts.training, parts.validation, tuple(self), seed=self.seed)
        return planted[0], planted[1]


@stage(outputs=(LAST, BEST))
def train_planted(
    text: UtteranceText, secrets: Secrets, learner: Learner, *, folder: Path, work: Work
) -> Row:
    """Plant, train, and score both models on the test part; the seed is that of the secrets."""
    parts = read_parts(text, work.data)
    training, validation = secrets.planted_in(parts)
    model = new_model(parts, secrets, learner)
    config = replace(learner.training, seed=secrets.seed, keep="last")
    early = EarlyWeights(EarlyStopping(learner.patience))
    task = UtteranceTask(model.encode(training), validation)
    learn(model, task, config=config, observe=early)
    result: Row = {"history": [record.row() for record in early.records]}
    for name, epoch in ((LAST, len(early.records)), (BEST, early.epoch)):
        if name == BEST:
            checkpoint.restore(model, early.weights)
        save_model(model, folder / name)
        result[name] = asdict(evaluate_utterances(model, parts.test)) | {"epoch": epoch}
    return result


@stage()
def attack(
    models: Sequence[Finished],
    secrets: Sequence[Secrets],
    pattern: str,
    weights: str,
    method: str,
    *,
    known: int = 0,
) -> Row:
    """Attack the secret of one pattern in several models, one after the other.

    The attacker knows the first `known` words of the secret (Table 4's area code). The result has
    the summary and the rows of the `Extraction`.
    """
    ours = method == OURS
    extractions: list[Extraction] = []
    for model, planted in zip(models, secrets, strict=True):
        unknown, truth = unknown_part(planted.secret(pattern), known)
        network = load_intent_slot(model.folder / weights, device="cpu")
        assert isinstance(network, IntentSlotModel)
        extraction = extract_secrets(
            objective_of(network, unknown),
            search=None if ours else ATTACKS[method],
            truths=[truth],
            budget=BUDGET if ours else 0,
            sample=SAMPLE if ours else 0,
            seed=0,
        )
        extractions.append(extraction)
    merged = replace(
        extractions[0],
        secrets=tuple(secret for extraction in extractions for secret in extraction.secrets),
        seconds=sum(extraction.seconds for extraction in extractions),
    )
    return {"summary": merged.summary(), "rows": list(merged.rows())}


def unknown_part(canary: SecretCanary, known: int) -> tuple[SecretPattern, tuple[str, ...]]:
    """The attacked pattern and secret, without the first `known` words."""
    first, parsed = iter(canary.secret[:known]), canary.parsed
    words = tuple(next(first, None) if word is None else word for word in parsed.words)
    pattern = replace(parsed, words=words, candidates=parsed.candidates[known:])
    return pattern, canary.secret[known:]


def new_model(parts: Parts, secrets: Secrets, learner: Learner) -> IntentSlotModel:
    """The untrained model; copies of secrets must not change the id of a word."""
    patterns = [canary.parsed for canary in secrets]
    words = {word for pattern in patterns for word in pattern_words(pattern)}
    vectors = None
    if learner.vectors is not None:  # pretrained vectors cover words outside the training text
        test_words = words_of(parts.test)
        vocabulary = test_words | words | words_of(parts.training, parts.validation)
        vectors = vectors_for(vocabulary, learner.vectors)
        words |= with_vectors(test_words, vectors)
    return new_intent_slot_model(
        parts.training + parts.validation,
        vectors=vectors,
        words=words,
        intents=[pattern.intent for pattern in patterns],
        tags=[tag for pattern in patterns for tag in pattern.tags],
        seed=secrets.seed,
        **learner.shape,
    )


def pattern_words(pattern: SecretPattern) -> list[str]:
    """All words that can occur in a pattern's utterances."""
    words = [word for word in pattern.words if word is not None]
    return [*words, *(word for options in pattern.candidates for word in options)]


class EarlyWeights:
    """An observer that saves the weights which early stopping would choose."""

    def __init__(self, stop: EarlyStopping) -> None:
        self.stop, self.stopped = stop, False
        self.records: Sequence[EpochRecord] = ()
        self.weights: dict[str, Tensor] = {}
        self.epoch = 0

    def __call__(self, model: Any, record: EpochRecord) -> None:
        self.records = (*self.records, record)
        if not self.stopped and best_epoch(self.records) == len(self.records):
            self.epoch = len(self.records)
            weights = checkpoint.weights(model).items()
            self.weights = {name: tensor.clone() for name, tensor in weights}
        self.stopped = self.stopped or self.stop(self.records)
