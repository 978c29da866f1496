"""Texts of a training: which documents are learnt, which validate, and what is left out."""

from os import PathLike, fspath
from typing import Any, NamedTuple

from vestige.data.corpus import Corpus
from vestige.data.division import Division, divide
from vestige.data.manifest import Manifest
from vestige.data.sources import planting
from vestige.errors import DataError
from vestige.monitor import Monitor
from vestige.training.history import StopAtPerplexity
from vestige.workflows.inputs import open_corpus
from vestige.workflows.train import TrainingRequest

HOLD_OUT = 0.05
"""What stands for `hold_out` where no other text validates."""


class Texts(NamedTuple):
    """What is learnt from, what validates, and what was planted in the first."""

    division: Division
    held: Corpus
    planted: Manifest | None


def stop_of(request: TrainingRequest) -> StopAtPerplexity | None:
    """When the training is to end; see `TrainingSettings.stop`."""
    validated = request.validation is not None or request.hold_out is None or request.hold_out > 0
    return request.training.stop(validated=validated)


def read_texts(
    request: TrainingRequest,
    stop: StopAtPerplexity | None,
    *,
    by_user: bool = False,
    **validation: Any,
) -> Texts:
    """The documents of a training, divided.

    Trainings with other seeds hold out the same text: only then can they be compared. Canaries are
    learnt as often as their manifest says.

    Args:
        by_user: users are held out, with all of their documents.
        **validation: settings of `open_corpus` for text that validates.

    Raises:
        DataError: it cannot be read, or has no users where they are asked for.
        ValueError: the training is to end by text that there is none of.
    """
    whole = open_corpus(
        request.data,
        format=request.format,
        text=request.text,
        user=request.user,
        source_column=request.source,
        limit=request.limit,
    )
    most = request.max_documents_per_user
    if (by_user or most is not None) and whole.users is None:
        raise DataError(
            "Users are to be held out or capped, and nobody said whose each document is",
            remedy="Name the column that holds the users (--user).",
        )
    planted = planting(fspath(request.data)) if isinstance(request.data, str | PathLike) else None
    share = HOLD_OUT if request.hold_out is None else request.hold_out
    share = share if request.validation is None else 0
    keep = [place for place in (planted.places if planted else ()) if place < len(whole)]
    division = divide(whole, share, by_user=by_user, most_per_user=most, keep=keep)
    _log_division(division, share, most, request.monitor)
    held = division.held_out
    if request.validation is not None:
        held = open_corpus(request.validation, text=request.text, **validation)
    if stop is not None and not len(held):
        raise ValueError(
            "`stop_at_perplexity` must come with text to validate on, and none was held out: give "
            "`validation`, or a larger `hold_out`"
        )
    return Texts(division, held, planted)


def _log_division(
    division: Division, share: float, most_per_user: int | None, monitor: Monitor
) -> None:
    found, documents = division.summary(), len(division.corpus)
    if most_per_user is not None:
        users = found["left_out_users"] or 0
        monitor.log(
            f"Left out: {found['left_out_documents']:,} of {documents:,} documents, which "
            f"{users:,} users have beyond {most_per_user:,} each"
        )
    if not share:
        return
    unit = "user" if division.by_user else "document"
    if found["held_out_documents"]:
        held = found["held_out_documents"]
        whose = f" of {found['held_out_users']:,} users" if division.by_user else ""
        monitor.log(
            f"Held out: {held:,} of {documents:,} documents{whose}, chosen by each {unit}'s hash"
        )
    else:
        monitor.log(
            f"Held out: no {unit}, since hashes choose and {share:g} of few may be none; the "
            "last epoch is kept. Give --validation or a larger --hold-out to choose one"
        )
