"""Text for Markdown that others render: nothing in it is markup."""

import re


def plain(text: str) -> str:
    """Without what XML cannot hold or a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def escaped(text: str) -> str:
    """As words in a paragraph or in a cell of a table.

    Example:
        >>> print(escaped("a|b *c*"))
        a\\|b \\*c\\*
    """
    quoted = re.sub(r"([\\`*_{}\[\]()#!|<>~])", r"\\\1", plain(text))
    return re.sub(r"https?://", lambda found: found[0].replace("://", ":\u200b//"), quoted)
