"""State of a training that does not change from step to step."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vestige.models.protocols import Network
from vestige.training.batches import Batches
from vestige.training.config import TrainingConfig
from vestige.training.history import EpochRecord, StopFn
from vestige.training.secret import Secret
from vestige.training.steps import Private
from vestige.training.training_task import TrainingTask

ProgressFn = Callable[[int, int, float, float], None]
"""Told every few steps: step, steps in all, mean loss since last told, tokens per second."""

ObserveFn = Callable[[Any, EpochRecord], None]
"""Shown the model, in evaluation mode, after each evaluation; it must leave it as it is, and is
shown the same again where a training goes on from an earlier checkpoint."""


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """Model, data, step and settings of one training.

    Attributes:
        model: in training.
        lesson: data, step and evaluation.
        batches: in what order.
        config: how.
        directory: where it is kept, if anywhere.
        optimizer: of the model.
        step: how a batch becomes a gradient.
        stop: whether it ends early.
        progress: told every few steps.
        observe: shown the model after each evaluation.
        secret: what a private training draws from; None for all others.
    """

    model: Network
    lesson: TrainingTask
    batches: Batches
    config: TrainingConfig
    directory: Path | None
    optimizer: torch.optim.Optimizer
    step: Callable[[Any, Any, Any], tuple[Tensor, Any]]
    stop: StopFn
    progress: ProgressFn | None
    observe: ObserveFn | None
    secret: Secret | None

    @property
    def order(self) -> int:
        """Source of the batches' order: the seed, in a private training the secret."""
        return self.config.seed if self.secret is None else self.secret.number("sampling")

    @property
    def private(self) -> Private | None:
        """Step, if it is private; else None."""
        step: object = self.step
        return step if isinstance(step, Private) else None

    @property
    def steps(self) -> int:
        """Number of steps, unless the training is stopped."""
        return self.config.epochs * len(self.batches)

    def pause(self, step: int) -> int:
        """Step after which the next evaluation comes."""
        size = len(self.batches)
        end = (step // size + 1) * size
        every = self.config.evaluate_every
        return end if every is None else min(end, (step // every + 1) * every)
