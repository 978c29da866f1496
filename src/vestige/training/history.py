"""Training history, and stopping rules based on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """Record of one evaluation, of an epoch or a part of it.

    Attributes:
        epoch: passes over the data so far.
        step: steps taken so far.
        learning_rate: of the last step.
        perplexity: on the training data, during training (with dropout, while weights change);
            None if all Poisson samples were empty.
        validation_perplexity: None without validation data.
        validation_accuracy: of the next word; None without validation data.
        tokens: training tokens since the previous evaluation.
        seconds: of training; all other fields are reproducible.
        measures: further measures on the validation data, by name.
    """

    epoch: float
    step: int
    learning_rate: float
    perplexity: float | None
    validation_perplexity: float | None
    validation_accuracy: float | None
    tokens: int = 0
    seconds: float = field(default=0.0, compare=False)
    measures: Mapping[str, float | None] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """The record as one flat row."""
        row = asdict(self)
        return row | dict(row.pop("measures"))


StopFn = Callable[[Sequence[EpochRecord]], bool]
"""Called after each evaluation with all records so far; True ends the training."""


@dataclass(frozen=True)
class StopAtPerplexity:
    """Stop when the validation perplexity is this low, for models of equal utility."""

    perplexity: float

    def __call__(self, records: Sequence[EpochRecord]) -> bool:
        reached = records[-1].validation_perplexity
        return reached is not None and reached <= self.perplexity


@dataclass(frozen=True)
class EarlyStopping:
    """Stop if the validation perplexity has not fallen for `patience` evaluations.

    Parikh et al. 2022, section 6: 20 epochs.
    """

    patience: int = 20

    def __call__(self, records: Sequence[EpochRecord]) -> bool:
        return len(records) - best_epoch(records) >= self.patience


@dataclass(frozen=True, kw_only=True)
class TrainingHistory:
    """A finished training.

    Attributes:
        epochs: one record per evaluation.
        best_epoch: number, from 1, of the record with the final weights: that of the lowest
            validation perplexity, or the last without validation data.
        stopped: whether a StopFn ended it before its last epoch.
        peak_memory_mib: peak memory of the training, above the memory used before it; None
            if unknown, or if the training was resumed.
    """

    epochs: tuple[EpochRecord, ...]
    best_epoch: int
    stopped: bool
    peak_memory_mib: float | None = field(default=None, compare=False)

    def summary(self) -> dict[str, Any]:
        """The best record as one row, with the cost of the whole training."""
        best = self.epochs[self.best_epoch - 1].row()
        return {**best, "stopped": self.stopped, **self.cost()}

    def cost(self) -> dict[str, Any]:
        """Total steps, tokens and seconds; tokens per second, seconds per epoch, memory."""
        seconds = sum(record.seconds for record in self.epochs)
        tokens = sum(record.tokens for record in self.epochs)
        return {
            "steps": self.epochs[-1].step,
            "tokens": tokens,
            "seconds": seconds,
            "tokens_per_second": tokens / seconds if seconds else None,
            "seconds_per_epoch": seconds / self.epochs[-1].epoch,
            "peak_memory_mib": self.peak_memory_mib,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per evaluation."""
        return [record.row() for record in self.epochs]


def best_epoch(epochs: Sequence[EpochRecord]) -> int:
    """The first record of the lowest validation perplexity, from 1; the last if there is none."""
    scores = [r.validation_perplexity for r in epochs if r.validation_perplexity is not None]
    return 1 + scores.index(min(scores)) if scores else len(epochs)
