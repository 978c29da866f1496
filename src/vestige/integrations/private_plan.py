"""What a private training by a `Trainer` reads, promises, and writes down beside its weights."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.data.atomic_write import write_text
from vestige.data.regular_file import read_bytes
from vestige.defences.accounting import check_delta, default_delta, noise_for, privacy_spent
from vestige.defences.methods.dp_sgd import DPSGD
from vestige.defences.noise_schedule import Noise
from vestige.defences.privacy_ancestry import Ancestry, Share
from vestige.defences.privacy_ledger import UNKNOWN, LedgerEntry, from_json, to_json
from vestige.defences.privacy_statement import PrivacyStatement
from vestige.errors import DataError, TrainingError
from vestige.integrations.loaded_weights import moved_since_loaded
from vestige.training.secret import Secret
from vestige.training.sequences import in_turn, poisson_sample
from vestige.workflows import privacy_files

LEDGER, STATEMENT = "privacy.json", "privacy.md"
_LARGEST = 1 << 20
UNNOISED = (
    "trainer_state.json, logs and trackers (loss, median_norm, clipped, what callbacks measured)",
    "checkpoint-*/ (optimizer.pt, trainer_state.json)",
    "while it trains secret.key, from which noise and lots follow",
)
"""What a trainer writes that has no noise, or tells of it."""


@dataclass(frozen=True)
class PrivateRows:
    """The rows of a training set, and whose they are.

    Attributes:
        number: of rows.
        owners: int64 (rows,) the user of each row, from 0; None where a row is the unit.
    """

    number: int
    owners: NDArray[np.int64] | None

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
                "the training set has no length, and a guarantee counts its rows",
                remedy="Give a `datasets.Dataset`, not a stream.",
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
                remedy="Name the one that says whose a row is (`user_column`).",
            )
        values = list(data[user_column])
        if None in values:
            raise DataError(
                f"{user_column} is None in {values.count(None):,} rows of the training set, first "
                f"in row {values.index(None) + 1:,}, and a guarantee for users needs all of theirs",
                remedy="Give each row its user; for planted canaries, `plant(..., user_column=...)`"
                " does.",
            )
        names = np.array([str(name) for name in values])
        return cls(len(data), np.unique(names, return_inverse=True)[1].astype(np.int64))

    def read_by(self, data: Any) -> "PrivateRows":
        """The same rows, as a trainer has made them ready.

        Raises:
            TrainingError: they are others, so that nobody knows whose they are.
        """
        if len(data) != self.number:
            raise TrainingError(
                f"the trainer made {len(data):,} rows of {self.number:,}, so that one may hold the "
                "text of several, or a text be in several",
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
        noise: over the clipping norm, of the first stage; 0 before `planned`, as `steps` is.
        before: trainings that made the model it starts from.
        entry: of its ledger.
        longest: tokens of a row at most.
    """

    rows: PrivateRows
    privacy: DPSGD
    expected_units: int
    noise: float = 0.0
    steps: int = 0
    before: tuple[LedgerEntry, ...] = ()
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
        if privacy.bands * expected > rows.units:
            raise ValueError(
                f"`per_device_train_batch_size` must be at most {rows.units // privacy.bands} in "
                f"all (times accumulation and processes), as many {privacy.protected}s as there "
                f"are in each of {privacy.bands} turns, got {expected}"
            )
        if privacy.delta is not None:
            check_delta(privacy.delta, rows.units)
        return cls(rows=rows, privacy=privacy, expected_units=expected)

    @property
    def clip(self) -> float:
        """Clipping norm of a unit's gradient."""
        return self.privacy.max_grad_norm

    @property
    def sample_rate(self) -> float:
        """How likely a unit is in a lot."""
        return self.expected_units / self.rows.units

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which a unit is drawn once on average."""
        return math.ceil(self.rows.units / self.expected_units)

    @property
    def noises(self) -> Noise:
        """The noise multiplier of all steps, or how it falls."""
        return self.privacy.noise_from(self.noise, self.steps)

    @property
    def delta(self) -> float:
        """Probability with which the guarantee may fail."""
        return self.privacy.delta or default_delta(self.rows.units)

    def lot(
        self, secret: Secret, step: int, process: int, processes: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """One process's part of a step's lot: (rows, the unit of each)."""
        units, groups = self.rows.units, self.privacy.bands
        rate = self.sample_rate * groups
        drawn = poisson_sample(secret.key("sampling"), step, units=units, sample_rate=rate)
        drawn = in_turn(secret.key("groups"), step, drawn, units=units, groups=groups)
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
            rate, turns = self.privacy.turns(self.sample_rate, steps)
            noise = noise_for(
                epsilon=self.privacy.epsilon,
                delta=self.delta,
                sample_rate=rate,
                steps=turns,
                accountant=self.privacy.accountant,  # type: ignore[arg-type]
                decay=self.privacy.noise_decay,
            )
        new = replace(self, noise=noise, steps=steps, before=_ancestors(model))
        entry = new._entry(model)
        if begun is not None:
            entry = _same(entry, begun / LEDGER)
        return replace(new, entry=entry)

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
        alone = Share(units=self.rows.units, earlier=(), epsilon=entry.epsilon)
        reasons = tuple(one.lacks or f"what {one.name} read is not known" for one in self.before)
        return PrivacyStatement(
            defence="dp-sgd",
            planned=self._spent(self.steps),
            units=self.rows.units,
            sequence_length=entry.sequence_length,
            held_out=0,
            ancestry=Ancestry(shares=(alone,), unknown=self.before, reasons=reasons),
            taken=None if steps is None else self._spent(steps),
            void=entry.void,
            in_pieces=False,
            unnoised=UNNOISED,
            released="the weights with their configuration, privacy.json and privacy.md",
            bands=self.privacy.bands,
            clip_quantile=self.privacy.clip_quantile,
        )

    def _spent(self, steps: int) -> Any:
        rate, turns = self.privacy.turns(self.sample_rate, steps)
        return privacy_spent(
            noise_multiplier=self.noises,
            sample_rate=rate,
            steps=turns,
            delta=self.delta,
            max_grad_norm=self.clip,
            unit=self.privacy.protected,
            accountant=self.privacy.accountant,  # type: ignore[arg-type]
        )

    def _entry(self, model: Any) -> LedgerEntry:
        spent = self._spent(self.steps)
        settings = model.config.get_text_config(decoder=True)
        return LedgerEntry(
            id=privacy_files.new_id(),
            defence="dp-sgd",
            unit=spent.unit,
            sequence_length=getattr(settings, "max_position_embeddings", None) or 1 << 20,
            noise_multiplier=spent.noise_multiplier,
            sample_rate=spent.sample_rate,
            steps_planned=spent.steps,
            bands=self.privacy.bands,
            max_grad_norm=spent.max_grad_norm,
            accountant=spent.accountant,
            epsilon=spent.epsilon if math.isfinite(spent.epsilon) else None,
            delta=spent.delta,
            void=self.privacy.void,
            noise_decay=spent.noise_decay,
        )


def _ancestors(model: Any) -> tuple[LedgerEntry, ...]:
    """Trainings that made the model; what has learnt since it was loaded has read something."""
    adapted = hasattr(model, "get_base_model")
    plain = model.get_base_model() if adapted else model
    found = privacy_files.lineage_of(plain.name_or_path or None).ledger
    learnt = any(
        bool(parameter.any())
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and "lora_B" in name
    )
    if not adapted and any(one.defence != UNKNOWN for one in found):
        learnt = moved_since_loaded(plain)
    more = (LedgerEntry(id=privacy_files.new_id(), defence=UNKNOWN),) if learnt else ()
    return (*found, *more)


def _same(entry: LedgerEntry, file: Path) -> LedgerEntry:
    """The entry of a training that was begun, which must promise what this one would.

    Raises:
        TrainingError: it is another training.
    """
    remedy = "Resume with the settings that it began with, or train into a new directory."
    content = read_bytes(file, limit=_LARGEST, error=TrainingError, remedy=remedy)
    begun = from_json(content, where=file)[-1]
    differing = [
        name
        for name, value in vars(entry).items()
        if name not in ("id", "steps") and getattr(begun, name) != value
    ]
    if differing:
        raise TrainingError(
            f"{file} is of a training with another {', another '.join(differing)}", remedy=remedy
        )
    return replace(begun, steps=None)


CROSS_ENTROPY = ("nll", "chunked_nll")
"""Losses by TRL's names that are the mean over a row's targets."""


def _computes_loss(trainer: Any) -> bool:
    """Whether a loss is computed elsewhere than in Transformers' or TRL's trainer of texts."""
    owner = next(one for one in type(trainer).__mro__ if "compute_loss" in vars(one))
    return f"{owner.__module__.split('.')[0]}.{owner.__name__}" not in (
        "transformers.Trainer",
        "trl.SFTTrainer",
    )


def refuse_settings(trainer: Any) -> None:
    """Refuse what would make a guarantee untrue, or is not known to keep it.

    Raises:
        TrainingError: naming the setting.
    """
    args = trainer.args
    found = {
        "fp16": (args.fp16, "bf16=True"),
        "deepspeed": (trainer.is_deepspeed_enabled, "DDP (torchrun), a copy of the model each"),
        "fsdp": (trainer.is_fsdp_enabled, "DDP (torchrun), a copy of the model each"),
        "torch_compile": (args.torch_compile, "torch_compile=False"),
        "auto_find_batch_size": (args.auto_find_batch_size, "a batch size that fits"),
        "packing": (getattr(args, "packing", False), "packing=False: a row is one text"),
        "padding_free": (getattr(args, "padding_free", False), "padding_free=False"),
        "label_smoothing_factor": (args.label_smoothing_factor, "label_smoothing_factor=0"),
        "use_liger_kernel": (args.use_liger_kernel, "use_liger_kernel=False"),
        "neftune_noise_alpha": (args.neftune_noise_alpha, "no NEFTune noise"),
        "loss_type": (getattr(args, "loss_type", "nll") not in CROSS_ENTROPY, "loss_type='nll'"),
        "compute_loss_func": (trainer.compute_loss_func, "the model's own cross-entropy"),
        "a compute_loss of its own": (_computes_loss(trainer), "the model's own cross-entropy"),
        "activation_offloading": (
            getattr(args, "activation_offloading", False),
            "gradient_checkpointing=True",
        ),
        "n_gpu": (args.n_gpu > 1, "torchrun with a process for each GPU"),
    }
    for name, (given, instead) in found.items():
        if given:
            raise TrainingError(f"a private training cannot take {name}", remedy=f"Use {instead}.")
