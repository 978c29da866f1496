r"""Noise schedule: a noise multiplier that falls over a training, in stages.

Late steps, where the model is nearly done, then get less noise than early ones, and at the same
epsilon early ones get more. With S stages of equal length,

.. math:: \sigma_k = \sigma_0 d^{k / (S - 1)}, \qquad k = 0, \dots, S - 1

so that the last stage has d times the noise of the first. Yu, Liu, Pu, Gursoy and Truex (2019),
"Differentially Private Model Publishing for Deep Learning", arXiv:1904.02200, dynamic privacy
budget allocation: this is their step decay, and with many stages their exponential decay.

Differs from the paper: the budget of the stages is composed for Poisson sampling (`accounting`),
where the paper bounds concentrated differential privacy. Stages and noise are fixed before the
first step and depend on no weight, so that no adaptive composition is needed; the paper's decay by
validation accuracy is left out for that. Du, Li, Chen, Chen and Hong (2021), "Dynamic
Differential-Privacy Preserving SGD", arXiv:2111.00173, lower the clipping norm as well, which here
is a choice of its own (`adaptive_clipping`).
"""

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

from vestige import _validate

STAGES = 8
"""Of a training. Ledgers name the first noise and the decay alone: another number is another
format."""


class Stage(NamedTuple):
    """Successive steps with one noise multiplier."""

    noise_multiplier: float
    steps: int


@dataclass(frozen=True, kw_only=True)
class NoiseSchedule:
    """Noise multipliers of all steps of a training.

    Attributes:
        first: noise multiplier of the first stage, above 0.
        decay: that of the last stage over it, in (0, 1].
        steps: of the whole training, as planned. With fewer than 8, each is a stage.

    Raises:
        ValueError: a value is out of range.

    Example:
        >>> NoiseSchedule(first=1.0, decay=0.5, steps=100).stages(30)
        (Stage(noise_multiplier=1.0, steps=13), Stage(noise_multiplier=0.905..., steps=12), \
Stage(noise_multiplier=0.820..., steps=5))
    """

    first: float
    decay: float
    steps: int

    def __post_init__(self) -> None:
        _validate.positive(first=self.first)
        _validate.finite(first=self.first)
        check_decay(self.decay)
        _validate.at_least(1, steps=self.steps)

    def at(self, step: int) -> float:
        """The noise multiplier of a step, counted from 0.

        Raises:
            ValueError: the training has no such step.
        """
        if not 0 <= step < self.steps:
            raise ValueError(
                f"step must lie in [0, {self.steps:,}), got {step:,}: the noise was planned for "
                f"{self.steps:,} steps"
            )
        return self._of_stage(step * self._number // self.steps)

    def stages(self, steps: int | None = None) -> tuple[Stage, ...]:
        """The stages of the first steps, or of all.

        Raises:
            ValueError: more steps than were planned.
        """
        taken = self.steps if steps is None else steps
        if not 0 <= taken <= self.steps:
            raise ValueError(f"steps must lie in [0, {self.steps:,}], got {taken:,}")
        ends = [-(-k * self.steps // self._number) for k in range(self._number + 1)]
        return tuple(
            Stage(self._of_stage(k), min(end, taken) - begin)
            for k, (begin, end) in enumerate(itertools.pairwise(ends))
            if begin < taken
        )

    @property
    def _number(self) -> int:
        return min(STAGES, self.steps)

    def _of_stage(self, k: int) -> float:
        return self.first * math.pow(self.decay, k / max(self._number - 1, 1))


Noise = float | NoiseSchedule
"""The noise multiplier of all steps, or how it falls."""


def falling(first: float, decay: float, steps: int) -> Noise:
    """The noise of a training that begins with a multiplier.

    Args:
        first: at least 0.
        decay: last over first, in (0, 1].
        steps: of the training.

    Returns:
        `first` itself where nothing falls.

    Raises:
        ValueError: a value is out of range.
    """
    check_decay(decay)
    if decay == 1 or not first:
        return first
    return NoiseSchedule(first=first, decay=decay, steps=steps)


def stages_of(noise: Noise, steps: int) -> tuple[Stage, ...]:
    """The first steps by their noise multiplier; one stage where it does not fall."""
    return noise.stages(steps) if isinstance(noise, NoiseSchedule) else (Stage(noise, steps),)


def noise_at(noise: Noise, step: int) -> float:
    """The noise multiplier of a step, counted from 0."""
    return noise.at(step) if isinstance(noise, NoiseSchedule) else noise


def check_decay(decay: float) -> None:
    """Raise ValueError unless noise can fall by this factor."""
    if not 0 < decay <= 1:
        raise ValueError(f"noise_decay must lie in (0, 1], got {decay}")
