"""Disclosure: redaction and escaping of texts. All texts of models are shown through this module.

Text of a model may be secret, and may contain terminal escapes, right-to-left overrides or markup.
Here invisible characters are escaped and, by default, each word is replaced by a block.

All blocks have the same width, because an initial or a length could identify a user, or a word of a
short list. Redacted phrases differ only in their number of words.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

BLOCK = "▪▪▪"
"""Replaces a word, a subword or a name."""

_PHRASE_KEYS = {"canary", "lead", "phrase", "phrases", "pieces", "prefix", "text"}
_INPUT_KEYS = {"candidates", "context", "person", "prompt", "question"}
SECRET_KEYS = frozenset(_PHRASE_KEYS | _INPUT_KEYS)
"""Keys of results and settings whose values may be secret text."""

SECRET_LISTS = frozenset({"secrets", "prompts", "what"})
"""Keys whose values are either a path or a list of secret texts."""

ID_KEYS = frozenset({"tokens", "token", "ids"})
"""Keys of token ids, which anyone with the vocabulary can decode."""

SECRET_OPTIONS = frozenset(
    {"--phrase", "--context", "--truth", "--person", "--candidates", "--prompt", "--question"}
)
"""Options of the command line whose values may be secret text."""

_WORD = re.compile(r"\S+")


def printable(text: str) -> str:
    r"""Escape all control, format and unassigned characters of a text.

    Example:
        >>> print(printable("red \x1b[31m alert\nIBAN \u202e12"))
        red \x1b[31m alert\nIBAN \u202e12
    """
    return "".join(map(_visible, text))


def redact(text: str) -> str:
    """Replace each word of a text by a block; spaces remain.

    Example:
        >>> redact(" Springfield 4917 is")
        ' ▪▪▪ ▪▪▪ ▪▪▪'
    """
    return _WORD.sub(BLOCK, text)


def disclose(pieces: Sequence[str], *, show_secrets: bool) -> list[str]:
    """Escape the pieces of a phrase, and redact them unless secrets are shown."""
    visible = [printable(piece) for piece in pieces]
    return visible if show_secrets else [redact(piece) for piece in visible]


def disclose_rows(
    rows: Sequence[Mapping[str, Any]], key: str, *, show_secrets: bool
) -> list[dict[str, Any]]:
    """Rows of a table, each with its phrase `key` disclosed as "shown"."""
    phrases = disclose([row[key] for row in rows], show_secrets=show_secrets)
    return [{**row, "shown": phrase} for row, phrase in zip(rows, phrases, strict=True)]


def disclose_names(names: Sequence[str], *, show_secrets: bool) -> list[str]:
    """Escape names of users; a redacted name is one block for any number of words.

    Example:
        >>> disclose_names(["Ada Lovelace", "bob"], show_secrets=False)
        ['▪▪▪', '▪▪▪']
    """
    return [printable(name) if show_secrets else BLOCK for name in names]


def disclose_facts(facts: Mapping[str, Any], *, show_secrets: bool) -> dict[str, Any]:
    """A summary, redacted unless secrets are shown.

    Example:
        >>> disclose_facts({"phrase": "the code", "tokens": [7, 2], "rank": 3}, show_secrets=False)
        {'phrase': '▪▪▪ ▪▪▪', 'tokens': None, 'rank': 3}
    """
    return {key: value if show_secrets else _redacted(key, value) for key, value in facts.items()}


def is_secret(key: str, value: Any) -> bool:
    """Whether a value of a result or a setting may be secret text."""
    return key in SECRET_KEYS or (key in SECRET_LISTS and isinstance(value, list | tuple))


def _redacted(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return disclose_facts(value, show_secrets=False)
    if key in ID_KEYS and not isinstance(value, int):
        return None
    if not is_secret(key, value):
        return value
    if isinstance(value, list | tuple):
        return [_redacted("text", item) for item in value]
    return redact(value) if isinstance(value, str) else value


def are_words(pieces: Sequence[str], phrase: str) -> bool:
    """Whether the pieces of a phrase are words, without spaces of their own.

    Example:
        >>> are_words(["the", "code"], "the code"), are_words(["buff", "alo"], "buffalo")
        (True, False)
    """
    return " ".join(pieces) == phrase


def running_text(pieces: Sequence[str], phrase: str, *, show_secrets: bool) -> str:
    """A phrase in one line, from its pieces, redacted unless secrets are shown."""
    separator = " " if are_words(pieces, phrase) else ""
    text = separator.join(printable(piece) for piece in pieces).strip()
    return text if show_secrets else redact(text)


def replace_controls(text: str) -> str:
    """Replace characters that XML forbids or a terminal interprets by "?"."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def markdown_text(text: str) -> str:
    """Escape a text for a Markdown paragraph or table cell.

    Example:
        >>> print(markdown_text("a|b *c*"))
        a\\|b \\*c\\*
    """
    quoted = re.sub(r"([\\`*_{}\[\]()#!|<>~])", r"\\\1", replace_controls(text))
    return re.sub(r"https?://", lambda match: match[0].replace("://", ":\u200b//"), quoted)


def _visible(character: str) -> str:
    # Categories C* (control, format, surrogate, private, unassigned) and line separators.
    if unicodedata.category(character)[0] == "C" or character in "\u2028\u2029":
        return character.encode("unicode_escape").decode()
    return character
