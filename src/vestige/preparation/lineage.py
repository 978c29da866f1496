"""The trainings that made a model, and the records that they read.

DIR/privacy.json         the ledger, written before the first step
DIR/records/<id>.npy     hashes of what this training and those before it read; never released
DIR/model/privacy.json   the ledger with the steps that were taken
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    read: Mapping[str, ReadRecords] = field(default_factory=dict)

    @classmethod
    def of(cls, ledger: Path, directory: Path) -> "History":
        """The history in a ledger, and in the directory that has the records."""
        remedy = "Restore it from where the model was trained."
        content = read_bytes(ledger, limit=LARGEST, error=ModelError, remedy=remedy)
        files = [file for file in sorted((directory / RECORDS).glob("*.npy")) if file.is_file()]
        read = {file.stem: ReadRecords.load(file) for file in files}
        trainings = from_json(content, where=ledger)
        names = (UNKNOWN, NoDefence.name, *DEFENCES.names())
        for one in trainings:
            if one.defence not in names:
                problem = f"{ledger} is not a privacy ledger: defence must be one of {names}"
                raise ModelError(problem, remedy=remedy)
        return cls(trainings, read)


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Where the model and vocabulary of a training come from, and what it reads.

    Attributes:
        id: of the training.
        before: the trainings before it, oldest first.
        vocabulary: id of the training from whose text the vocabulary was learned.
        own: the records of this training.
        read: the records of the trainings before it, and of that of the vocabulary.
        void: what has voided its guarantee since it began.
    """

    id: str
    before: tuple[LedgerEntry, ...]
    vocabulary: str
    own: ReadRecords
    read: Mapping[str, ReadRecords]
    void: tuple[str, ...] = ()


def lineage(out: Path, own: ReadRecords, *, start: object, vocabulary: object) -> Lineage:
    """The lineage of a new training, or of the one that is resumed in its directory.

    `own` is what it reads, `start` the model that it continues, or None, and `vocabulary` the one
    whose vocabulary it takes, or None.
    """
    begun = begun_in(out)
    if begun is not None:
        *before, entry = begun.ledger
        return Lineage(
            id=entry.id,
            before=tuple(before),
            vocabulary=entry.vocabulary,
            own=own,
            read=begun.read,
            void=entry.void,
        )
    new = new_id()
    model = History() if start is None else history_of(start)
    words = model if vocabulary is None else history_of(vocabulary)
    made_of = words.ledger[-1].vocabulary if words.ledger else new
    read = {**words.read, **model.read}
    return Lineage(id=new, before=model.ledger, vocabulary=made_of, own=own, read=read)


def new_id() -> str:
    """A random id for a training."""
    return secrets.token_hex(16)


def history_of(model: object) -> History:
    """The trainings that the folder of a model records; a loaded model has an unknown history."""
    folder = model_folder(fspath(model)) if isinstance(model, str | PathLike) else None
    if folder is None or not (folder / LEDGER).is_file():
        return History((LedgerEntry(id=new_id(), defence=UNKNOWN),))
    return History.of(folder / LEDGER, folder.parent if folder.name == MODEL else folder)


def begun_in(out: Path) -> History | None:
    """The history of the training that was begun in a directory, its own entry last."""
    begun = (out / LEDGER).is_file() and (out / IDENTITY).is_file()
    return History.of(out / LEDGER, out) if begun else None


@contextmanager
def registered(out: Path, entry: LedgerEntry, lineage: Lineage) -> Iterator[None]:
    """Write the ledger and the records before the first step; a resumed training keeps its own."""
    if not (out / IDENTITY).is_file():
        _write(out, entry, lineage)
    yield


def end(out: Path, steps: int) -> None:
    """Write the ledger next to the weights, with the steps that were taken."""
    own = begun_in(out)
    if own is not None and not (out / MODEL / LEDGER).is_file():
        *before, entry = own.ledger
        write_text(out / MODEL / LEDGER, to_json((*before, entry.ended(steps))), shared=True)


def _write(out: Path, entry: LedgerEntry, lineage: Lineage) -> None:
    """Write the ledger, and the records of the training, its ancestors and its vocabulary."""
    named = {one.id for one in lineage.before} | {lineage.vocabulary}
    kept = {name: lineage.read[name] for name in named & lineage.read.keys()}
    for name, records in {**kept, lineage.id: lineage.own}.items():
        with replacing(out / RECORDS / f"{name}.npy") as file:
            np.save(file, records.rows(), allow_pickle=False)
    write_text(out / LEDGER, to_json((*lineage.before, entry)))
