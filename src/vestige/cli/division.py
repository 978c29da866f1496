"""Which documents `vestige train` learns from, which validate, and what it says of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vestige.cli.terminal import say

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.division import Division
    from vestige.training.history import StopAtPerplexity


def divided(
    whole: "Corpus",
    hold_out: float,
    *,
    by_user: bool = False,
    most_per_user: int | None = None,
    canaries: Sequence[int] = (),
) -> "Division":
    """See `divide`: canaries are learnt as often as their manifest says.

    Args:
        whole: what was read of DATA, perhaps its beginning only.
        hold_out: the share to hold out; 0 where other text validates.
        by_user: users are held out, with all of their documents.
        most_per_user: the cap.
        canaries: places of planted documents in the whole of DATA.

    Raises:
        DataError: the documents have no users and they are asked for; see `divide`.
    """
    from vestige.data.division import divide
    from vestige.errors import DataError

    if (by_user or most_per_user is not None) and whole.users is None:
        raise DataError(
            "Users are to be held out or capped, and nobody said whose each document is",
            remedy="Name the column that holds the users (--user).",
        )
    keep = [place for place in canaries if place < len(whole)]
    found = divide(whole, hold_out, by_user=by_user, most_per_user=most_per_user, keep=keep)
    _say(found, hold_out, most_per_user)
    return found


def check_stop(stop: "StopAtPerplexity | None", held: "Corpus") -> None:
    """Raise ValueError where a training shall end by text that there is none of."""
    if stop is not None and not len(held):
        raise ValueError(
            "--stop-at-perplexity must come with text to validate on, and none was held out: give "
            "--validation, or a larger --hold-out"
        )


def _say(division: "Division", hold_out: float, most_per_user: int | None) -> None:
    told, documents = division.summary(), len(division.corpus)
    if most_per_user is not None:
        users = told["left_out_users"] or 0
        say(
            f"Left out: {told['left_out_documents']:,} of {documents:,} documents, which {users:,} "
            f"users have beyond {most_per_user:,} each"
        )
    if not hold_out:
        return
    unit = "user" if division.by_user else "document"
    if told["held_out_documents"]:
        held = told["held_out_documents"]
        whose = f" of {told['held_out_users']:,} users" if division.by_user else ""
        say(f"Held out: {held:,} of {documents:,} documents{whose}, chosen by each {unit}'s hash")
    else:
        say(
            f"Held out: no {unit}, since hashes choose and {hold_out:g} of few may be none; the "
            "last epoch is kept. Give --validation or a larger --hold-out to choose one"
        )
