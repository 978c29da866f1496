"""Privacy ledger: the trainings that made a model, the guarantee of each, and of all together.

A model that continues another model was also trained on the text of that model. The ledger lists
these trainings, oldest first, in `privacy.json` beside the weights. It is released with them, so
it has no hash of a record or text: an attacker who knows all records but one could hash every
candidate and compare. Hashes of the training text stay in the training directory, which is not
released (`data/division.py`). The ids are random. Nothing proves that a ledger is true or complete.

Earlier trainings compose at worst case. One that read any record (or user) of this training counts
as if it had read all of them; one that read none does not count. For one whose records are unknown
the statement says what holds if it read them. A training that protects another unit has no joint
guarantee: a guarantee for a sequence does not cover a user, and one for a user does not cover a
single document. Sequences of several lengths compose for documents of at most the smallest.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Final, Literal

from vestige.data.division import ReadRecords, among
from vestige.data.files import parse_object
from vestige.errors import ModelError
from vestige.privacy.accounting import (
    Accountant,
    Mechanism,
    PrivacySpent,
    Unit,
    check_delta,
    composed_epsilon,
)

FORMAT = "vestige-privacy-1"
UNKNOWN: Final = "unknown"
"""An unknown defence, or an unknown text of a vocabulary."""

VocabularyOf = Literal["own", "read", "other", "unknown"]
_ID, _NAME = re.compile("[0-9a-f]{32}"), re.compile("[a-z][a-z0-9-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One training in the ancestry of a model.

    Attributes:
        id: random, 32 hexadecimal digits.
        defence: name; "none", or "unknown" for the text of a model from elsewhere.
        vocabulary: id of the training whose text the vocabulary was learned from, or "unknown".
        unit: protected unit; None, as all fields below, without a guarantee.
        sequence_length: maximum tokens of a sequence; each piece of a longer document is a unit.
        noise_multiplier: sigma, over the clipping norm.
        sample_rate: q of the Poisson sampling.
        steps_planned: steps that epsilon covers.
        steps: steps taken; None before the end.
        max_grad_norm: the clipping norm, C.
        accountant: accountant of epsilon; "prv" in ledgers of older versions.
        epsilon: at delta, of this training alone; None if infinite.
        delta: of this training.
        void: reasons that void the guarantee.

    Raises:
        ValueError: the numbers do not describe a training.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {
        "strict": True,
        "extra": "forbid",
        "allow_inf_nan": False,
        "hide_input_in_errors": True,
    }

    id: str
    defence: str
    vocabulary: str = UNKNOWN
    unit: Unit | None = None
    sequence_length: int | None = None
    noise_multiplier: float | None = None
    sample_rate: float | None = None
    steps_planned: int | None = None
    steps: int | None = None
    max_grad_norm: float | None = None
    accountant: Literal[Accountant, "prv"] | None = None
    epsilon: float | None = None
    delta: float | None = None
    void: tuple[str, ...] = ()

    @classmethod
    def of(cls, spent: PrivacySpent, **rest: Any) -> "LedgerEntry":
        """The entry of a training with this budget of its planned steps."""
        numbers: Any = {**spent.summary(), "steps_planned": spent.steps}
        del numbers["steps"]
        return cls(**numbers, **rest)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.defence):
            raise ValueError("defence must be the name of a defence")
        vocabulary = self.vocabulary.replace(UNKNOWN, "0" * 32)
        if not (_ID.fullmatch(self.id) and _ID.fullmatch(vocabulary)):
            raise ValueError("id and vocabulary must be 32 hexadecimal digits")
        if self.unit is not None:
            if None in (self.sequence_length, self.delta, self.accountant):
                raise ValueError("unit must come with sequence_length, delta and accountant")
            check_delta(self.delta or 0.0)
            self._mechanism()

    def _mechanism(self) -> Mechanism:
        noise, rate, steps = self.noise_multiplier, self.sample_rate, self.steps_planned
        if noise is None or rate is None or steps is None:
            raise ValueError("unit must come with noise_multiplier, sample_rate and steps_planned")
        return Mechanism(noise_multiplier=noise, sample_rate=rate, steps=steps)

    @property
    def mechanism(self) -> Mechanism | None:
        """The mechanism of the steps planned; None without a guarantee."""
        return None if self.no_guarantee_reason else self._mechanism()

    @property
    def no_guarantee_reason(self) -> str | None:
        """Why the training gives no guarantee; None if it gives one."""
        if self.defence == UNKNOWN:
            return "the training text of the model it started from is unknown"
        if self.unit is None:
            return f"{self.name} trained on them without a guarantee"
        if self.void:
            return f"the guarantee of {self.name} is void"
        return f"{self.name} trained on them without noise" if self.epsilon is None else None

    @property
    def name(self) -> str:
        """Name in a sentence."""
        if self.defence == UNKNOWN:
            return "the model it started from"
        kind = "undefended" if self.defence == "none" else self.defence
        return f"training {self.id[:8]} ({kind})"

    def ended(self, steps: int) -> "LedgerEntry":
        """The entry after the last step, counted from 1."""
        return replace(self, steps=steps)


def to_json(ledger: Sequence[LedgerEntry]) -> str:
    """The content of `privacy.json`."""
    trainings = [asdict(entry) for entry in ledger]
    return json.dumps({"format": FORMAT, "trainings": trainings}, indent=2) + "\n"


def from_json(content: bytes, *, where: object) -> tuple[LedgerEntry, ...]:
    """Ledger from what `to_json` wrote, also in older versions.

    Args:
        content: of the file.
        where: the file, for the message.

    Raises:
        ModelError: it is no ledger.
    """
    from pydantic import TypeAdapter, ValidationError

    remedy = (
        "Restore it from the run of the model. Without it, the earlier training text is unknown, "
        "and the guarantee says so."
    )
    ledger = parse_object(content, where, error=ModelError, remedy=remedy)
    try:
        rows = ledger.get("trainings")
        if ledger.get("format") != FORMAT or not isinstance(rows, list):
            raise ValueError(f"it does not list trainings in the format {FORMAT}")
        adapter = TypeAdapter(LedgerEntry)
        return tuple(adapter.validate_json(json.dumps(_least_noise(row))) for row in rows)
    except (ValueError, ValidationError) as error:
        problem = " ".join(str(error).split("For further")[0].split())
        raise ModelError(f"{where} is not a privacy ledger: {problem}", remedy=remedy) from error


def _least_noise(row: Any) -> Any:
    """Convert an entry of an older version.

    With noise correlated over steps (`bands`), sample rate and steps already count the turns of a
    unit. With falling noise (`noise_decay`), every step counts with the least noise.
    """
    if not isinstance(row, dict):
        return row
    entry = dict(row)
    bands, decay = entry.pop("bands", 1), entry.pop("noise_decay", 1)
    if not (isinstance(bands, int) and bands >= 1 and isinstance(decay, int | float)):
        raise ValueError("bands must be a whole number, and noise_decay a number")
    if not 0 < decay <= 1:
        raise ValueError(f"noise_decay must be in (0, 1], got {decay}")
    if decay < 1 and isinstance(noise := entry.get("noise_multiplier"), int | float):
        entry["noise_multiplier"] = noise * decay
    return entry


@dataclass(frozen=True, kw_only=True)
class Ancestry:
    """Effect of earlier trainings on the guarantee of a training, at worst case.

    Attributes:
        shared: earlier trainings on some of its records, oldest first.
        epsilon: of these and this training together; None: no joint guarantee, for `reasons`.
        longest: maximum tokens of documents that `epsilon` covers; None: no limit.
        unknown: earlier trainings whose records are unknown.
        if_read: epsilon of a record that the unknown trainings also read; None: no guarantee, for
            `unknown_reasons`.
        vocabulary: "own" (learned from this training's text), "read" (from a text with some of its
            records), "other" (from a text with none of them) or "unknown".
        in_vocabulary: number of its records in the text of the vocabulary; None: unknown.
    """

    shared: tuple[LedgerEntry, ...] = ()
    epsilon: float | None = None
    reasons: tuple[str, ...] = ()
    longest: int | None = None
    unknown: tuple[LedgerEntry, ...] = ()
    if_read: float | None = None
    unknown_reasons: tuple[str, ...] = ()
    vocabulary: VocabularyOf = UNKNOWN
    in_vocabulary: int | None = None

    @classmethod
    def of(
        cls,
        entry: LedgerEntry,
        shared: Sequence[LedgerEntry],
        unknown: Sequence[LedgerEntry],
        *,
        choosing: Sequence[LedgerEntry] = (),
    ) -> "Ancestry":
        """The joint guarantee of a training with a unit.

        `choosing`: trainings among `shared` that chose their epoch with some of its records.
        """
        epsilon, reasons = _joint(entry, shared, choosing)
        if_read, unknown_reasons = _joint(entry, (*shared, *unknown), choosing)
        lengths = {training.sequence_length for training in (entry, *shared)} - {None}
        differing = entry.unit == "sequence" and len(lengths) > 1 and epsilon is not None
        return cls(
            shared=tuple(shared),
            epsilon=epsilon,
            reasons=reasons,
            longest=min(length for length in lengths if length is not None) if differing else None,
            unknown=tuple(unknown),
            if_read=if_read if unknown else None,
            unknown_reasons=unknown_reasons,
        )


def ancestry(
    entry: LedgerEntry,
    records: ReadRecords,
    earlier: Sequence[LedgerEntry],
    read: Mapping[str, ReadRecords],
) -> Ancestry:
    """The joint guarantee of a training and of earlier ones that share records with it.

    Args:
        entry: this training, with a unit.
        records: its records; held-out ones are not counted.
        earlier: its ancestors, oldest first.
        read: records of trainings by id; those of a missing one are unknown.
    """
    learned = records.training()

    def share(earlier_records: ReadRecords) -> bool:
        texts = bool(among(learned.records, earlier_records.records).any())
        return texts or (
            entry.unit == "user" and bool(among(learned.users, earlier_records.users).any())
        )

    recorded = [training for training in earlier if training.id in read]
    shared = [training for training in recorded if share(read[training.id])]
    choosing = [training for training in shared if share(read[training.id].validation())]
    unknown = [training for training in earlier if training.id not in read]
    joint = Ancestry.of(entry, shared, unknown, choosing=choosing)
    origin, count = vocabulary_of(entry.id, entry.vocabulary, records, read)
    return replace(joint, vocabulary=origin, in_vocabulary=count)


def vocabulary_of(
    entry_id: str, vocabulary: str, records: ReadRecords, read: Mapping[str, ReadRecords]
) -> tuple[VocabularyOf, int | None]:
    """Origin of a vocabulary's text, and the number of a training's records in it.

    Args:
        entry_id: of the training.
        vocabulary: id of the training whose text it was learned from, or "unknown".
        records: of the training; held-out ones are not counted.
        read: as for `ancestry`.
    """
    learned = records.training()
    if vocabulary == entry_id:
        return "own", len(learned)
    if vocabulary == UNKNOWN or vocabulary not in read:
        return UNKNOWN, None
    count = int(among(learned.records, read[vocabulary].records).sum())
    return ("read" if count else "other"), count


def _joint(
    entry: LedgerEntry, earlier: Sequence[LedgerEntry], choosing: Sequence[LedgerEntry]
) -> tuple[float | None, tuple[str, ...]]:
    """Epsilon of a record of this training and of earlier ones, or why there is none."""
    reasons = []
    for training in earlier:
        if (reason := training.no_guarantee_reason) is not None:
            reasons.append(reason)
        elif training in choosing:
            reasons.append(f"{training.name} chose its epoch with some of them")
        elif training.unit != entry.unit:
            reasons.append(f"{training.name} protects another unit; no joint guarantee is computed")
    if reasons or entry.no_guarantee_reason:
        return None, tuple(dict.fromkeys(reasons))
    if not earlier:
        return entry.epsilon, ()
    all_mechanisms = [training.mechanism for training in (*earlier, entry)]
    accountant: Accountant = "rdp" if entry.accountant == "rdp" else "pld"
    mechanisms = [training for training in all_mechanisms if training is not None]
    return composed_epsilon(mechanisms, delta=entry.delta or 0.0, accountant=accountant), ()
