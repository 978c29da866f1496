"""Privacy across a model's trainings: records read before, and their joint guarantee.

Records are grouped by the earlier trainings that read them. What a record is promised is what this
training and those spend together (`composition`), if all of them protect the same unit:

- a promise for a sequence says nothing of a user, and one for a user nothing of a single document:
  with a document more, a user who stays is another user, whose clipped gradient moves by up to 2C;
- a document of at most L tokens is one sequence to every training whose sequences have L or more,
  so that different lengths compose for documents of the smallest; longer ones are cut differently.

A record that chose the epoch of an earlier training has no guarantee from it. One that only an
earlier training read keeps that one's guarantee: what comes after never saw it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vestige.data.records import NOBODY, ReadRecords, among
from vestige.defences.composition import composed_epsilon
from vestige.defences.privacy_ledger import UNKNOWN, LedgerEntry

VocabularyOf = Literal["own", "read", "other", "unknown"]

_UNREAD, _LEARNT, _JUDGED, _OTHERWISE = range(4)
"""How an earlier training has met a unit; OTHERWISE: its text, as no unit of that training."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """Records, or users, that the same earlier trainings read.

    Attributes:
        units: how many documents (or users) of this training they are.
        earlier: the trainings that read them, oldest first.
        epsilon: of all these and this one, at this one's delta; None: no joint guarantee.
        reasons: why there is none.
        longest: documents with at most so many tokens are meant; None: all of them.
    """

    units: int
    earlier: tuple[LedgerEntry, ...]
    epsilon: float | None
    reasons: tuple[str, ...] = ()
    longest: int | None = None


@dataclass(frozen=True, kw_only=True)
class Ancestry:
    """What earlier trainings mean for the records of this one.

    Attributes:
        shares: the training's records, or users, by who read them before, none of them first.
        unknown: earlier trainings whose records are not at hand.
        if_read: epsilon of a record that all of the unknown ones read, too; None: no guarantee.
        reasons: why there is none.
        vocabulary: "own" (made of this training's text), "read" (of a text with records of it),
            "other" (of a text with none of them) or "unknown".
        in_vocabulary: how many of its records the vocabulary was made of; None: not known.
    """

    shares: tuple[Share, ...]
    unknown: tuple[LedgerEntry, ...] = ()
    if_read: float | None = None
    reasons: tuple[str, ...] = ()
    vocabulary: VocabularyOf = "unknown"
    in_vocabulary: int | None = None

    @property
    def units(self) -> int:
        """Documents, or users, of this training."""
        return sum(share.units for share in self.shares)

    @property
    def read_before(self) -> int:
        """Those that an earlier training is known to have read."""
        return sum(share.units for share in self.shares if share.earlier)

    @property
    def without(self) -> int:
        """Those that are known to have no guarantee."""
        return sum(share.units for share in self.shares if share.epsilon is None)

    @property
    def epsilon(self) -> float | None:
        """That all known records have; None where one has no guarantee."""
        known = [share.epsilon for share in self.shares]
        return None if None in known else max([one for one in known if one is not None])


def ancestry(
    entry: LedgerEntry,
    own: ReadRecords,
    earlier: Sequence[LedgerEntry],
    read: Mapping[str, ReadRecords],
) -> Ancestry:
    """Group the records of a training by what read them before.

    Args:
        entry: this training, with a unit.
        own: what it reads; held-out records are not counted.
        earlier: its ancestors, oldest first.
        read: what trainings have read, by id; of those that are missing it is unknown.

    Raises:
        ValueError: the entry has no unit, or nothing is read.
    """
    if entry.unit is None:
        raise ValueError(f"entry must have a unit, got the training {entry.id} without a guarantee")
    learnt = own.learnt()
    if not len(learnt):
        raise ValueError("own must hold records that are learnt from, got none")
    known = [one for one in earlier if one.id in read]
    met = np.stack(
        [np.zeros(_units(entry, learnt), np.int64)]
        + [_met(entry, learnt, one, read[one.id]) for one in known],
        axis=1,
    )
    groups, counts = np.unique(met, axis=0, return_counts=True)
    shares = [
        _share(
            entry, int(count), [(one, int(how)) for one, how in zip(known, row[1:], strict=True)]
        )
        for row, count in zip(groups, counts, strict=True)
    ]
    unknown = tuple(one for one in earlier if one.id not in read)
    vocabulary, in_vocabulary = vocabulary_of(entry.id, entry.vocabulary, own, read)
    supposed = as_if_read(entry, 0, unknown)
    return Ancestry(
        shares=tuple(shares),
        unknown=unknown,
        if_read=supposed.epsilon if unknown else None,
        reasons=supposed.reasons,
        vocabulary=vocabulary,
        in_vocabulary=in_vocabulary,
    )


def as_if_read(entry: LedgerEntry, units: int, earlier: Sequence[LedgerEntry]) -> Share:
    """All units of a training, supposing that each of some earlier ones read them all."""
    return _share(entry, units, [(one, _LEARNT) for one in earlier])


def _share(entry: LedgerEntry, units: int, met: Sequence[tuple[LedgerEntry, int]]) -> Share:
    earlier = [(one, how) for one, how in met if how != _UNREAD]
    whole = [one for one, _ in earlier]
    reasons = [reason for one, how in earlier if (reason := _lacks(entry, one, how)) is not None]
    lengths = {one.sequence_length for one in (entry, *whole)} - {None}
    several = entry.unit == "sequence" and len(lengths) > 1 and not reasons
    return Share(
        units=units,
        earlier=tuple(whole),
        epsilon=None if reasons or entry.lacks else _composed(entry, whole),
        reasons=tuple(reasons),
        longest=min(one for one in lengths if one is not None) if several else None,
    )


def _lacks(entry: LedgerEntry, one: LedgerEntry, how: int) -> str | None:
    """Why an earlier training leaves a unit of this one without a guarantee."""
    if one.lacks is not None:
        return one.lacks
    if how == _JUDGED:
        return f"{one.name} chose its epoch by them"
    if one.unit != entry.unit or how == _OTHERWISE:
        return f"{one.name} protects another unit; no joint guarantee is computed"
    return None


def _composed(entry: LedgerEntry, earlier: Sequence[LedgerEntry]) -> float | None:
    assert entry.delta is not None
    assert entry.accountant is not None
    if not earlier:
        return entry.epsilon
    mechanisms = [one.mechanism for one in (*earlier, entry)]
    found = [one for one in mechanisms if one is not None]
    return composed_epsilon(found, delta=entry.delta, accountant=entry.accountant)


def _units(entry: LedgerEntry, learnt: ReadRecords) -> int:
    return len(learnt) if entry.unit == "sequence" else len(_owners(learnt)[0])


def _owners(records: ReadRecords) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Every owner once, and whose each record is."""
    owners, places = np.unique(records.users, return_inverse=True)
    return owners, places.reshape(-1)


def _met(
    entry: LedgerEntry, learnt: ReadRecords, one: LedgerEntry, read: ReadRecords
) -> NDArray[np.int64]:
    """(units,) how an earlier training has met each unit of this one."""
    if entry.unit == "sequence":
        return _states(learnt.records, read, "records")
    owners, places = _owners(learnt)
    met = np.zeros(len(owners), np.int64)
    # Where both say whose a text is, names decide: two users may have written the same.
    nobodys = read.part(~_named(read.users))
    texts = _states(learnt.records, nobodys, "records")
    np.maximum.at(met, places[texts != _UNREAD], _OTHERWISE)
    names = _states(owners, read, "users")
    return np.where(names == _UNREAD, met, names if one.unit == "user" else _OTHERWISE)


def _named(users: NDArray[np.void]) -> NDArray[np.bool_]:
    return np.fromiter((one.tobytes() != NOBODY for one in users), np.bool_, len(users))


def _states(
    hashes: NDArray[np.void], read: ReadRecords, column: Literal["records", "users"]
) -> NDArray[np.int64]:
    learnt = among(hashes, getattr(read.learnt(), column))
    judged = among(hashes, getattr(read.judging(), column))
    found: NDArray[np.int64] = np.select([judged, learnt], [_JUDGED, _LEARNT], _UNREAD)
    return found


def vocabulary_of(
    entry_id: str, vocabulary: str, own: ReadRecords, read: Mapping[str, ReadRecords]
) -> tuple[VocabularyOf, int | None]:
    """Of what text the vocabulary of a training was made, and how many of its records are there.

    Args:
        entry_id: of the training.
        vocabulary: id of the training of whose text it was made, or "unknown".
        own: what the training reads; held-out records are not counted.
        read: as for `ancestry`.
    """
    learnt = own.learnt()
    if vocabulary == entry_id:
        return "own", len(learnt)
    if vocabulary == UNKNOWN or vocabulary not in read:
        return "unknown", None
    count = int(among(learnt.records, read[vocabulary].records).sum())
    return ("read" if count else "other"), count
