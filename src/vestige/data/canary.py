"""Canaries, and the occurrences of phrases in a corpus."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from vestige.data.corpus import Corpus

COIN_FLIP, SAMPLED = "coin-flip", "sampled"
RANDOM_ORDER = ("random", COIN_FLIP)
"""Patterns whose words have a random order."""

BY_COIN = (COIN_FLIP, SAMPLED)
"""Patterns of canaries that a fair coin put into the text or left out."""

_AT_ONCE = 2**16
"""Letters of phrases that one expression looks for: those of a thousand long ones are too many."""


class Copied:
    """What is planted some number of times; a control never is."""

    copies: int

    @property
    def planted(self) -> bool:
        """Whether it is planted."""
        return self.copies > 0

    @property
    def control(self) -> bool:
        """Whether it is a control, which is never planted."""
        return not self.planted


@dataclass(frozen=True)
class Canary(Copied):
    """A phrase that a model has no reason to know, unless it was trained on it.

    Attributes:
        phrase: its words, a blank between them.
        pattern: a frequency pattern ("all-low", "low-to-high", "mixed", "high-to-low"),
            "random", "coin-flip", "sampled" (by coins, too, from a language model) or "given".
        frequencies: how often each of its words occurs in the corpus before planting.
        copies: how often it is planted; 0 for a control.
        ids: its tokens, known once it is planted for a vocabulary.
        user: whose text its copies are; empty where nobody owns it.
        log_prob: natural log-probability under the language model that wrote it; None of others.
    """

    phrase: str
    pattern: str
    frequencies: tuple[int, ...]
    copies: int
    ids: tuple[int, ...] = ()
    user: str = ""
    log_prob: float | None = None


def occurrences(corpus: Corpus, phrases: Sequence[str]) -> list[int]:
    """Occurrences of each phrase in a corpus, whatever its case and its blanks.

    A phrase counts where no letter or digit touches its ends, inside longer texts too.

    Returns:
        one count for each phrase.

    Example:
        >>> occurrences(Corpus.from_texts(["Hot tea!", "hot team", "so hot  tea"]), ["hot tea"])
        [2]
    """
    shapes = [_BLANK.join(re.escape(word) for word in phrase.split()) for phrase in phrases]
    counts: list[int] = []
    while len(counts) < len(shapes):
        counts += _counted(corpus, _first(shapes[len(counts) :]))
    return counts


_BLANK = r"\s+"
_ARROW_BLANK = r"[\s\v\x1c-\x1f\x{85}\p{Z}]+"
"""The same blanks for Arrow's expressions, whose \\s knows those of ASCII only."""


def _first(shapes: Sequence[str]) -> list[str]:
    """As many of the first expressions as are looked for at once."""
    letters, number = 0, 0
    while number < len(shapes) and (not number or letters + len(shapes[number]) <= _AT_ONCE):
        letters += len(shapes[number])
        number += 1
    return list(shapes[:number])


def _counted(corpus: Corpus, shapes: Sequence[str]) -> list[int]:
    """Occurrences of each expression: one pass over all the text, then Python where one stands."""
    any_of_them = "|".join(f"(?:{shape.replace(_BLANK, _ARROW_BLANK)})" for shape in shapes)
    texts = corpus.table["text"]
    found = texts.filter(pc.match_substring_regex(texts, any_of_them, ignore_case=True))
    patterns = [re.compile(rf"(?<!\w){shape}(?!\w)", re.IGNORECASE) for shape in shapes]
    return [sum(len(pattern.findall(text)) for text in found.to_pylist()) for pattern in patterns]
