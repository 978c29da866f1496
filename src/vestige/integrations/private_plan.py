"""The rows of a private training by a `Trainer`, what made its model, and its guarantee.

Private trainings in this process are remembered by the model that they trained, so that another one
of the same model adds to the budgets of all. A model whose weights differ from its folder's, or
from those that the last private training left, was trained by something unknown, perhaps on the
same rows and without noise. Limits: a model that was made in memory, or loaded from a hub by its
name, and then trained by something else counts as new. An adapter that has learned is an unknown
ancestor.
"""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from vestige.data.files import read_bytes
from vestige.data.writing import write_text
from vestige.defences.methods.private import DPSGD, PrivacyPlan
from vestige.errors import DataError, TrainingError, VestigeError
from vestige.models.folders import weight_files
from vestige.preparation import lineage
from vestige.privacy.accounting import check_delta
from vestige.privacy.ledger import UNKNOWN, Ancestry, LedgerEntry, from_json, to_json
from vestige.privacy.statement import PrivacyStatement
from vestige.training.directory import LEDGER
from vestige.training.secret import Secret
from vestige.training.sequences import poisson_sample

Ids = NDArray[np.int64]

STATEMENT = "privacy.md"
_LARGEST = 1 << 20
UNNOISED = (
    "trainer_state.json, logs and trackers (loss, median_norm, clipped, what callbacks measured)",
    "checkpoint-*/ (optimizer.pt, trainer_state.json)",
    "while it trains secret.key, from which noise and lots follow",
)
"""What a trainer writes without noise, or what shows the noise."""
MOVED = (
    "the model was trained after it was loaded, perhaps on the same rows without noise (if not, "
    "save the model and load it again)"
)


@dataclass(frozen=True)
class PrivateRows:
    """The rows of a training set, their users, and the batches that are Poisson-sampled of them.

    Attributes:
        number: of rows.
        owners: int64 (rows,) the user of each row, from 0; None if a row is the unit.
        names: of the users; None likewise.
        expected_units: rows or users of a batch, on average; 0 before `batched`.
    """

    number: int
    owners: Ids | None = None
    names: frozenset[str] | None = None
    expected_units: int = 0

    @classmethod
    def of(cls, data: Any, privacy: DPSGD, user_column: str | None) -> "PrivateRows":
        """Those of a training set as it was given, whose columns a trainer may drop.

        Raises:
            ValueError: a user is the unit and no column was given, or the reverse.
            DataError: there is no such column, a row in it is None, or the set has no length.
        """
        if data is None or not hasattr(data, "__len__"):
            raise DataError(
                "the training set has no length; a guarantee counts its rows",
                remedy="Pass a `datasets.Dataset`, not a stream.",
            )
        if (privacy.protected == "user") != (user_column is not None):
            raise ValueError(
                "`user_column` must be given with `DPSGD(unit='user')` and only with it, got "
                f"{user_column!r} with unit {privacy.protected!r}"
            )
        if user_column is None:
            return cls(len(data))
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
        users, owners = np.unique([str(name) for name in values], return_inverse=True)
        return cls(len(data), owners.astype(np.int64), frozenset(users.tolist()))

    def batched(self, prepared: Any, privacy: DPSGD, args: Any) -> "PrivateRows":
        """The same, sampled by the settings of a trainer, `args`.

        Raises:
            TrainingError: the trainer `prepared` other rows of them, whose users are unknown.
            ValueError: a batch has more units than there are, or delta is out of range.
        """
        if len(prepared) != self.number:
            raise TrainingError(
                f"the trainer made {len(prepared):,} rows of {self.number:,}: a row can have "
                "several texts, or a text several rows",
                remedy="Switch packing off.",
            )
        expected = (
            args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        )
        if expected > self.units:
            raise ValueError(
                f"`per_device_train_batch_size` must be at most {self.units} in all (times "
                f"accumulation and processes), as many {privacy.protected}s as there are, got "
                f"{expected}"
            )
        if privacy.delta is not None:
            check_delta(privacy.delta, self.units)
        return replace(self, expected_units=expected)

    @property
    def units(self) -> int:
        """Number of rows, or of users."""
        return self.number if self.names is None else len(self.names)

    @property
    def sample_rate(self) -> float:
        """Probability with which a unit is in a batch."""
        return self.expected_units / self.units

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which a unit is sampled once on average."""
        return math.ceil(self.units / self.expected_units)

    def batch(self, secret: Secret, step: int, process: int, processes: int) -> tuple[Ids, Ids]:
        """One process's part of a step's batch: rows, and the unit of each."""
        key, rate = secret.key("sampling"), self.sample_rate
        drawn = poisson_sample(key, step, units=self.units, sample_rate=rate)[process::processes]
        if self.owners is None:
            return drawn, drawn
        rows = np.flatnonzero(np.isin(self.owners, drawn))
        return rows, self.owners[rows]


@dataclass(frozen=True, kw_only=True)
class ModelHistory:
    """Trainings that made a model, oldest first: of its folder's ledger, and private ones here.

    `moved`: something else has trained it in this process.
    """

    loaded: tuple[LedgerEntry, ...]
    here: tuple[LedgerEntry, ...] = ()
    moved: bool = False


Norms = dict[tuple[str, int], str]
"""Exact norms of a model's tensors, by name and identity."""

_REMEMBERED: WeakKeyDictionary[Any, tuple[ModelHistory, Norms]] = WeakKeyDictionary()
"""By the model without its adapter; without norms while it trains."""

_OF_ADAPTER = re.compile(r"\blora_|\b(modules_to_save|original_module|token_adapter)\b")
"""Names of what PEFT puts into a model."""


def history_of(model: Any) -> ModelHistory:
    """What made a model, or the base of an adapter and the adapter."""
    plain = _without_adapter(model)
    if plain in _REMEMBERED:
        history, norms = _REMEMBERED[plain]
        moved = any(norms.get(which, norm) != norm for which, norm in _norms(plain).items())
        return replace(history, moved=history.moved or moved)
    found = lineage.history_of(plain.name_or_path or None).ledger
    compared = compared_with_folder(plain)
    learned = any(
        bool(parameter.any())
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and "lora_B" in name
    )
    known = any(one.defence != UNKNOWN for one in found)
    if learned or (known and compared != "same"):
        found = (*found, LedgerEntry(id=lineage.new_id(), defence=UNKNOWN))
    return ModelHistory(loaded=found, moved=compared == "other")


def remember(model: Any, history: ModelHistory, *, done: bool) -> None:
    """Remember what made a model, when a private training of it begins and when it ends."""
    plain = _without_adapter(model)
    _REMEMBERED[plain] = (history, _norms(plain) if done else {})


@torch.no_grad()
def compared_with_folder(model: Any) -> Literal["same", "other", "partly"]:
    """Compare the weights of a model with those of the folder that it was loaded from.

    An adapter is left out, and quantized weights, which do not learn. "same" also without a folder;
    "partly" if not all weights are there in the same shape.
    """
    folder = Path(model.name_or_path or "")
    if not (model.name_or_path and folder.is_dir()):
        return "same"
    named = {
        name.replace(".base_layer", ""): parameter
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if parameter.is_floating_point() and not _OF_ADAPTER.search(name)
    }
    left = {id(parameter) for parameter in named.values()}
    try:
        files = weight_files(folder)
    except VestigeError:
        return "partly"
    for file in files:
        with safe_open(file, "pt") as stored:
            for name in named.keys() & set(stored.keys()):
                parameter = named[name]
                loaded = stored.get_tensor(name).to(parameter.dtype)
                if loaded.shape != parameter.shape:
                    continue
                if not torch.equal(loaded, parameter.cpu()):
                    return "other"
                left.discard(id(parameter))
    return "partly" if left else "same"


def _without_adapter(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@torch.no_grad()
def _norms(model: Any) -> Norms:
    some = [(name, p) for name, p in model.named_parameters() if p.is_floating_point()]
    return {(name, id(p)): float(torch.linalg.vector_norm(p.float())).hex() for name, p in some}


@dataclass(frozen=True, kw_only=True)
class PrivateTraining:
    """The guarantee of a training; `held_out`: unprotected units by which it is evaluated."""

    plan: PrivacyPlan
    history: ModelHistory
    entry: LedgerEntry
    held_out: int

    @classmethod
    def of(
        cls, rows: PrivateRows, privacy: DPSGD, trainer: Any, *, held_out: int, begun: Path | None
    ) -> "PrivateTraining":
        """That of the steps that a trainer will take.

        Raises:
            TrainingError: no noise keeps within epsilon, or `begun`, the folder of a training that
                is resumed, is of another one.
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
            void=(*privacy.void, *([MOVED] if history.moved else [])),
        )
        if begun is not None:
            *before, entry = _resumed(entry, begun / LEDGER)
            own = {one.id for one in history.here}
            here = tuple(one for one in before if one.id in own)
            loaded = tuple(one for one in before if one.id not in own)
            history = ModelHistory(loaded=loaded, here=here)
        return cls(plan=plan, history=history, entry=entry, held_out=held_out)

    @property
    def before(self) -> tuple[LedgerEntry, ...]:
        """Trainings that made the model it starts from, oldest first."""
        return (*self.history.loaded, *self.history.here)

    def remember(self, model: Any, steps: int | None = None) -> None:
        """Remember that a model is trained by it, after so many steps or before the first."""
        here = (*self.history.here, self._entry_after(steps))
        remember(model, replace(self.history, here=here), done=steps is not None)

    def write(self, folder: Path, steps: int | None = None) -> None:
        """Write ledger and statement beside weights, after so many steps or before the first."""
        ledger = to_json((*self.before, self._entry_after(steps)))
        write_text(folder / LEDGER, ledger, shared=True)
        sentences = "\n\n".join(self.statement(steps).sentences())
        write_text(folder / STATEMENT, f"# Privacy\n\n{sentences}\n", shared=True)

    def statement(self, steps: int | None) -> PrivacyStatement:
        """The guarantee, after so many steps or before the first."""
        plan, entry = self.plan, self.entry
        assert entry.sequence_length is not None
        return PrivacyStatement(
            defence=entry.defence,
            planned=plan.spent(plan.steps),
            units=plan.units,
            sequence_length=entry.sequence_length,
            held_out=self.held_out,
            # Trainings in this process count as if they had read the same rows.
            ancestry=Ancestry.of(entry, self.history.here, self.history.loaded),
            taken=None if steps is None else plan.spent(steps),
            void=entry.void,
            in_pieces=False,
            unnoised=UNNOISED,
            released="the weights with their configuration, privacy.json and privacy.md",
        )

    def _entry_after(self, steps: int | None) -> LedgerEntry:
        return self.entry if steps is None else self.entry.ended(steps)


def _resumed(entry: LedgerEntry, file: Path) -> tuple[LedgerEntry, ...]:
    """The ledger of a begun training, which must promise what this one does."""
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
