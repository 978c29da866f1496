"""Utterances from rows of any format, checked."""

from collections.abc import Iterable, Sequence

from vestige.data.utterances import OUTSIDE, Utterance, Utterances, fault
from vestige.errors import DataError


def checked(tokens: Sequence[str], tags: Sequence[str], intent: str, where: str) -> Utterance:
    """Utterance of a row, checked.

    Args:
        tokens: its words.
        tags: a BIO tag for each of them.
        intent: its intent.
        where: file and line, for messages.

    Raises:
        DataError: naming the place and what is wrong there.
    """
    said = Utterance(tuple(tokens), tuple(tags), intent)
    problem = fault(said)
    if problem is not None:
        raise DataError(
            f"{where}: {problem}",
            remedy=(
                "Write words, an intent, and a tag for every word: O, B-name, or I-name after "
                "B-name or I-name."
            ),
        )
    return said


def from_pieces(pieces: Iterable[tuple[str, str | None]], intent: str, where: str) -> Utterance:
    """An utterance from pieces of its text, each with the slot that it fills.

    Words end at blanks and where a piece ends: "Prince" in the slot artist, followed by "'s
    songs" in none, makes three words, the first of them tagged.

    Args:
        pieces: (text, slot or None) in order.
        intent: its intent.
        where: file and line, for messages.

    Raises:
        DataError: a slot has no name or no words, or the utterance has a fault.

    Example:
        >>> said = from_pieces([("Prince", "artist"), ("'s songs", None)], "Play", "line 1")
        >>> said.tokens, said.tags
        (('Prince', "'s", 'songs'), ('B-artist', 'O', 'O'))
    """
    tokens: list[str] = []
    tags: list[str] = []
    for text, slot in pieces:
        words = text.split()
        tokens += words
        if slot is None:
            tags += [OUTSIDE] * len(words)
        elif words and slot:
            tags += [f"B-{slot}"] + [f"I-{slot}"] * (len(words) - 1)
        else:
            raise DataError(
                f"{where}: a slot has no {'words' if slot else 'name'}",
                remedy="Add a name and at least one word, or remove it.",
            )
    return checked(tokens, tags, intent, where)


def gathered(rows: Iterable[Utterance], source: object) -> Utterances:
    """All utterances of one source.

    Raises:
        DataError: there are none.
    """
    utterances = Utterances.of(rows)
    if not len(utterances):
        raise DataError(
            f"{source} has no utterances",
            remedy="Pass a file or folder with labelled utterances.",
        )
    return utterances
