"""The guarantee of a private training by a `Trainer`: its noise, its ledger, its statement."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vestige.data.files import read_bytes
from vestige.data.writing import write_text
from vestige.defences.methods.private import DPSGD, PrivacyPlan
from vestige.errors import TrainingError
from vestige.integrations.model_history import ModelHistory, history_of, remember
from vestige.integrations.private_rows import PrivateRows
from vestige.preparation import lineage
from vestige.privacy.ledger import Ancestry, LedgerEntry, from_json, to_json
from vestige.privacy.statement import PrivacyStatement
from vestige.training.directory import LEDGER

STATEMENT = "privacy.md"
_LARGEST_LEDGER = 1 << 20
UNNOISED_FILES = (
    "trainer_state.json, logs and trackers (loss, median_norm, clipped, values of callbacks)",
    "checkpoint-*/ (optimizer.pt, trainer_state.json)",
    "secret.key during the training, which determines noise and batches",
)
"""Files of a trainer without noise, or that reveal the noise."""
CHANGED_MODEL = (
    "the model was trained after it was loaded, perhaps on the same rows without noise (if not, "
    "save the model and load it again)"
)


@dataclass(frozen=True, kw_only=True)
class PrivateTraining:
    """The guarantee of a training.

    Attributes:
        plan: the noise, and the steps that it covers.
        history: the trainings that made the model.
        entry: the entry of the training in the ledger.
        held_out: number of unprotected units that choose weights or steps.
    """

    plan: PrivacyPlan
    history: ModelHistory
    entry: LedgerEntry
    held_out: int

    @classmethod
    def of(
        cls,
        rows: PrivateRows,
        privacy: DPSGD,
        trainer: Any,
        *,
        held_out: int,
        resumed_from: Path | None,
    ) -> "PrivateTraining":
        """The guarantee of the steps that a trainer will take.

        Raises:
            TrainingError: no noise is enough for epsilon, or the folder belongs to another
                training.
        """
        args, model = trainer.args, trainer.model
        steps = args.max_steps
        if steps <= 0:
            steps = math.ceil(args.num_train_epochs * rows.steps_per_epoch)
        plan = privacy.plan(privacy.protected, rows.units, rows.sample_rate, steps)
        history = history_of(model)
        config = model.config.get_text_config(decoder=True)
        entry = LedgerEntry.of(
            plan.spent(steps),
            id=lineage.new_id(),
            defence=privacy.name,
            sequence_length=getattr(config, "max_position_embeddings", None) or 1 << 20,
            void=(*privacy.void, *([CHANGED_MODEL] if history.changed else [])),
        )
        if resumed_from is not None:
            *earlier, entry = _load_resumed_ledger(entry, resumed_from / LEDGER)
            ids = {training.id for training in history.in_process}
            in_process = tuple(training for training in earlier if training.id in ids)
            from_folder = tuple(training for training in earlier if training.id not in ids)
            history = ModelHistory(from_folder=from_folder, in_process=in_process)
        return cls(plan=plan, history=history, entry=entry, held_out=held_out)

    @property
    def earlier(self) -> tuple[LedgerEntry, ...]:
        """The trainings that made the model, oldest first."""
        return (*self.history.from_folder, *self.history.in_process)

    def remember(self, model: Any, steps: int | None = None) -> None:
        """Remember that this training trains a model; `steps` when it has ended."""
        in_process = (*self.history.in_process, self._entry_after(steps))
        history = replace(self.history, in_process=in_process)
        remember(model, history, finished=steps is not None)

    def write(self, folder: Path, steps: int | None = None) -> None:
        """Write ledger and statement next to the weights, before the training or after `steps`."""
        ledger = to_json((*self.earlier, self._entry_after(steps)))
        write_text(folder / LEDGER, ledger, shared=True)
        sentences = "\n\n".join(self.statement(steps).sentences())
        write_text(folder / STATEMENT, f"# Privacy\n\n{sentences}\n", shared=True)

    def statement(self, steps: int | None) -> PrivacyStatement:
        """The guarantee before the first step, or after `steps`."""
        plan, entry = self.plan, self.entry
        assert entry.sequence_length is not None
        return PrivacyStatement(
            defence=entry.defence,
            planned=plan.spent(plan.steps),
            units=plan.units,
            sequence_length=entry.sequence_length,
            held_out=self.held_out,
            # Trainings in this process count as if they had read the same rows.
            ancestry=Ancestry.of(entry, self.history.in_process, self.history.from_folder),
            taken=None if steps is None else plan.spent(steps),
            void=entry.void,
            in_pieces=False,
            unnoised=UNNOISED_FILES,
            released="the weights with their configuration, privacy.json and privacy.md",
        )

    def _entry_after(self, steps: int | None) -> LedgerEntry:
        return self.entry if steps is None else self.entry.ended(steps)


def _load_resumed_ledger(entry: LedgerEntry, file: Path) -> tuple[LedgerEntry, ...]:
    """The ledger of a training to resume; TrainingError if its guarantee is different."""
    remedy = "Resume with the same settings, or choose another directory."
    content = read_bytes(file, limit=_LARGEST_LEDGER, error=TrainingError, remedy=remedy)
    *earlier, saved = from_json(content, where=file)
    different = [
        name
        for name, value in vars(entry).items()
        if name not in ("id", "steps", "void") and getattr(saved, name) != value
    ]
    if different:
        raise TrainingError(
            f"{file} belongs to a training with another {', another '.join(different)}",
            remedy=remedy,
        )
    return (*earlier, replace(saved, steps=None))
