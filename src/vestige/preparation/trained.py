"""What `vestige train` returns: a finished training, or those of several seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.results import Result

if TYPE_CHECKING:
    from vestige.training.history import TrainingHistory

MODEL = "model"
"""Where the directory of a training has its model."""


@dataclass(frozen=True, kw_only=True)
class Trained(Result):
    """A finished training and its directory.

    Attributes:
        directory: holds `model/`, `run/` and the log; every verb accepts it as a model.
        history: the evaluations of the training.
    """

    directory: Path
    history: "TrainingHistory"

    @property
    def model(self) -> Path:
        """The folder of the best model."""
        return self.directory / MODEL


@dataclass(frozen=True, kw_only=True)
class RepeatedTraining(Result):
    """Trainings that differ in their seed alone.

    Attributes:
        directory: holds them.
        trainings: in the order of their seeds.
    """

    directory: Path
    trainings: tuple[Trained, ...]

    def next_step(self, out: object) -> str:
        """A line for the terminal about the trainings."""
        return f"Trainings: {out}/seed-*. Compare defences: vestige compare plain={out} NAME=DIR"

    @classmethod
    def of_trainings(cls, directory: Path, trainings: Sequence[Trained]) -> "RepeatedTraining":
        """The trainings in a directory."""
        return cls(
            kind="RepeatedTraining",
            summary={"directory": str(directory), "trainings": len(trainings)},
            rows=tuple(one.summary for one in trainings),
            directory=directory,
            trainings=tuple(trainings),
        )
