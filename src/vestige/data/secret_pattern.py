"""Patterns of utterances with unknown words, and the candidates for each.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
sections 3.1 and 4.2: the beginning of an utterance, its intent and its tags are known, and each
unknown word is one of a reduced vocabulary V0.

Differs from the paper: words may be unknown anywhere in the utterance and known after them, and
each place may have a V0 of its own.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vestige.data.utterances import OUTSIDE, Utterance

CANDIDATES: Mapping[str, tuple[str, ...]] = {
    "digit": tuple("0123456789"),
    "color": (
        *("red", "green", "lilac", "blue", "yellow", "brown"),
        *("cyan", "magenta", "orange", "pink", "purple", "mauve"),
    ),
}
"""The sets of candidate words that every pattern may name (the paper's, section 4.2)."""

PAPER_PATTERNS: Mapping[str, tuple[str, str]] = {
    "pin": ("my pin code is {digit:%s}", "PinIntent"),
    "call": ("call {digit:%s}", "CallIntent"),
    "color": ("color {color:%s}", "ColorIntent"),
}
"""The paper's canaries (appendix A) by name: text with room for the length, and intent."""

LONGEST = 100
"""How many words in a row may be unknown: more is a slip of the pen."""

LARGEST = 2**1000
"""How many secrets a pattern may have: ranks beyond are no floating-point numbers."""

_SHORTHAND = re.compile(r"([^{}:\s]+):([1-9]\d{0,4})", re.ASCII)
_PLACE = re.compile(r"\{([^{}:\s]+)(?::(\d+))?\}")


@dataclass(frozen=True)
class SecretPattern:
    """An utterance some of whose words are unknown; `SecretPattern.parse` makes it from text.

    Attributes:
        words: its t words, None where one is unknown.
        candidates: for each of the n unknown words, in order, what it may be.
        tags: its t tags.
        intent: its intent.

    Example:
        >>> pattern = SecretPattern.parse("my pin is {digit:2}", intent="Pin")
        >>> pattern.words, pattern.length, pattern.space
        (('my', 'pin', 'is', None, None), 2, 100)
        >>> pattern.utterance(["4", "2"]).tags
        ('O', 'O', 'O', 'B-canary', 'I-canary')
    """

    words: tuple[str | None, ...]
    candidates: tuple[tuple[str, ...], ...]
    tags: tuple[str, ...]
    intent: str

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        intent: str,
        slot: str = "canary",
        candidates: Mapping[str, Sequence[str]] | None = None,
    ) -> "SecretPattern":
        """A pattern from text such as "my pin code is {digit:4}" or "call {name} at {digit:10}".

        Args:
            text: words with blanks between them; {name:n} stands for n unknown words of the
                candidates called name, {name} for one.
            intent: what the utterance is labelled with.
            slot: the slot that neighbouring unknown words fill together.
            candidates: further sets of words by name, beside `CANDIDATES`.

        Raises:
            ValueError: no word is unknown, a name or the braces are not understood, or a set has
                fewer than two words, one twice, or one with a blank in it.
        """
        known = {**CANDIDATES, **(candidates or {})}
        words: list[str | None] = []
        places: list[tuple[str, ...]] = []
        for part in text.split():
            found = _PLACE.fullmatch(part)
            if found is None:
                words.append(_plain(part, text))
                continue
            name, count = found.group(1), int(found.group(2) or 1)
            if not 1 <= count <= LONGEST:
                raise ValueError(f"{part} must ask for 1 to {LONGEST} words, got {count}")
            places += [_checked(name, known)] * count
            words += [None] * count
        if not places:
            raise ValueError("a pattern must have unknown words such as {digit:4}, got none")
        if math.prod(len(place) for place in places) > LARGEST:
            raise ValueError(
                f"a pattern must have at most 2^1000 secrets, got {len(places)} unknown words of "
                f"up to {max(len(place) for place in places):,} candidates each"
            )
        if not intent or not slot or slot.split() != [slot]:
            raise ValueError(f"intent and slot must be names, got {intent!r} and {slot!r}")
        return cls(tuple(words), tuple(places), _tags(words, slot), intent)

    @property
    def length(self) -> int:
        """Number of unknown words, n."""
        return len(self.candidates)

    @property
    def space(self) -> int:
        """Number of possible secrets: the product of the numbers of candidates."""
        return math.prod(len(place) for place in self.candidates)

    @property
    def places(self) -> tuple[int, ...]:
        """Positions of the unknown words, counted from 0."""
        return tuple(place for place, word in enumerate(self.words) if word is None)

    @property
    def text(self) -> str:
        """The known words with an underscore for each unknown one."""
        return " ".join("_" if word is None else word for word in self.words)

    def utterance(self, secret: Sequence[str]) -> Utterance:
        """The utterance with its unknown words filled in.

        Raises:
            ValueError: the secret has too few or too many words, or one that is no candidate.
        """
        self.check(secret)
        rest = iter(secret)
        tokens = tuple(next(rest) if word is None else word for word in self.words)
        return Utterance(tokens, self.tags, self.intent)

    def check(self, secret: Sequence[str]) -> None:
        """Raise ValueError unless the secret is one that the pattern can have.

        The message names the place and never the word: it may be private.
        """
        if len(secret) != self.length:
            raise ValueError(f"the secret must have {self.length} words, got {len(secret)}")
        for place, (word, allowed) in enumerate(zip(secret, self.candidates, strict=True), 1):
            if word not in allowed:
                raise ValueError(
                    f"word {place} of the secret must be one of the {len(allowed)} candidates, "
                    "got another"
                )


def paper_pattern(shorthand: str) -> tuple[str, str]:
    """The text and the intent of one of the paper's canaries.

    Args:
        shorthand: a name of `PAPER_PATTERNS` and how many words are unknown, such as "pin:4".

    Raises:
        ValueError: it is no such name and number.

    Example:
        >>> paper_pattern("pin:4")
        ('my pin code is {digit:4}', 'PinIntent')
    """
    found = _SHORTHAND.fullmatch(shorthand)
    if found is None or found.group(1) not in PAPER_PATTERNS:
        names = ", ".join(f"{name}:N" for name in PAPER_PATTERNS)
        raise ValueError(
            f"a pattern must be one of {names}, or text with unknown words such as {{digit:4}}, "
            "got neither"
        )
    text, intent = PAPER_PATTERNS[found.group(1)]
    return text % found.group(2), intent


def named_sets(text: str) -> tuple[str, ...]:
    """The names of the sets of candidates that a pattern's text asks for, each once.

    Example:
        >>> named_sets("call {name} at {digit:10} or {digit:4}")
        ('name', 'digit')
    """
    found = (_PLACE.fullmatch(part) for part in text.split())
    return tuple(dict.fromkeys(match.group(1) for match in found if match is not None))


def _plain(word: str, text: str) -> str:
    if "{" in word or "}" in word:
        raise ValueError(
            f"unknown words must be written {{name}} or {{name:number}} with blanks around them, "
            f"got word {text.split().index(word) + 1} otherwise"
        )
    return word


def _checked(name: str, known: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    if name not in known:
        raise ValueError(f"{{{name}}} must name one of {', '.join(sorted(known))}, got {name!r}")
    words = tuple(known[name])
    if len(words) < 2:
        raise ValueError(f"the candidates {name!r} must be at least two words, got {len(words)}")
    if len(set(words)) < len(words):
        raise ValueError(
            f"the candidates {name!r} must be all different, got {len(set(words))} words in "
            f"{len(words)}"
        )
    broken = [number for number, word in enumerate(words, 1) if word.split() != [word]]
    if broken:
        raise ValueError(f"the candidates {name!r} must be single words; number {broken[0]} is not")
    return words


def _tags(words: Sequence[str | None], slot: str) -> tuple[str, ...]:
    tags: list[str] = []
    for place, word in enumerate(words):
        begins = place == 0 or words[place - 1] is not None
        tags.append(OUTSIDE if word is not None else f"{'B' if begins else 'I'}-{slot}")
    return tuple(tags)
