"""Finished trainings, as `vestige train` returns them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vestige import results
from vestige.results import Result

if TYPE_CHECKING:
    from vestige.training.history import TrainingHistory

MODEL, RUN = "model", "run"
"""Folders of the model and of the run in the directory of a training."""

REPEAT = "seed-{}"
"""Folder of the training of a seed (`vestige train --seeds`)."""


@dataclass(frozen=True, kw_only=True)
class Trained(Result):
    """A finished training and its directory.

    Attributes:
        directory: contains `model/`, `run/` and the log; all verbs accept it as a model.
        history: the evaluations during the training.
    """

    directory: Path
    history: "TrainingHistory"

    @property
    def model(self) -> Path:
        """The folder of the best model."""
        return self.directory / MODEL

    @classmethod
    def load(cls, directory: Path, history: "TrainingHistory") -> "Trained":
        """Read the run of a finished training from its directory."""
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
    """Trainings that differ only in their seeds.

    Attributes:
        directory: contains the trainings.
        trainings: the trainings in the order of their seeds.
    """

    directory: Path
    trainings: tuple[Trained, ...]

    @classmethod
    def collect(cls, directory: Path, trainings: Sequence[Trained]) -> "RepeatedTraining":
        """The result of the trainings in a directory."""
        return cls(
            kind="RepeatedTraining",
            summary={"directory": str(directory), "trainings": len(trainings)},
            rows=tuple(training.summary for training in trainings),
            directory=directory,
            trainings=tuple(trainings),
        )

    def next_step(self, out: object) -> str:
        """Message after the result: the folders and the next command."""
        return f"Trainings: {out}/seed-*. Compare defences: vestige compare plain={out} NAME=DIR"


def repeats(path: str) -> tuple[str, ...]:
    """The trainings in a directory of `vestige train --seeds`; of another directory, its path."""
    seeds = {folder: folder.name[5:] for folder in Path(path).glob(REPEAT.format("*"))}
    folders = [folder for folder, seed in seeds.items() if seed.isdecimal()]
    folders.sort(key=lambda folder: int(seeds[folder]))
    return tuple(map(str, folders)) or (path,)
