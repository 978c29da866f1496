"""Patterns of utterances with unknown words, and the candidates for each.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
sections 3.1 and 4.2: the beginning of an utterance, its intent and its tags are known, and each
unknown word is one of a reduced vocabulary V0.

Differs from the paper: words may be unknown anywhere in the utterance, and each unknown word may
have a V0 of its own.
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
"""Unknown words in a row at most: more is a typing error."""

LARGEST = 2**1000
"""Secrets of a pattern at most: higher ranks exceed floating-point numbers."""

Candidates = Sequence[str] | Mapping[str, Sequence[str]]
"""Candidate words by name, or entries such as "name=ann,bob" and "name=@file"."""

_BATCH = 256  # secrets sampled at once; the batch size does not change the samples
_SHORTHAND = re.compile(r"([^{}:\s]+):([1-9]\d{0,4})", re.ASCII)
_UNKNOWN = re.compile(r"\{([^{}:\s]+)(?::(\d+))?\}")


@dataclass(frozen=True)
class SecretPattern:
    """An utterance with unknown words; `SecretPattern.parse` makes it from text.

    Attributes:
        words: its t words, None for an unknown one.
        candidates: possible words for each of the n unknown words, in order.
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
            text: words separated by blanks; {name:n} stands for n unknown words of the candidate
                set of that name, {name} for one.
            intent: the utterance's label.
            slot: the slot that neighbouring unknown words fill together.
            candidates: further sets of words by name, in addition to `CANDIDATES`.

        Raises:
            ValueError: no word is unknown, a name or the braces are invalid, or a set has fewer
                than two words, a word twice, or a word with a blank.
        """
        sets = {**CANDIDATES, **(candidates or {})}
        words: list[str | None] = []
        tags: list[str] = []
        unknown: list[tuple[str, ...]] = []
        for number, part in enumerate(text.split(), 1):
            match = _UNKNOWN.fullmatch(part)
            if match is None:
                if "{" in part or "}" in part:
                    raise ValueError(
                        "unknown words must be written {name} or {name:number} with blanks around "
                        f"them, got word {number} otherwise"
                    )
                words.append(part)
                tags.append(OUTSIDE)
                continue
            count = int(match[2] or 1)
            if not 1 <= count <= LONGEST:
                raise ValueError(f"{part} must ask for 1 to {LONGEST} words, got {count}")
            begins = not words or words[-1] is not None
            tags += [f"{'B' if begins and not n else 'I'}-{slot}" for n in range(count)]
            unknown += [_checked_candidates(match[1], sets)] * count
            words += [None] * count
        if not unknown:
            raise ValueError("a pattern must have unknown words such as {digit:4}, got none")
        if math.prod(map(len, unknown)) > LARGEST:
            raise ValueError(
                f"a pattern must have at most 2^1000 secrets, got {len(unknown)} unknown words of "
                f"up to {max(map(len, unknown)):,} candidates each"
            )
        if not intent or not slot or slot.split() != [slot]:
            raise ValueError(f"intent and slot must be names, got {intent!r} and {slot!r}")
        return cls(tuple(words), tuple(unknown), tuple(tags), intent)

    @property
    def length(self) -> int:
        """Number of unknown words, n."""
        return len(self.candidates)

    @property
    def space(self) -> int:
        """Number of possible secrets: the product of the numbers of candidates."""
        return math.prod(map(len, self.candidates))

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of the unknown words, from 0."""
        return tuple(index for index, word in enumerate(self.words) if word is None)

    @property
    def text(self) -> str:
        """The known words with an underscore for each unknown one."""
        return " ".join("_" if word is None else word for word in self.words)

    def utterance(self, secret: Sequence[str]) -> Utterance:
        """The utterance with the secret as its unknown words.

        Raises:
            ValueError: the secret has too few or too many words, or a word that is no candidate.
        """
        self.check(secret)
        secret_words = iter(secret)
        tokens = tuple(next(secret_words) if word is None else word for word in self.words)
        return Utterance(tokens, self.tags, self.intent)

    def check(self, secret: Sequence[str]) -> None:
        """Raise ValueError unless the pattern can have the secret.

        The message gives the number of the word, which may be private.
        """
        if len(secret) != self.length:
            raise ValueError(f"the secret must have {self.length} words, got {len(secret)}")
        for number, (word, allowed) in enumerate(zip(secret, self.candidates, strict=True), 1):
            if word not in allowed:
                raise ValueError(
                    f"word {number} of the secret must be one of the {len(allowed)} candidates, "
                    "got another"
                )


def draw_secrets(
    pattern: SecretPattern, *, number: int, seed: int, exclude: Iterable[Sequence[str]] = ()
) -> tuple[tuple[str, ...], ...]:
    """Different uniformly random secrets of a pattern.

    The random generator depends on the seed and on the pattern's words, so that two patterns do not
    share their secrets. A larger number leaves the first ones unchanged.

    Raises:
        ValueError: the pattern has fewer secrets, or cannot have an excluded one.
    """
    taken = {tuple(secret) for secret in exclude}
    for secret in taken:
        pattern.check(secret)
    left = pattern.space - len(taken)
    if number > left:
        raise ValueError(f"number must be at most {left}, the secrets that are left, got {number}")
    rng = np.random.default_rng([seed, *pattern.text.encode()])
    sizes = list(map(len, pattern.candidates))
    secrets: list[tuple[str, ...]] = []
    while len(secrets) < number:
        for indices in rng.integers(sizes, size=(_BATCH, len(sizes))).tolist():
            pairs = zip(pattern.candidates, indices, strict=True)
            secret = tuple(words[index] for words, index in pairs)
            if secret not in taken:
                taken.add(secret)
                secrets.append(secret)
    return tuple(secrets[:number])


def paper_pattern(shorthand: str) -> tuple[str, str]:
    """The text and the intent of one of `PAPER_PATTERNS`, with its length.

    Example:
        >>> paper_pattern("pin:4")
        ('my pin code is {digit:4}', 'PinIntent')
    """
    match = _SHORTHAND.fullmatch(shorthand)
    if match is None or match[1] not in PAPER_PATTERNS:
        names = ", ".join(f"{name}:N" for name in PAPER_PATTERNS)
        raise ValueError(
            f"a pattern must be one of {names}, or text with unknown words such as {{digit:4}}, "
            "got neither"
        )
    text, intent = PAPER_PATTERNS[match[1]]
    return text % match[2], intent


def named_sets(text: str) -> tuple[str, ...]:
    """The different names of candidate sets in a pattern's text."""
    matches = (_UNKNOWN.fullmatch(part) for part in text.split())
    return tuple(dict.fromkeys(match[1] for match in matches if match is not None))


def with_intents(patterns: Sequence[str], intents: Sequence[str]) -> list[tuple[str, str]]:
    """(text, intent) of each pattern; shorthands of the paper have an intent.

    Args:
        patterns: texts with unknown words, or shorthands such as "pin:4".
        intents: one for each text, or one for each pattern.

    Example:
        >>> with_intents(["pin:2", "call {digit:3}"], ["Call"])
        [('my pin code is {digit:2}', 'PinIntent'), ('call {digit:3}', 'Call')]
    """
    if not patterns:
        raise ValueError("`pattern` must be given for utterances, for example `pattern` pin:4")
    texts = sum("{" in pattern for pattern in patterns)
    if len(intents) not in (texts, len(patterns)):
        raise ValueError(
            f"`intent` must be given once for each `pattern` that is a text of yours ({texts}), "
            f"got {len(intents)}"
        )
    pairs = [(text, "") if "{" in text else paper_pattern(text) for text in patterns]
    if len(intents) == len(patterns):
        return [(text, intent) for (text, _), intent in zip(pairs, intents, strict=True)]
    remaining = iter(intents)
    return [(text, default or next(remaining)) for text, default in pairs]


def candidate_sets(candidates: Candidates) -> dict[str, tuple[str, ...]]:
    """Sets of candidate words by name.

    Raises:
        ValueError: an entry is not of the form name=word,word or name=@file, or a name repeats.
        DataError: a file cannot be read.
    """
    if isinstance(candidates, Mapping):
        return {name: tuple(words) for name, words in candidates.items()}
    sets: dict[str, tuple[str, ...]] = {}
    for number, entry in enumerate(candidates, 1):
        name, _, words = entry.partition("=")
        if not (name and words):
            raise ValueError(
                f"`candidates` must be name=word,word or name=@file; number {number} is not"
            )
        if name in sets:
            raise ValueError(f"`candidates` must name each set once, got {name!r} twice")
        if words[0] == "@":
            lines = read_lines(Path(words[1:]), item="word")
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


def _checked_candidates(name: str, sets: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    if name not in sets:
        raise ValueError(f"{{{name}}} must name one of {', '.join(sorted(sets))}, got {name!r}")
    words = tuple(sets[name])
    if len(words) < 2:
        raise ValueError(f"the candidates {name!r} must be at least two words, got {len(words)}")
    if len(set(words)) < len(words):
        raise ValueError(
            f"the candidates {name!r} must be all different, got {len(set(words))} words in "
            f"{len(words)}"
        )
    for number, word in enumerate(words, 1):
        if word.split() != [word]:
            raise ValueError(
                f"the candidates {name!r} must be single words; number {number} is not"
            )
    return words
