"""What a private training by a `Trainer` reads, promises, and writes down beside its weights."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.data.atomic_write import write_text
from vestige.data.files import read_bytes
from vestige.defences.methods.private import DPSGD
from vestige.errors import DataError, TrainingError
from vestige.integrations.model_history import ModelHistory, history_of, remember
from vestige.preparation import lineage
from vestige.privacy.accounting import (
    Mechanism,
    PrivacySpent,
    check_delta,
    default_delta,
    noise_for,
)
from vestige.privacy.ledger import Ancestry, LedgerEntry, from_json, to_json
from vestige.privacy.statement import PrivacyStatement
from vestige.training.secret import Secret
from vestige.training.sequences import poisson_sample

LEDGER, STATEMENT = "privacy.json", "privacy.md"
_LARGEST = 1 << 20
UNNOISED = (
    "trainer_state.json, logs and trackers (loss, median_norm, clipped, what callbacks measured)",
    "checkpoint-*/ (optimizer.pt, trainer_state.json)",
    "while it trains secret.key, from which noise and lots follow",
)
"""What a trainer writes that has no noise, or tells of it."""
MOVED = (
    "the model was trained after it was loaded, perhaps on the same rows without noise (if not, "
    "save the model and load it again)"
)
NOTHING = ModelHistory(loaded=())


@dataclass(frozen=True)
class PrivateRows:
    """The rows of a training set, and whose they are.

    Attributes:
        number: of rows.
        owners: int64 (rows,) the user of each row, from 0; None where a row is the unit.
        names: of the users; None where a row is the unit.
    """

    number: int
    owners: NDArray[np.int64] | None
    names: frozenset[str] | None = None

    @classmethod
    def of(cls, data: Any, privacy: DPSGD, user_column: str | None) -> "PrivateRows":
        """Those of a training set as it was given, whose columns a trainer may drop.

        Raises:
            ValueError: a user is the unit and no column says whose a row is, or the reverse.
            DataError: there is no such column, a row in it is None, or the set's length is not
                known.
        """
        if data is None or not hasattr(data, "__len__"):
            raise DataError(
                "the training set has no length; a guarantee counts its rows",
                remedy="Pass a `datasets.Dataset`, not a stream.",
            )
        by_user = privacy.protected == "user"
        if by_user != (user_column is not None):
            raise ValueError(
                "`user_column` must be given with `DPSGD(unit='user')` and only with it, got "
                f"{user_column!r} with unit {privacy.protected!r}"
            )
        if user_column is None:
            return cls(len(data), None)
        columns = getattr(data, "column_names", None) or []
        if user_column not in columns:
            raise DataError(
                f"the training set has no column {user_column}; it has {', '.join(columns)}",
                remedy="Pass the column of users (`user_column`).",
            )
        values = list(data[user_column])
        if None in values:
            raise DataError(
                f"{user_column} is None in {values.count(None):,} rows of the training set, first "
                f"in row {values.index(None) + 1:,}; a guarantee for users needs every user",
                remedy=(
                    "Set the user of each row; for planted canaries, `plant(..., "
                    "user_column=...)` does."
                ),
            )
        names = np.array([str(name) for name in values])
        users, owners = np.unique(names, return_inverse=True)
        return cls(len(data), owners.astype(np.int64), frozenset(users.tolist()))

    def read_by(self, data: Any) -> "PrivateRows":
        """The same rows, as a trainer has made them ready.

        Raises:
            TrainingError: they are others, so that nobody knows whose they are.
        """
        if len(data) != self.number:
            raise TrainingError(
                f"the trainer made {len(data):,} rows of {self.number:,}: a row can have several "
                "texts, or a text several rows",
                remedy="Switch packing off.",
            )
        return self

    @property
    def units(self) -> int:
        """Rows, or users."""
        return self.number if self.owners is None else int(self.owners.max()) + 1

    def of_units(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(the rows of units, the unit of each)."""
        if self.owners is None:
            return chosen, chosen
        rows = np.flatnonzero(np.isin(self.owners, chosen))
        return rows, self.owners[rows]


@dataclass(frozen=True, kw_only=True)
class PrivateTraining:
    """A training's rows and mechanism, and what it promises by them.

    Attributes:
        rows: that it reads.
        privacy: as it was asked for.
        expected_units: of a lot.
        noise: over the clipping norm; 0 before `planned`, as `steps` is.
        history: of the model that it starts from.
        held_out: units that choose weights or steps by an evaluation, and are not protected.
        entry: of its ledger.
    """

    rows: PrivateRows
    privacy: DPSGD
    expected_units: int
    noise: float = 0.0
    steps: int = 0
    history: ModelHistory = NOTHING
    held_out: int = 0
    entry: LedgerEntry | None = None

    @classmethod
    def of(cls, rows: PrivateRows, privacy: DPSGD, args: Any) -> "PrivateTraining":
        """That of a trainer's settings.

        Raises:
            ValueError: a lot would have more units than there are, or delta is out of range.
        """
        expected = (
            args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        )
        if expected > rows.units:
            raise ValueError(
                f"`per_device_train_batch_size` must be at most {rows.units} in all (times "
                f"accumulation and processes), as many {privacy.protected}s as there are, got "
                f"{expected}"
            )
        if privacy.delta is not None:
            check_delta(privacy.delta, rows.units)
        return cls(rows=rows, privacy=privacy, expected_units=expected)

    @property
    def clip(self) -> float:
        """Clipping norm of a unit's gradient."""
        return self.privacy.max_grad_norm

    @property
    def before(self) -> tuple[LedgerEntry, ...]:
        """Trainings that made the model it starts from, oldest first."""
        return (*self.history.loaded, *self.history.here)

    @property
    def sample_rate(self) -> float:
        """How likely a unit is in a lot."""
        return self.expected_units / self.rows.units

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which a unit is drawn once on average."""
        return math.ceil(self.rows.units / self.expected_units)

    @property
    def delta(self) -> float:
        """Probability with which the guarantee may fail."""
        return self.privacy.delta or default_delta(self.rows.units)

    def lot(
        self, secret: Secret, step: int, process: int, processes: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """One process's part of a step's lot: (rows, the unit of each)."""
        units, rate = self.rows.units, self.sample_rate
        drawn = poisson_sample(secret.key("sampling"), step, units=units, sample_rate=rate)
        return self.rows.of_units(drawn[process::processes])

    def planned(self, args: Any, begun: Path | None, model: Any) -> "PrivateTraining":
        """The same with its noise, for the steps that a trainer will take.

        Args:
            args: of the trainer.
            begun: the directory of a training that goes on.
            model: that will learn.

        Raises:
            TrainingError: no noise keeps within epsilon, or another training was begun.
        """
        steps = args.max_steps
        if steps <= 0:
            steps = math.ceil(args.num_train_epochs * self.steps_per_epoch)
        noise = self.privacy.noise_multiplier
        if noise is None:
            assert self.privacy.epsilon is not None
            noise = noise_for(
                epsilon=self.privacy.epsilon,
                delta=self.delta,
                sample_rate=self.sample_rate,
                steps=steps,
                accountant=self.privacy.accountant,  # type: ignore[arg-type]
            )
        new = replace(self, noise=noise, steps=steps)
        if begun is None:
            new = replace(new, history=history_of(model))
            return replace(new, entry=new._entry(model))
        *before, entry = _same(new._entry(model), begun / LEDGER)
        here = [one for one in before if one.id in {own.id for own in history_of(model).here}]
        loaded = [one for one in before if one not in here]
        history = ModelHistory(loaded=tuple(loaded), here=tuple(here))
        return replace(new, history=history, entry=entry)

    def remembered(self, model: Any, steps: int | None = None) -> None:
        """Keep in mind that a model is trained by it.

        Args:
            model: that learns.
            steps: that were taken; None before the first.
        """
        assert self.entry is not None
        entry = self.entry if steps is None else self.entry.ended(steps)
        history = replace(self.history, here=(*self.history.here, entry))
        remember(model, history, done=steps is not None)

    def write(self, folder: Path, steps: int | None = None) -> None:
        """Write the ledger and the statement into a folder with weights, or one to be.

        Args:
            folder: where.
            steps: that were taken; None before the first.
        """
        assert self.entry is not None
        entry = self.entry if steps is None else self.entry.ended(steps)
        write_text(folder / LEDGER, to_json((*self.before, entry)), shared=True)
        told = "\n\n".join(self.statement(steps).sentences())
        write_text(folder / STATEMENT, f"# Privacy\n\n{told}\n", shared=True)

    def statement(self, steps: int | None) -> PrivacyStatement:
        """What it promises, after some steps, or before the first."""
        entry = self.entry
        assert entry is not None
        assert entry.sequence_length is not None
        history, units = self.history, self.rows.units
        return PrivacyStatement(
            defence="dp-sgd",
            planned=self._spent(self.steps),
            units=units,
            sequence_length=entry.sequence_length,
            held_out=self.held_out,
            # Trainings in this process count as if they had read the same rows.
            ancestry=Ancestry.of(entry, history.here, history.loaded),
            taken=None if steps is None else self._spent(steps),
            void=entry.void,
            in_pieces=False,
            unnoised=UNNOISED,
            released="the weights with their configuration, privacy.json and privacy.md",
        )

    def _spent(self, steps: int) -> Any:
        return PrivacySpent.of(
            Mechanism(noise_multiplier=self.noise, sample_rate=self.sample_rate, steps=steps),
            delta=self.delta,
            max_grad_norm=self.clip,
            unit=self.privacy.protected,
            accountant=self.privacy.accountant,  # type: ignore[arg-type]
        )

    def _entry(self, model: Any) -> LedgerEntry:
        spent = self._spent(self.steps)
        settings = model.config.get_text_config(decoder=True)
        return LedgerEntry(
            id=lineage.new_id(),
            defence="dp-sgd",
            unit=spent.unit,
            sequence_length=getattr(settings, "max_position_embeddings", None) or 1 << 20,
            noise_multiplier=spent.noise_multiplier,
            sample_rate=spent.sample_rate,
            steps_planned=spent.steps,
            max_grad_norm=spent.max_grad_norm,
            accountant=spent.accountant,
            epsilon=spent.epsilon if math.isfinite(spent.epsilon) else None,
            delta=spent.delta,
            void=(*self.privacy.void, *([MOVED] if self.history.moved else [])),
        )


def _same(entry: LedgerEntry, file: Path) -> tuple[LedgerEntry, ...]:
    """The ledger of a training that was begun, which must promise what this one would.

    Raises:
        TrainingError: it is another training.
    """
    remedy = "Resume with the same settings, or choose another directory."
    content = read_bytes(file, limit=_LARGEST, error=TrainingError, remedy=remedy)
    *before, begun = from_json(content, where=file)
    differing = [
        name
        for name, value in vars(entry).items()
        if name not in ("id", "steps", "void") and getattr(begun, name) != value
    ]
    if differing:
        raise TrainingError(
            f"{file} belongs to a training with another {', another '.join(differing)}",
            remedy=remedy,
        )
    return (*before, replace(begun, steps=None))
