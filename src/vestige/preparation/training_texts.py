"""The texts of a training: which are learned, which validate, and which are left out."""

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any, NamedTuple

from vestige.data.corpus import Corpus
from vestige.data.division import Division, divide
from vestige.data.manifest import Manifest
from vestige.data.sources import planting, read_source
from vestige.errors import DataError
from vestige.monitor import SILENT, Monitor

HOLD_OUT = 0.05
"""Share of the documents that validate, unless another is given."""


class Texts(NamedTuple):
    """The texts of a training.

    Attributes:
        division: which documents are learned, and which are held out or left out.
        held: what validates; may be empty.
        planted: the canaries in DATA.
        limit: the most documents that were read, if there was a limit.
    """

    division: Division
    held: Corpus
    planted: Manifest | None = None
    limit: int | None = None

    @property
    def training(self) -> Corpus:
        """What is learned."""
        return self.division.training


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
    compared. Copies of canaries are never held out.

    Args:
        data: a path or a corpus.
        validation: text that validates; None holds out a part of the data.
        hold_out: the share held out; None: a twentieth.
        by_user: hold out users with all their documents.
        most_per_user: leave out further documents of a user.
        shared: columns that the validation text has too.
        monitor: informed of the division.
        **reading: settings of `read_source`.

    Raises:
        DataError: it cannot be read, or has no users where users are needed.
    """
    whole = _read(data, **reading)
    if (by_user or most_per_user is not None) and whole.users is None:
        raise DataError(
            "Users are held out or capped, but the corpus has no user column",
            remedy="Name the column of the users (--user).",
        )
    planted = planting(fspath(data)) if isinstance(data, str | PathLike) else None
    share = HOLD_OUT if hold_out is None else hold_out
    share = share if validation is None else 0
    keep = [place for place in (planted.places if planted else ()) if place < len(whole)]
    division = divide(whole, share, by_user=by_user, most_per_user=most_per_user, keep=keep)
    _log_division(division, share, most_per_user, monitor)
    held = division.held_out
    if validation is not None:
        held = _read(validation, **{name: reading[name] for name in shared if name in reading})
    return Texts(division, held, planted, reading.get("limit"))


def _read(given: Any, **reading: Any) -> Corpus:
    if isinstance(given, str | PathLike):
        return read_source(fspath(given), **reading)
    corpus: Corpus = given
    return corpus


def _log_division(
    division: Division, share: float, most_per_user: int | None, monitor: Monitor
) -> None:
    found, documents = division.summary(), len(division.corpus)
    if most_per_user is not None:
        monitor.log(
            f"Left out: {found['left_out_documents']:,} of {documents:,} documents, of "
            f"{found['left_out_users'] or 0:,} users with more than {most_per_user:,}"
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
