"""The texts of a training: the training part, the validation part, and those left out."""

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any, NamedTuple

from vestige.data.canaries.texts import Manifest
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.corpus import Corpus
from vestige.data.division import Division, ReadRecords, divide
from vestige.data.formats.reading import read_source
from vestige.data.sources import planted_manifest, planted_secrets, utterance_parts
from vestige.data.utterances import Utterances
from vestige.errors import DataError
from vestige.monitor import SILENT, Monitor

HOLD_OUT = 0.05
"""Default share of documents for validation."""


class Texts(NamedTuple):
    """The documents or labelled utterances of a training.

    Attributes:
        training: the texts to learn.
        validation: the validation texts; may be empty.
        test: utterances to score the model on.
        planted: the manifest of the canaries in DATA.
        division: the division of the documents.
        limit: the largest number of documents to read.
    """

    training: Any
    validation: Any
    test: Utterances | None = None
    planted: Manifest | SecretManifest | None = None
    division: Division | None = None
    limit: int | None = None

    @property
    def records(self) -> ReadRecords:
        """Hashes of the training and validation texts."""
        parts = (self.training, self.validation)
        training, validation = (p if isinstance(p, Corpus) else p.corpus() for p in parts)
        return ReadRecords.of(training, validation)


def read_utterances(data: Any, *, seed: int, **reading: Any) -> Texts:
    """The utterances of a training; `reading` are arguments of `utterance_parts`."""
    planted = planted_secrets(data)
    training, validation, test = utterance_parts(data, seed=seed, planted=planted, **reading)
    return Texts(training, validation, test, planted)


def read_texts(
    data: Any,
    *,
    validation: Any = None,
    hold_out: float | None = None,
    by_user: bool = False,
    most_per_user: int | None = None,
    validation_columns: Sequence[str] = ("text",),
    monitor: Monitor = SILENT,
    **reading: Any,
) -> Texts:
    """Read and divide the documents of a training.

    Hashes of the documents decide which ones validate, so that trainings with different seeds can
    be compared. Copies of canaries are never held out.

    Args:
        data: a path or a corpus.
        validation: validation text; None holds out a part of the data.
        hold_out: share to hold out; None: `HOLD_OUT`.
        by_user: hold out users with all their documents.
        most_per_user: leave out further documents of a user.
        validation_columns: columns of the data that the validation text has too.
        monitor: logs the division.
        **reading: arguments of `read_source`.

    Raises:
        DataError: the data cannot be read, or has no users although they are needed.
    """
    corpus = _read(data, **reading)
    if (by_user or most_per_user is not None) and corpus.users is None:
        raise DataError(
            "Users are held out or capped, but the corpus has no user column",
            remedy="Name the column of the users (--user).",
        )
    planted = planted_manifest(fspath(data)) if isinstance(data, str | PathLike) else None
    share = HOLD_OUT if hold_out is None else hold_out
    share = share if validation is None else 0
    keep = [place for place in (planted.copy_positions if planted else ()) if place < len(corpus)]
    division = divide(corpus, share, by_user=by_user, most_per_user=most_per_user, keep=keep)
    _log_division(division, share, monitor)
    held_out = division.held_out
    if validation is not None:
        columns = {name: reading[name] for name in validation_columns if name in reading}
        held_out = _read(validation, **columns)
    return Texts(
        division.training, held_out, planted=planted, division=division, limit=reading.get("limit")
    )


def _read(source: Any, **reading: Any) -> Corpus:
    if isinstance(source, str | PathLike):
        return read_source(fspath(source), **reading)
    return source  # type: ignore[no-any-return]


def _log_division(division: Division, share: float, monitor: Monitor) -> None:
    counts, documents = division.summary(), len(division.corpus)
    if division.most_per_user is not None:
        monitor.log(
            f"Left out: {counts['left_out_documents']:,} of {documents:,} documents, of "
            f"{counts['left_out_users'] or 0:,} users with more than {division.most_per_user:,}"
        )
    unit = "user" if division.by_user else "document"
    if counts["held_out_documents"]:
        users = f" of {counts['held_out_users']:,} users" if division.by_user else ""
        monitor.log(
            f"Validation: {counts['held_out_documents']:,} of {documents:,} documents{users}, "
            f"chosen by the hash of each {unit}"
        )
    elif share:
        monitor.log(
            f"Validation: no {unit}, because hashes choose {share:g} of few. The last epoch is "
            "kept. To choose the best one, pass --validation or a larger --hold-out"
        )
