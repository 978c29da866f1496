"""What a training went through, epoch by epoch."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One pass over the data.

    Attributes:
        epoch: counted from 1.
        step: steps taken by its end.
        learning_rate: of its last step.
        perplexity: on the training data, while training (dropout on, weights moving).
        validation_perplexity: after the epoch; None without validation data.
        validation_accuracy: of the next word, likewise.
    """

    epoch: int
    step: int
    learning_rate: float
    perplexity: float
    validation_perplexity: float | None
    validation_accuracy: float | None


StopFn = Callable[[Sequence[EpochRecord]], bool]
"""The second door for a defence: asked after each epoch, True ends the training."""


@dataclass(frozen=True, kw_only=True)
class TrainingHistory:
    """A finished training.

    Attributes:
        epochs: one record an epoch.
        best_epoch: the epoch, from 1, whose weights were kept: the lowest validation perplexity,
            or the last without validation data.
        stopped: a StopFn ended it before its last epoch.
    """

    epochs: tuple[EpochRecord, ...]
    best_epoch: int
    stopped: bool

    def summary(self) -> dict[str, object]:
        """The kept epoch, as one row of a table."""
        return {**asdict(self.epochs[self.best_epoch - 1]), "stopped": self.stopped}

    def rows(self) -> list[dict[str, object]]:
        """One row an epoch."""
        return [asdict(record) for record in self.epochs]


def best_epoch(epochs: Sequence[EpochRecord]) -> int:
    """The first epoch of the lowest validation perplexity; the last where there is none."""
    scores = [r.validation_perplexity for r in epochs if r.validation_perplexity is not None]
    return 1 + scores.index(min(scores)) if scores else len(epochs)
