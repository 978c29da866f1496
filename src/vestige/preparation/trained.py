"""Finished trainings: what `vestige train` returns, and what a folder says about its training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige import results
from vestige.results import Result

if TYPE_CHECKING:
    from vestige.training.history import TrainingHistory

MODEL, RUN = "model", "run"
"""Where the directory of a training has its model and its run."""

REPEAT = "seed-{}"
"""Where `vestige train --seeds` keeps the training of a seed."""

JUDGED_BY = "judged_by"
"""Which text judges a model: "validation", or "training" where nothing was held out."""


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


def training_summary(model: object) -> Mapping[str, Any]:
    """The summary of a training; nothing where the model was loaded or made elsewhere."""
    if not isinstance(model, str | PathLike):
        return {}
    run = Path(model) / RUN
    return results.load(run).summary if (run / "summary.json").is_file() else {}


def useless_model(model: object) -> str | None:
    """A sentence about a model that is no better than word frequencies; else None."""
    return useless_training(training_summary(model))


def useless_training(summary: Mapping[str, Any]) -> str | None:
    """A sentence about a training that is no better than word frequencies; else None."""
    from vestige.training.word_frequencies import FREQUENCIES, is_useless, useless_words

    alone, judged = summary.get(FREQUENCIES), summary.get("validation_perplexity")
    own = summary.get("perplexity") if summary.get(JUDGED_BY) == "training" else judged
    if alone is None or not is_useless(own, alone):
        return None
    return useless_words(own, alone, who="The model")


def repeats(path: str) -> tuple[str, ...]:
    """The trainings in a directory of `vestige train --seeds`, by seed; of any other, the path."""
    found = [one for one in Path(path).glob(REPEAT.format("*")) if one.name[5:].isdecimal()]
    ordered = sorted(found, key=lambda one: int(one.name[5:]))
    return tuple(map(str, ordered)) or (path,)
