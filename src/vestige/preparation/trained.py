"""Finished trainings: what `vestige train` returns, and what a folder says about its training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vestige import results
from vestige.results import Result

if TYPE_CHECKING:
    from vestige.training.history import TrainingHistory

MODEL, RUN = "model", "run"
"""Where the directory of a training has its model and its run."""

REPEAT = "seed-{}"
"""Where `vestige train --seeds` keeps the training of a seed."""


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

    @classmethod
    def in_folder(cls, directory: Path, history: "TrainingHistory") -> "Trained":
        """The training as its directory has it; one that was finished before knows its cost."""
        saved = results.load(directory / RUN)
        return cls(
            kind=saved.result,
            summary={"model": str(directory / MODEL), **saved.summary},
            rows=tuple(history.rows()),
            record={"verb": "train", **saved.run},
            directory=directory,
            history=history,
        )


@dataclass(frozen=True, kw_only=True)
class RepeatedTraining(Result):
    """Trainings that differ in their seed alone.

    Attributes:
        directory: holds them.
        trainings: in the order of their seeds.
    """

    directory: Path
    trainings: tuple[Trained, ...]

    @classmethod
    def in_folder(cls, directory: Path, trainings: Sequence[Trained]) -> "RepeatedTraining":
        """The trainings in a directory."""
        return cls(
            kind="RepeatedTraining",
            summary={"directory": str(directory), "trainings": len(trainings)},
            rows=tuple(one.summary for one in trainings),
            directory=directory,
            trainings=tuple(trainings),
        )

    def next_step(self, out: object) -> str:
        """A line for the terminal about the trainings."""
        return f"Trainings: {out}/seed-*. Compare defences: vestige compare plain={out} NAME=DIR"


def repeats(path: str) -> tuple[str, ...]:
    """The trainings in a directory of `vestige train --seeds`, by seed; of any other, the path."""
    found = [one for one in Path(path).glob(REPEAT.format("*")) if one.name[5:].isdecimal()]
    ordered = sorted(found, key=lambda one: int(one.name[5:]))
    return tuple(map(str, ordered)) or (path,)
