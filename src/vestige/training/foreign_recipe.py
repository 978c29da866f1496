"""What a training of another program tells about itself, in JSON that its trainer wrote.

`trainer_state.json` is that of transformers' `Trainer`, which TRL, Axolotl and LLaMA-Factory write
too. `training_args.bin` is a pickle, which can run any code, and is never read.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from vestige.data.files import Count, Measurements, read_json
from vestige.errors import TrainingError

STATE = "trainer_state.json"
_NO_PASS = 1e-6


class _Logged(Measurements):
    """A line of the trainer's log."""

    learning_rate: float | None = Field(default=None, ge=0, le=1e6)


class _State(Measurements):
    """The parts of `trainer_state.json` that a repetition needs."""

    global_step: Count
    epoch: float | None = Field(default=None, ge=0, le=1e6)
    train_batch_size: Count | None = None
    num_input_tokens_seen: Count | None = None
    log_history: list[_Logged] = Field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ForeignTraining:
    """A training of another program; None stands for what it does not tell.

    Attributes:
        steps: that were done.
        epochs: passes over the data, a fraction where the last was not finished.
        batch_size: texts of one step; where gradients were accumulated, of one part of it.
        learning_rate: the highest that was logged.
        tokens: read in all epochs together.
    """

    steps: int | None = None
    epochs: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    tokens: int | None = None

    @classmethod
    def of(cls, folder: Path) -> "ForeignTraining":
        """What the files of a model folder, or of its latest checkpoint, tell of its training.

        Raises:
            TrainingError: a file is no trainer's.
        """
        file = _state_file(folder)
        if file is None:
            return cls()
        remedy = f"Move {file} elsewhere, and pass tokens, epochs and learning rate as options."
        told = read_json(file, _State, error=TrainingError, remedy=remedy, finite=False)
        rates = [one.learning_rate for one in told.log_history if one.learning_rate is not None]
        return cls(
            steps=told.global_step or None,
            epochs=told.epoch if told.epoch and told.epoch > _NO_PASS else None,
            batch_size=told.train_batch_size or None,
            learning_rate=max(rates, default=0.0) or None,
            tokens=told.num_input_tokens_seen or None,
        )

    @property
    def settings(self) -> dict[str, int | float]:
        """What a `TrainingConfig` can take of it, by name."""
        known = {
            "epochs": self.epochs and max(1, round(self.epochs)),
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
        }
        return {name: value for name, value in known.items() if value is not None}

    def tokens_of_text(self, *, epochs: int, batch_size: int, text_length: float) -> int | None:
        """Tokens of the text that was read in each epoch: as told, or from steps and texts.

        Args:
            epochs: passes over it.
            batch_size: texts of a step.
            text_length: tokens of a text of the kind, on average.
        """
        if self.tokens is not None:
            return round(self.tokens / (self.epochs or epochs))
        if self.steps is None:
            return None
        return round(self.steps * batch_size / (self.epochs or epochs) * text_length)


def _state_file(folder: Path) -> Path | None:
    if (folder / STATE).is_file():
        return folder / STATE
    numbered = [
        (int(number), file)
        for file in folder.glob(f"checkpoint-*/{STATE}")
        if (number := file.parent.name.removeprefix("checkpoint-")).isdecimal()
    ]
    return max(numbered)[1] if numbered else None
