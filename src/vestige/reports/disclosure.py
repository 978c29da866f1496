"""Disclosure: text of a model made safe to show. Redaction and escaping are done here only.

Anyone who trains a model chooses its text: it may contain terminal escapes, right-to-left
overrides or markup, and it may be secret. Here invisible characters become visible and, unless
secrets are to be shown, each word becomes a block.

All blocks have one width. An initial and a length could identify a user, or a word of a short
list. Phrases can be told apart by their number and by their count of words.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

BLOCK = "▪▪▪"
"""Replaces a word, a subword or a name."""

SECRET_KEYS = frozenset(
    {"phrase", "phrases", "prefix", "pieces", "lead", "canary", "text", "context", "person"}
    | {"candidates", "prompt", "question"}
)
"""Keys of results and settings whose values may be secret text."""

SECRET_LISTS = frozenset({"secrets", "prompts", "what"})
"""Keys whose values are a path, or a list of secret texts."""

IDS = frozenset({"tokens", "token", "ids"})
"""Keys of token ids, from which anyone with the vocabulary can read the phrase."""

SECRET_OPTIONS = frozenset(
    {"--phrase", "--context", "--truth", "--person", "--candidates", "--prompt", "--question"}
)
"""Options of the command line whose values may be secret text."""

_WORD = re.compile(r"\S+")


def printable(text: str) -> str:
    r"""The text with every control, format and unassigned character written as an escape.

    Example:
        >>> print(printable("red \x1b[31m alert\nIBAN \u202e12"))
        red \x1b[31m alert\nIBAN \u202e12
    """
    return "".join(map(_visible, text))


def redact(text: str) -> str:
    """The text with a block for each word; spaces remain.

    Example:
        >>> redact(" Springfield 4917 is")
        ' ▪▪▪ ▪▪▪ ▪▪▪'
    """
    return _WORD.sub(BLOCK, text)


def disclose(pieces: Sequence[str], *, show_secrets: bool) -> list[str]:
    """Each piece of a phrase: visible, and redacted unless secrets are shown."""
    visible = [printable(piece) for piece in pieces]
    return visible if show_secrets else [redact(piece) for piece in visible]


def disclose_names(names: Sequence[str], *, show_secrets: bool) -> list[str]:
    """Each user's name: redacted, it is one block, however many words it has.

    Example:
        >>> disclose_names(["Ada Lovelace", "bob"], show_secrets=False)
        ['▪▪▪', '▪▪▪']
    """
    return [printable(name) if show_secrets else BLOCK for name in names]


def disclose_facts(facts: Mapping[str, Any], *, show_secrets: bool) -> dict[str, Any]:
    """A summary for programs, redacted unless secrets are shown.

    Example:
        >>> disclose_facts({"phrase": "the code", "tokens": [7, 2], "rank": 3}, show_secrets=False)
        {'phrase': '▪▪▪ ▪▪▪', 'tokens': None, 'rank': 3}
    """
    return {key: value if show_secrets else _closed(key, value) for key, value in facts.items()}


def is_secret(key: str, value: Any) -> bool:
    """Whether a value of a result or a setting may be secret text."""
    return key in SECRET_KEYS or (key in SECRET_LISTS and isinstance(value, list | tuple))


def _closed(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return disclose_facts(value, show_secrets=False)
    if key in IDS and not isinstance(value, int):
        return None
    if not is_secret(key, value):
        return value
    if isinstance(value, list | tuple):
        return [_closed("text", item) for item in value]
    return redact(value) if isinstance(value, str) else value


def are_words(pieces: Sequence[str], phrase: str) -> bool:
    """Whether spaces separate the pieces of a phrase: subwords contain their own, words do not.

    Example:
        >>> are_words(["the", "code"], "the code"), are_words(["buff", "alo"], "buffalo")
        (True, False)
    """
    return " ".join(pieces) == phrase


def running_text(pieces: Sequence[str], phrase: str, *, show_secrets: bool) -> str:
    """A phrase in one line, from its pieces; redacted, it has a block for each word."""
    gap = " " if are_words(pieces, phrase) else ""
    text = gap.join(printable(piece) for piece in pieces).strip()
    return text if show_secrets else redact(text)


def without_controls(text: str) -> str:
    """The text with "?" for what XML cannot hold or a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def markdown_text(text: str) -> str:
    """The text as words of a Markdown paragraph or table cell; nothing in it is markup.

    Example:
        >>> print(markdown_text("a|b *c*"))
        a\\|b \\*c\\*
    """
    quoted = re.sub(r"([\\`*_{}\[\]()#!|<>~])", r"\\\1", without_controls(text))
    return re.sub(r"https?://", lambda found: found[0].replace("://", ":\u200b//"), quoted)


def _visible(character: str) -> str:
    # The categories "other" (C*: control, format, surrogate, private, unassigned) and line breaks.
    if unicodedata.category(character)[0] == "C" or character in "\u2028\u2029":
        return character.encode("unicode_escape").decode()
    return character
