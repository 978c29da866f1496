"""The trainings that made a model, and the records that they read.

DIR/privacy.json         the ledger, written before the first step
DIR/records/<id>.npy     hashes of the records of this training and of earlier ones; never released
DIR/model/privacy.json   the ledger with the number of steps
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path

import numpy as np

from vestige.data.division import ReadRecords
from vestige.data.files import LARGEST, read_bytes
from vestige.data.writing import replacing, write_text
from vestige.defences.registry import DEFENCES, NoDefence
from vestige.errors import ModelError
from vestige.models.folders import model_folder
from vestige.preparation.trained import MODEL
from vestige.privacy.ledger import UNKNOWN, LedgerEntry, from_json, to_json
from vestige.training.directory import IDENTITY, LEDGER, RECORDS


@dataclass(frozen=True)
class History:
    """The trainings of a model, oldest first, and their records by id."""

    ledger: tuple[LedgerEntry, ...] = ()
    records: Mapping[str, ReadRecords] = field(default_factory=dict)

    @classmethod
    def load(cls, ledger: Path, directory: Path) -> "History":
        """Read a ledger, and the records in a directory."""
        remedy = "Restore it from where the model was trained."
        content = read_bytes(ledger, limit=LARGEST, error=ModelError, remedy=remedy)
        files = [file for file in sorted((directory / RECORDS).glob("*.npy")) if file.is_file()]
        records = {file.stem: ReadRecords.load(file) for file in files}
        entries = from_json(content, where=ledger)
        names = (UNKNOWN, NoDefence.name, *DEFENCES.names())
        if any(entry.defence not in names for entry in entries):
            problem = f"{ledger} is not a privacy ledger: defence must be one of {names}"
            raise ModelError(problem, remedy=remedy)
        return cls(entries, records)


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """A training with the earlier trainings of its model and its vocabulary.

    Attributes:
        id: id of the training.
        earlier: the earlier trainings of the model, oldest first.
        vocabulary: id of the training from whose text the vocabulary was learned.
        records: the records of this training.
        earlier_records: the records of the earlier trainings and of that of the vocabulary, by id.
        void: reasons why the guarantee has been void since the training began.
    """

    id: str
    earlier: tuple[LedgerEntry, ...]
    vocabulary: str
    records: ReadRecords
    earlier_records: Mapping[str, ReadRecords]
    void: tuple[str, ...] = ()


def lineage_of(out: Path, records: ReadRecords, *, start: object, vocabulary: object) -> Lineage:
    """The lineage of a new training, or of the training that is resumed in a directory.

    Args:
        out: directory of the training.
        records: the records that it reads.
        start: the model that it continues, or None.
        vocabulary: the model whose vocabulary it uses, or None.
    """
    resumed = history_in(out)
    if resumed is not None:
        *earlier, entry = resumed.ledger
        return Lineage(
            id=entry.id,
            earlier=tuple(earlier),
            vocabulary=entry.vocabulary,
            records=records,
            earlier_records=resumed.records,
            void=entry.void,
        )
    id_ = new_id()
    model = History() if start is None else history_of(start)
    source = model if vocabulary is None else history_of(vocabulary)
    return Lineage(
        id=id_,
        earlier=model.ledger,
        vocabulary=source.ledger[-1].vocabulary if source.ledger else id_,
        records=records,
        earlier_records={**source.records, **model.records},
    )


def new_id() -> str:
    """A random id for a training."""
    return secrets.token_hex(16)


def history_of(model: object) -> History:
    """The history in the folder of a model; that of a loaded model is unknown."""
    folder = model_folder(fspath(model)) if isinstance(model, str | PathLike) else None
    if folder is None or not (folder / LEDGER).is_file():
        return History((LedgerEntry(id=new_id(), defence=UNKNOWN),))
    return History.load(folder / LEDGER, folder.parent if folder.name == MODEL else folder)


def history_in(out: Path) -> History | None:
    """The history in the directory of a training, its own entry last; None if it has not begun."""
    has_begun = (out / LEDGER).is_file() and (out / IDENTITY).is_file()
    return History.load(out / LEDGER, out) if has_begun else None


def begin_ledger(out: Path, entry: LedgerEntry, lineage: Lineage) -> None:
    """Write the ledger, and all records that it refers to, unless the training has begun."""
    if (out / IDENTITY).is_file():
        return
    ids = {earlier.id for earlier in lineage.earlier} | {lineage.vocabulary}
    records = {id_: lineage.earlier_records[id_] for id_ in ids & lineage.earlier_records.keys()}
    for id_, hashes in {**records, lineage.id: lineage.records}.items():
        with replacing(out / RECORDS / f"{id_}.npy") as file:
            np.save(file, hashes.rows(), allow_pickle=False)
    write_text(out / LEDGER, to_json((*lineage.earlier, entry)))


def end_ledger(out: Path, steps: int) -> None:
    """Write the ledger next to the weights, with the number of steps of the training."""
    history = history_in(out)
    if history is not None and not (out / MODEL / LEDGER).is_file():
        *earlier, entry = history.ledger
        write_text(out / MODEL / LEDGER, to_json((*earlier, entry.ended(steps))), shared=True)
