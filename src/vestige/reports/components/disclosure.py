"""Disclosure: text that came out of a model, made safe to show.

Such text is chosen by whoever trained the model: it may hold terminal escapes, right-to-left
overrides or markup, and it may be a secret. Here its invisible characters become visible and,
unless secrets are wanted, its words become blocks.

A block has one width, whatever it stands for. An initial and a length would say which of the users
or of a short list of words it is; whoever owns the text tells phrases apart by their numbers in the
list and by how many words they have, and asks for the secrets to read them.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

BLOCK = "▪▪▪"
"""What stands for a word, a subword or a name."""

SECRET_KEYS = frozenset(
    {"phrase", "phrases", "prefix", "pieces", "lead", "canary", "text", "context", "person"}
    | {"candidates", "question"}
)
"""Names under which a result or its settings may hold text that is or was to be found."""

IDS = frozenset({"tokens", "token", "ids"})
"""Token ids: whoever has the vocabulary can read the phrase from them."""

SECRET_OPTIONS = frozenset(
    {"--phrase", "--context", "--truth", "--person", "--candidates", "--prompt", "--question"}
)
"""Options of the command line whose values are such text."""

_WORD = re.compile(r"\S+")


def printable(text: str) -> str:
    r"""The text with every control, format and unassigned character written as an escape.

    Example:
        >>> print(printable("red \x1b[31m alert\nIBAN \u202e12"))
        red \x1b[31m alert\nIBAN \u202e12
    """
    return "".join(map(_visible, text))


def redact(text: str) -> str:
    """The text with a block for each of its words; only spaces stay.

    Example:
        >>> redact(" Springfield 4917 is")
        ' ▪▪▪ ▪▪▪ ▪▪▪'
    """
    return _WORD.sub(BLOCK, text)


def disclose(pieces: Sequence[str], *, show_secrets: bool) -> list[str]:
    """Each piece of a phrase, ready to be shown: visible, and redacted unless told otherwise."""
    visible = [printable(piece) for piece in pieces]
    return visible if show_secrets else [redact(piece) for piece in visible]


def disclose_names(names: Sequence[str], *, show_secrets: bool) -> list[str]:
    """Each user's name, ready to be shown: one block, however many words it has.

    Example:
        >>> disclose_names(["Ada Lovelace", "bob"], show_secrets=False)
        ['▪▪▪', '▪▪▪']
    """
    return [printable(name) if show_secrets else BLOCK for name in names]


def disclose_facts(facts: Mapping[str, Any], *, show_secrets: bool) -> dict[str, Any]:
    """A summary for programs: what may be secret is redacted unless told otherwise.

    Example:
        >>> disclose_facts({"phrase": "the code", "tokens": [7, 2], "rank": 3}, show_secrets=False)
        {'phrase': '▪▪▪ ▪▪▪', 'tokens': None, 'rank': 3}
    """
    return {key: value if show_secrets else _closed(key, value) for key, value in facts.items()}


def _closed(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return disclose_facts(value, show_secrets=False)
    if key in IDS and not isinstance(value, int):
        return None
    if key not in SECRET_KEYS:
        return value
    if isinstance(value, list | tuple):
        return [_closed(key, item) for item in value]
    return redact(value) if isinstance(value, str) else value


def are_words(pieces: Sequence[str], phrase: str) -> bool:
    """Whether spaces part the pieces of a phrase: subwords carry their own, words do not.

    Example:
        >>> are_words(["the", "code"], "the code"), are_words(["buff", "alo"], "buffalo")
        (True, False)
    """
    return " ".join(pieces) == phrase


def running_text(pieces: Sequence[str], phrase: str, *, show_secrets: bool) -> str:
    """A phrase ready to be shown in one line, from its pieces: a block for each word of it."""
    gap = " " if are_words(pieces, phrase) else ""
    text = gap.join(printable(piece) for piece in pieces).strip()
    return text if show_secrets else redact(text)


def _visible(character: str) -> str:
    # The categories "other" (C*: control, format, surrogate, private, unassigned) and line breaks.
    if unicodedata.category(character)[0] == "C" or character in "\u2028\u2029":
        return character.encode("unicode_escape").decode()
    return character
