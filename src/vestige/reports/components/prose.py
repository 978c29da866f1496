"""Sentences under a heading."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Prose:
    """Paragraphs or a list under a heading.

    Attributes:
        title: the heading.
        lines: sentences, one paragraph or list entry each.
        listed: a list, not paragraphs.
    """

    template: ClassVar[str] = "prose"
    title: str
    lines: tuple[str, ...]
    listed: bool = False
