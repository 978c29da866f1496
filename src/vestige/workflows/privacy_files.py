"""Where the privacy ledger of a training stands, and what a model that is gone on from has read.

DIR/privacy.json         the ledger, written before the first step
DIR/records/<id>.npy     what this training reads, and what its ancestors read; never released
DIR/model/privacy.json   the ledger, of the steps that were taken
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path

import numpy as np

from vestige.data.atomic_write import replacing, write_text
from vestige.data.json_file import LARGEST_FILE
from vestige.data.read_records import ReadRecords
from vestige.data.regular_file import read_bytes
from vestige.defences.privacy_ledger import UNKNOWN, LedgerEntry, from_json, to_json
from vestige.errors import ModelError
from vestige.models.folders import model_folder
from vestige.workflows.training_directory import IDENTITY, LEDGER, RECORDS

MODEL = "model"


@dataclass(frozen=True)
class Lineage:
    """What is known of how a model came to be: its trainings, oldest first, and their texts."""

    ledger: tuple[LedgerEntry, ...] = ()
    read: Mapping[str, ReadRecords] = field(default_factory=dict)

    @property
    def vocabulary(self) -> str:
        """Id of the training of whose text its vocabulary was made."""
        return self.ledger[-1].vocabulary if self.ledger else UNKNOWN


def new_id() -> str:
    """A training's id: random, so that it tells nothing."""
    return secrets.token_hex(16)


def lineage_of(model: object) -> Lineage:
    """What the folder of a model, or the directory of its training, says of its trainings.

    Args:
        model: its path; of a loaded model nothing is known.
    """
    unknown = Lineage((LedgerEntry(id=new_id(), defence=UNKNOWN),))
    if not isinstance(model, str | PathLike):
        return unknown
    folder = model_folder(fspath(model))
    file = folder / LEDGER
    if not file.is_file():
        return unknown
    ledger = from_json(_content(file), where=file)
    return Lineage(ledger, _read(folder.parent if folder.name == MODEL else folder))


def begun(out: Path) -> Lineage | None:
    """The ledger of a training that was begun in a directory, its own entry last; else None."""
    file = out / LEDGER
    if not (file.is_file() and (out / IDENTITY).is_file()):
        return None
    return Lineage(from_json(_content(file), where=file), _read(out))


@contextmanager
def registered(
    out: Path, entry: LedgerEntry, before: Lineage, read: Mapping[str, ReadRecords]
) -> Iterator[None]:
    """Write down what a training is, and what it and its ancestors read, before its first step.

    Args:
        out: its directory. What a training in it was said to be stays as it is.
    """
    if not (out / IDENTITY).is_file():
        _write(out, (*before.ledger, entry), read)
    yield
    if not (out / LEDGER).is_file():  # an older version began it
        _write(out, (*before.ledger, entry), read)


def _write(out: Path, ledger: tuple[LedgerEntry, ...], read: Mapping[str, ReadRecords]) -> None:
    for name, records in read.items():
        with replacing(out / RECORDS / f"{name}.npy") as file:
            np.save(file, records.rows(), allow_pickle=False)
    write_text(out / LEDGER, to_json(ledger))


def end(out: Path, steps: int) -> None:
    """Put the ledger beside the weights that are released."""
    own = begun(out)
    if own is not None and not (out / MODEL / LEDGER).is_file():
        *before, entry = own.ledger
        write_text(out / MODEL / LEDGER, to_json((*before, entry.ended(steps))), shared=True)


def _content(file: Path) -> bytes:
    remedy = "Restore it from where the model was trained."
    return read_bytes(file, limit=LARGEST_FILE, error=ModelError, remedy=remedy)


def _read(directory: Path) -> dict[str, ReadRecords]:
    files = [file for file in sorted((directory / RECORDS).glob("*.npy")) if file.is_file()]
    return {file.stem: ReadRecords.load(file) for file in files}
