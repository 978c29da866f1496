"""The texts of a training: which are learned, which validate, and which are left out."""

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
"""Share of the documents that validate, unless another is given."""


class Texts(NamedTuple):
    """What a training reads: documents, or labelled utterances.

    Attributes:
        training: what is learned.
        held: what validates; may be empty.
        test: utterances to score the model on; may be empty.
        planted: the canaries in DATA.
        division: of documents: which are learned, held out and left out.
        limit: the most documents that were read, if there was a limit.
    """

    training: Any
    held: Any
    test: Utterances | None = None
    planted: Manifest | SecretManifest | None = None
    division: Division | None = None
    limit: int | None = None

    @property
    def records(self) -> ReadRecords:
        """Hashes of what is learned and of what validates."""
        parts = (self.training, self.held)
        texts, held = (one if isinstance(one, Corpus) else one.corpus() for one in parts)
        return ReadRecords.of(texts, held)


def read_utterances(data: Any, *, seed: int, **reading: Any) -> Texts:
    """The utterances of a training; see `utterance_parts` for `reading`."""
    planted = planted_secrets(data)
    training, held, test = utterance_parts(data, seed=seed, planted=planted, **reading)
    return Texts(training, held, test, planted)


def read_texts(
    data: Any,
    *,
    validation: Any = None,
    hold_out: float | None = None,
    by_user: bool = False,
    most_per_user: int | None = None,
    shared: Sequence[str] = ("text",),
    monitor: Monitor = SILENT,
    **reading: Any,
) -> Texts:
    """The documents of a training, divided.

    A hash of each document decides which validate, so that trainings with different seeds can be
    compared. Copies of canaries are never held out. DataError if users are needed and unknown.

    Args:
        data: a path or a corpus.
        validation: text that validates; None holds out a part of the data.
        hold_out: the share held out; None: `HOLD_OUT`.
        by_user: hold out users with all their documents.
        most_per_user: leave out further documents of a user.
        shared: columns that the validation text has too.
        monitor: informed of the division.
        **reading: settings of `read_source`.
    """
    whole = _read(data, **reading)
    if (by_user or most_per_user is not None) and whole.users is None:
        raise DataError(
            "Users are held out or capped, but the corpus has no user column",
            remedy="Name the column of the users (--user).",
        )
    planted = planted_manifest(fspath(data)) if isinstance(data, str | PathLike) else None
    share = HOLD_OUT if hold_out is None else hold_out
    share = share if validation is None else 0
    keep = [place for place in (planted.copy_positions if planted else ()) if place < len(whole)]
    division = divide(whole, share, by_user=by_user, most_per_user=most_per_user, keep=keep)
    _log_division(division, share, monitor)
    held = division.held_out
    if validation is not None:
        held = _read(validation, **{name: reading[name] for name in shared if name in reading})
    return Texts(
        division.training, held, planted=planted, division=division, limit=reading.get("limit")
    )


def _read(given: Any, **reading: Any) -> Corpus:
    if isinstance(given, str | PathLike):
        return read_source(fspath(given), **reading)
    return given  # type: ignore[no-any-return]


def _log_division(division: Division, share: float, monitor: Monitor) -> None:
    found, documents = division.summary(), len(division.corpus)
    if division.most_per_user is not None:
        monitor.log(
            f"Left out: {found['left_out_documents']:,} of {documents:,} documents, of "
            f"{found['left_out_users'] or 0:,} users with more than {division.most_per_user:,}"
        )
    unit = "user" if division.by_user else "document"
    if found["held_out_documents"]:
        users = f" of {found['held_out_users']:,} users" if division.by_user else ""
        monitor.log(
            f"Validation: {found['held_out_documents']:,} of {documents:,} documents{users}, "
            f"chosen by the hash of each {unit}"
        )
    elif share:
        monitor.log(
            f"Validation: no {unit}, because hashes choose {share:g} of few. The last epoch is "
            "kept. To choose the best one, pass --validation or a larger --hold-out"
        )
