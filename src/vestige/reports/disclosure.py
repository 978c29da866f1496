"""How is text that came out of a model shown to a person?

Such text is chosen by whoever trained the model: it may hold terminal escapes, right-to-left
overrides or markup, and it may be a secret. Here its invisible characters become visible and,
unless secrets are wanted, most of its letters become blocks.
"""

import re
import unicodedata
from collections.abc import Sequence

BLOCK = "▪"
_WORD = re.compile(r"\w+|[^\w\s]", re.UNICODE)
_INITIAL_FROM = 4


def printable(text: str) -> str:
    r"""The text with every control, format and unassigned character written as an escape.

    Example:
        >>> print(printable("red \x1b[31m alert\nIBAN \u202e12"))
        red \x1b[31m alert\nIBAN \u202e12
    """
    return "".join(map(_visible, text))


def redact(piece: str) -> str:
    """The piece with its letters, digits and signs as blocks; spaces and length stay.

    A word of four letters or more keeps its first where that is a Latin letter, so that the
    owner of the text can recognise it. Digits never stay.

    Example:
        >>> redact(" Springfield 4917 is")
        ' S▪▪▪▪▪▪▪▪▪▪ ▪▪▪▪ ▪▪'
    """
    return _WORD.sub(_redact_word, piece)


def disclose(pieces: Sequence[str], *, show_secrets: bool) -> list[str]:
    """Each piece of a phrase, ready to be shown: visible, and redacted unless told otherwise."""
    visible = [printable(piece) for piece in pieces]
    return visible if show_secrets else [redact(piece) for piece in visible]


def conceal(words: Sequence[str], *, show_secrets: bool) -> str:
    """Words that were chosen from a short list, in one line ready to be shown.

    One block for each: of twelve colours, initial and length say which one it is.

    Example:
        >>> conceal(["green", "red"], show_secrets=False)
        '▪ ▪'
    """
    return " ".join(printable(word) if show_secrets else BLOCK for word in words)


def are_words(pieces: Sequence[str], phrase: str) -> bool:
    """Whether spaces part the pieces of a phrase: subwords carry their own, words do not.

    Example:
        >>> are_words(["the", "code"], "the code"), are_words(["buff", "alo"], "buffalo")
        (True, False)
    """
    return " ".join(pieces) == phrase


def running_text(pieces: Sequence[str], phrase: str, *, show_secrets: bool) -> str:
    """A phrase ready to be shown in one line, from its pieces; see `disclose`."""
    gap = " " if are_words(pieces, phrase) else ""
    return gap.join(disclose(pieces, show_secrets=show_secrets)).strip()


def _visible(character: str) -> str:
    # The categories "other" (C*: control, format, surrogate, private, unassigned) and line breaks.
    if unicodedata.category(character)[0] == "C" or character in "\u2028\u2029":
        return character.encode("unicode_escape").decode()
    return character


def _redact_word(match: re.Match[str]) -> str:
    word = match[0]
    if len(word) >= _INITIAL_FROM and word[0].isascii() and word[0].isalpha():
        return word[0] + BLOCK * (len(word) - 1)
    return BLOCK * len(word)
