"""Patterns of utterances with unknown words, and the candidates for each.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
sections 3.1 and 4.2: the beginning of an utterance, its intent and its tags are known, and each
unknown word is one of a reduced vocabulary V0.

Differs from the paper: words may be unknown anywhere in the utterance and known after them, and
each place may have a V0 of its own.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vestige.data.files import read_lines
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

Candidates = Sequence[str] | Mapping[str, Sequence[str]]
"""Candidate words by name, or entries such as "name=ann,bob" and "name=@file"."""

_AT_ONCE = 256  # secrets drawn in one go; the draws are those of one after the other
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
        tags: list[str] = []
        places: list[tuple[str, ...]] = []
        for number, part in enumerate(text.split(), 1):
            found = _PLACE.fullmatch(part)
            if found is None:
                if "{" in part or "}" in part:
                    raise ValueError(
                        "unknown words must be written {name} or {name:number} with blanks around "
                        f"them, got word {number} otherwise"
                    )
                words.append(part)
                tags.append(OUTSIDE)
                continue
            count = int(found[2] or 1)
            if not 1 <= count <= LONGEST:
                raise ValueError(f"{part} must ask for 1 to {LONGEST} words, got {count}")
            begins = not words or words[-1] is not None
            tags += [f"{'B' if begins and not n else 'I'}-{slot}" for n in range(count)]
            places += [_checked(found[1], known)] * count
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
        return cls(tuple(words), tuple(places), tuple(tags), intent)

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


def draw_secrets(
    pattern: SecretPattern, *, number: int, seed: int, exclude: Iterable[Sequence[str]] = ()
) -> tuple[tuple[str, ...], ...]:
    """Different secrets that a pattern can have, every one alike.

    The seed decides them together with the pattern's words, so that two patterns do not share their
    secrets. A larger number leaves the first ones as they are; those to exclude are not drawn.

    Raises:
        ValueError: the pattern has fewer secrets, or cannot have one that is excluded.
    """
    taken = {tuple(secret) for secret in exclude}
    for secret in taken:
        pattern.check(secret)
    left = pattern.space - len(taken)
    if number > left:
        raise ValueError(f"number must be at most {left}, the secrets that are left, got {number}")
    generator = np.random.default_rng([seed, *pattern.text.encode()])
    sizes = [len(place) for place in pattern.candidates]
    drawn: list[tuple[str, ...]] = []
    while len(drawn) < number:
        for chosen in generator.integers(sizes, size=(_AT_ONCE, len(sizes))).tolist():
            words = (place[index] for place, index in zip(pattern.candidates, chosen, strict=True))
            secret = tuple(words)
            if secret not in taken:
                taken.add(secret)
                drawn.append(secret)
    return tuple(drawn[:number])


def paper_pattern(shorthand: str) -> tuple[str, str]:
    """The text and the intent of one of `PAPER_PATTERNS`, written with its length.

    Example:
        >>> paper_pattern("pin:4")
        ('my pin code is {digit:4}', 'PinIntent')
    """
    found = _SHORTHAND.fullmatch(shorthand)
    if found is None or found[1] not in PAPER_PATTERNS:
        names = ", ".join(f"{name}:N" for name in PAPER_PATTERNS)
        raise ValueError(
            f"a pattern must be one of {names}, or text with unknown words such as {{digit:4}}, "
            "got neither"
        )
    text, intent = PAPER_PATTERNS[found[1]]
    return text % found[2], intent


def named_sets(text: str) -> tuple[str, ...]:
    """The names of the sets of candidates that a pattern's text asks for, each once."""
    found = (_PLACE.fullmatch(part) for part in text.split())
    return tuple(dict.fromkeys(match[1] for match in found if match is not None))


def with_intents(patterns: Sequence[str], intents: Sequence[str]) -> list[tuple[str, str]]:
    """Each pattern's text with its intent; shorthands of the paper have their own.

    Args:
        patterns: texts with unknown words, or shorthands such as "pin:4".
        intents: one for each text, or one for each pattern.

    Example:
        >>> with_intents(["pin:2", "call {digit:3}"], ["Call"])
        [('my pin code is {digit:2}', 'PinIntent'), ('call {digit:3}', 'Call')]
    """
    if not patterns:
        raise ValueError("`pattern` must be given for utterances, for example `pattern` pin:4")
    own = sum("{" in pattern for pattern in patterns)
    if len(intents) not in (own, len(patterns)):
        raise ValueError(
            f"`intent` must be given once for each `pattern` that is a text of yours ({own}), got "
            f"{len(intents)}"
        )
    pairs = [(text, "") if "{" in text else paper_pattern(text) for text in patterns]
    rest, every = iter(intents), len(intents) == len(patterns)
    return [(text, next(rest) if every or not usual else usual) for text, usual in pairs]


def candidate_sets(given: Candidates) -> dict[str, tuple[str, ...]]:
    """Sets of candidate words by name.

    Raises:
        ValueError: an entry is not written name=word,word or name=@file, or a name comes twice.
        DataError: a file cannot be read.
    """
    if isinstance(given, Mapping):
        return {name: tuple(words) for name, words in given.items()}
    sets: dict[str, tuple[str, ...]] = {}
    for number, entry in enumerate(given, 1):
        name, _, words = entry.partition("=")
        if not (name and words):
            raise ValueError(
                f"`candidates` must be name=word,word or name=@file; number {number} is not"
            )
        if name in sets:
            raise ValueError(f"`candidates` must name each set once, got {name!r} twice")
        if words[0] == "@":
            lines = read_lines(Path(words[1:]), one="word")
            sets[name] = tuple(word for line in lines for word in line.split())
        else:
            sets[name] = tuple(words.split(","))
    return sets


def require_used(sets: Mapping[str, object], texts: Sequence[str], *, by: str) -> None:
    """Raise ValueError for a set of candidates that no pattern names."""
    if unused := set(sets).difference(*map(named_sets, texts)):
        raise ValueError(
            f"`candidates` must be named by {by}, got {min(unused)!r}, which none names"
        )


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
