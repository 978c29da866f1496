"""Privacy ledger: the trainings that made a model, the guarantee of each, and of all together.

A model that continues another one has read the other's text as well. The ledger lists these
trainings, oldest first, in `privacy.json` beside the weights. It is released with them, and so
holds no hash of a record, nor of a text: whoever knows all records but one could compute the hash
of every candidate and compare. Hashes of what was read stay in the directory of the training, which
is not released (`data/read_records.py`). The ids are random. Nothing proves that a ledger is true,
or whole.

Earlier trainings compose at worst case: one that read any record (or user) of this training counts
as if it had read all of them, one that read none counts nothing, and of one whose records are not
at hand the statement says what holds if it read them. A training that protects another unit has no
joint guarantee: a promise for a sequence says nothing of a user, and one for a user nothing of a
single document. Sequences of different lengths compose for documents of at most the smallest.
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
"""Defence of a training, or text of a vocabulary, that is not known."""

VocabularyOf = Literal["own", "read", "other", "unknown"]
_ID, _NAME = re.compile("[0-9a-f]{32}"), re.compile("[a-z][a-z0-9-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One training in the ancestry of a model.

    Attributes:
        id: random, 32 hexadecimal digits.
        defence: by name; "none", or "unknown" for whatever a model from elsewhere has read.
        vocabulary: id of the training whose text the vocabulary was learned from, or "unknown".
        unit: what is protected; None, like all that follows, without a guarantee to state.
        sequence_length: most tokens of a sequence: of a longer document, each piece is a unit.
        noise_multiplier: sigma, over the clipping norm.
        sample_rate: q of the Poisson sampling.
        steps_planned: that epsilon is for.
        steps: that were taken; None before the end.
        max_grad_norm: the clipping norm, C.
        accountant: that computed epsilon; "prv" in ledgers of older versions.
        epsilon: at delta, of this training alone; None where it is infinite.
        delta: of this training.
        void: what voids the guarantee, in words.

    Raises:
        ValueError: the numbers are those of no training.
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
            raise ValueError("defence must be the name of one")
        known = self.vocabulary.replace(UNKNOWN, "0" * 32)
        if not (_ID.fullmatch(self.id) and _ID.fullmatch(known)):
            raise ValueError("id and vocabulary must be 32 hexadecimal digits")
        if self.unit is not None:
            if None in (self.sequence_length, self.delta, self.accountant):
                raise ValueError("unit must come with all that the guarantee is of")
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
        """Why it promises nothing to what it read; None where it promises something."""
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
        """The same after its last step, counted from 1."""
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
    found = parse_object(content, where, error=ModelError, remedy=remedy)
    try:
        rows = found.get("trainings")
        if found.get("format") != FORMAT or not isinstance(rows, list):
            raise ValueError(f"it does not list trainings in the format {FORMAT}")
        adapter = TypeAdapter(LedgerEntry)
        return tuple(adapter.validate_json(json.dumps(_least_noise(row))) for row in rows)
    except (ValueError, ValidationError) as error:
        problem = " ".join(str(error).split("For further")[0].split())
        raise ModelError(f"{where} is not a privacy ledger: {problem}", remedy=remedy) from error


def _least_noise(row: Any) -> Any:
    """An entry in the terms of today.

    Older versions could correlate the noise of so many steps (`bands`): sample rate and steps are
    those of a unit's turns, and compose as such. Or it fell to a share (`noise_decay`): it composes
    as if all steps had had the least.
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
    """What earlier trainings mean for the records of a training, at worst case.

    Attributes:
        shared: earlier trainings that read some of its records, oldest first.
        epsilon: of these and this one together; None: no joint guarantee, for `reasons`.
        longest: tokens of the documents that `epsilon` is for; None: all.
        unknown: earlier trainings whose records are not at hand.
        if_read: epsilon of a record that the unknown ones read as well; None: no guarantee, for
            `unknown_reasons`.
        vocabulary: "own" (learned from this training's text), "read" (from a text with some of its
            records), "other" (from a text with none of them) or "unknown".
        in_vocabulary: how many of its records the vocabulary was learned from; None: not known.
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

        `choosing`: those among `shared` that chose their epoch by some of its records.
        """
        epsilon, reasons = _joint(entry, shared, choosing)
        if_read, unknown_reasons = _joint(entry, (*shared, *unknown), choosing)
        lengths = {one.sequence_length for one in (entry, *shared)} - {None}
        several = entry.unit == "sequence" and len(lengths) > 1 and epsilon is not None
        return cls(
            shared=tuple(shared),
            epsilon=epsilon,
            reasons=reasons,
            longest=min(one for one in lengths if one is not None) if several else None,
            unknown=tuple(unknown),
            if_read=if_read if unknown else None,
            unknown_reasons=unknown_reasons,
        )


def ancestry(
    entry: LedgerEntry,
    own: ReadRecords,
    earlier: Sequence[LedgerEntry],
    read: Mapping[str, ReadRecords],
) -> Ancestry:
    """The joint guarantee of a training and of those before it that share records with it.

    Args:
        entry: this training, with a unit.
        own: what it reads; held-out records are not counted.
        earlier: its ancestors, oldest first.
        read: what trainings have read, by id; of those that are missing it is unknown.
    """
    learnt = own.training()

    def share(other: ReadRecords) -> bool:
        texts = bool(among(learnt.records, other.records).any())
        return texts or (entry.unit == "user" and bool(among(learnt.users, other.users).any()))

    known = [one for one in earlier if one.id in read]
    shared = [one for one in known if share(read[one.id])]
    choosing = [one for one in shared if share(read[one.id].validation())]
    unknown = [one for one in earlier if one.id not in read]
    found = Ancestry.of(entry, shared, unknown, choosing=choosing)
    made, count = vocabulary_of(entry.id, entry.vocabulary, own, read)
    return replace(found, vocabulary=made, in_vocabulary=count)


def vocabulary_of(
    entry_id: str, vocabulary: str, own: ReadRecords, read: Mapping[str, ReadRecords]
) -> tuple[VocabularyOf, int | None]:
    """The text that a vocabulary was learned from, and how many records of a training it has.

    Args:
        entry_id: of the training.
        vocabulary: id of the training whose text it was learned from, or "unknown".
        own: what the training reads; held-out records are not counted.
        read: as for `ancestry`.
    """
    learnt = own.training()
    if vocabulary == entry_id:
        return "own", len(learnt)
    if vocabulary == UNKNOWN or vocabulary not in read:
        return UNKNOWN, None
    count = int(among(learnt.records, read[vocabulary].records).sum())
    return ("read" if count else "other"), count


def _joint(
    entry: LedgerEntry, earlier: Sequence[LedgerEntry], choosing: Sequence[LedgerEntry]
) -> tuple[float | None, tuple[str, ...]]:
    """Epsilon of a record that this training and earlier ones read, or why there is none."""
    reasons = []
    for one in earlier:
        if (reason := one.no_guarantee_reason) is not None:
            reasons.append(reason)
        elif one in choosing:
            reasons.append(f"{one.name} chose its epoch by some of them")
        elif one.unit != entry.unit:
            reasons.append(f"{one.name} protects another unit; no joint guarantee is computed")
    if reasons or entry.no_guarantee_reason:
        return None, tuple(dict.fromkeys(reasons))
    if not earlier:
        return entry.epsilon, ()
    every = [one.mechanism for one in (*earlier, entry)]
    accountant: Accountant = "rdp" if entry.accountant == "rdp" else "pld"
    mechanisms = [one for one in every if one is not None]
    return composed_epsilon(mechanisms, delta=entry.delta or 0.0, accountant=accountant), ()
