"""Training configuration and learning-rate schedule."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from vestige import _validate

Batching = Literal["stream", "documents", "users", "poisson", "poisson-users"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings of a training, apart from model, data, step and stop.

    Attributes:
        seed: of dropout, order and other randomness; a private training uses a secret instead.
        epochs: passes over the data.
        batch_size: rows of a batch.
        sequence_length: tokens of a row; gradients do not reach further back.
        optimizer: "adam" or "sgd".
        learning_rate: before the schedule and after the warm-up.
        schedule: "constant"; "step", multiplied by `decay` in every epoch after `decay_after`;
            "cosine", falling to zero at the last step.
        decay: factor of the step schedule.
        decay_after: epochs at the full rate in the step schedule.
        warmup_steps: steps over which the rate climbs linearly from zero.
        max_grad_norm: maximum L2 norm of the gradient; None: no clipping.
        precision: of matrix products, see `steps.choose_precision`.
        checkpoint_every: steps between two checkpoints; each epoch also ends with one.
        batching: "stream" reads all documents as one text; the others read each by itself, at
            most `sequence_length` tokens at a time: "documents" in batches of any users, "users"
            in batches of one user; "poisson" samples sequences and "poisson-users" users
            independently, `batch_size` of them expected (see `sequences`).
        evaluate_every: steps between two evaluations; None: one at the end of each epoch.
        keep: final weights: those of the "best" evaluation or of the "last".
        momentum: of "sgd", in [0, 1).

    Raises:
        ValueError: a value is out of range.
    """

    seed: int
    epochs: int = 6
    batch_size: int = 20
    sequence_length: int = 35
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    schedule: Literal["constant", "step", "cosine"] = "constant"
    decay: float = 0.5
    decay_after: int = 4
    warmup_steps: int = 0
    max_grad_norm: float | None = 5.0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    checkpoint_every: int = 500
    batching: Batching = "stream"
    evaluate_every: int | None = None
    keep: Literal["best", "last"] = "best"
    momentum: float = 0.0

    def __post_init__(self) -> None:
        _validate.at_least(1, epochs=self.epochs, batch_size=self.batch_size)
        _validate.at_least(1, sequence_length=self.sequence_length)
        _validate.at_least(1, checkpoint_every=self.checkpoint_every)
        _validate.at_least(0, seed=self.seed, warmup_steps=self.warmup_steps)
        _validate.at_least(0, decay_after=self.decay_after)
        _validate.positive(learning_rate=self.learning_rate, decay=self.decay)
        _validate.finite(learning_rate=self.learning_rate, decay=self.decay)
        _validate.one_of(("adam", "sgd"), optimizer=self.optimizer)
        _validate.fraction(momentum=self.momentum)
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(
                f'momentum must come with optimizer="sgd", got {self.momentum} with '
                f"{self.optimizer!r}"
            )
        _validate.one_of(("constant", "step", "cosine"), schedule=self.schedule)
        _validate.one_of(("auto", "float32", "bfloat16"), precision=self.precision)
        _validate.one_of(get_args(Batching), batching=self.batching)
        _validate.one_of(("best", "last"), keep=self.keep)
        if self.evaluate_every is not None:
            _validate.at_least(1, evaluate_every=self.evaluate_every)
        if self.max_grad_norm is not None:
            _validate.positive(max_grad_norm=self.max_grad_norm)


def learning_rate(config: TrainingConfig, step: int, *, steps_per_epoch: int) -> float:
    """Learning rate of a step, counted from 0.

    Example:
        >>> config = TrainingConfig(
        ...     seed=0, learning_rate=1.0, schedule="step", decay=0.5, decay_after=2
        ... )
        >>> [learning_rate(config, step, steps_per_epoch=1) for step in range(5)]
        [1.0, 1.0, 0.5, 0.25, 0.125]
    """
    rate = config.learning_rate
    if config.schedule == "step":
        rate *= config.decay ** max(0, step // steps_per_epoch + 1 - config.decay_after)
    elif config.schedule == "cosine":
        rate *= (1 + math.cos(math.pi * step / (config.epochs * steps_per_epoch))) / 2
    if step < config.warmup_steps:
        rate *= (step + 1) / config.warmup_steps
    return rate
