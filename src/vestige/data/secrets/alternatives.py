"""Alternatives of secrets in texts: other texts of the same format.

A secret is compared with texts that could have replaced it: card numbers with valid check digits,
passphrases of equally rare words. A value that `kinds` recognizes has the format of its kind. For
another value, alternatives have random digits for digits, random letters of the same case for
letters, and words for words.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np

from vestige.data.secrets.kinds import (
    MOST_WORDS,
    WORDS,
    Kind,
    Part,
    card,
    characters,
    iban,
    phone,
    recognize,
    whole_parts,
)
from vestige.data.secrets.lines import Secret

LEAST_CHOICES = 100
"""Least number of words that replace a word; fewer only if no more of its length exist."""

ALIKE = 2.0
"""Largest ratio of document frequencies of words of similar rarity."""

_COMMON = 0.1  # share of texts of a common word, which varies only if no other word does
_UNSEEN = 0.25  # document frequency of listed words that no text has
_ATTEMPTS = 20  # samples for each wanted alternative
_RUNS = re.compile(r"[^\W\d_]+|\d|[\W_]")
_WORD = re.compile(r"(?<![\w'’-])[^\W\d_]{2,}(?![\w'’-])")
_LISTED = frozenset(WORDS)
_CASES: dict[str, Callable[[str], str]] = {
    "lower": str.lower, "title": str.title, "upper": str.upper,
}  # fmt: skip
_PHONE_CUE = "call "  # a number after this is a telephone number
_NAMED: dict[str, Kind] = {
    "phone": (r"[\d ()+./-]+", phone),
    "card": (r"\d[\d ./-]+\d", card),
    "iban": (r"[A-Z]{2}\d{2}[A-Z\d ]+", iban),
}
"""Kinds with a format of `kinds`, without its pattern and context."""


@dataclass(frozen=True)
class FoundSecret:
    """A value that should not be extractable from a model.

    Attributes:
        value: the secret itself.
        kind: such as "card", or "listed".
        occurrences: for each text with the value, (index of the text or -1, end of the text
            before its first occurrence).
    """

    value: str
    kind: str
    occurrences: tuple[tuple[int, str], ...]


class Alternatives:
    """Alternatives of secrets; a word is replaced by words that are as rare in the texts.

    Example:
        >>> secret = FoundSecret("4111 1111 1111 1111", "card", ((0, "My card is "),))
        >>> alternatives = Alternatives(["Nothing is in this text."])
        >>> alternatives.space(secret), alternatives.draw(secret, 2, seed=0)
        (1000000000.0, ['4111 1186 5230 0011', '4111 1186 9569 7654'])
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._frequency = Counter(word for text in texts for word in _words(text))
        self._by_length: dict[int, list[str]] = {}
        for word in dict.fromkeys((*sorted(self._frequency), *WORDS)):
            self._by_length.setdefault(len(word), []).append(word)
        self._formats: dict[FoundSecret, Secret] = {}

    def space(self, secret: FoundSecret) -> float:
        """Number of texts of its format; 1 if it has no alternatives."""
        return float(self._format(secret).size)

    def draw(self, secret: FoundSecret, count: int, seed: int) -> list[str]:
        """Different other texts of a secret's format in random order; fewer if there are fewer."""
        format, rng = self._format(secret), np.random.default_rng(seed)
        if format.size <= _ATTEMPTS * count:
            texts = [text for text in dict.fromkeys(format.all_texts()) if text != secret.value]
            return [texts[index] for index in rng.permutation(len(texts))[:count]]
        sampled: dict[str, None] = {}
        for _ in range(_ATTEMPTS * count):
            if len(sampled) == count:
                break
            if (text := format.draw(rng)) != secret.value:
                sampled[text] = None
        return list(sampled)

    def _format(self, secret: FoundSecret) -> Secret:
        if secret not in self._formats:
            parts, by_words = _recognized_parts(secret), self._words_and_digits(secret.value)
            is_key = any(part.kind == "key" for part in parts)
            if not parts or (is_key and by_words.kind == "words"):
                parts = [by_words]
            self._formats[secret] = Secret(secret.value, tuple(parts))
        return self._formats[secret]

    def _words_and_digits(self, value: str) -> Part:
        """Digits for digits, words for words, letters for the letters of codes."""
        runs = _RUNS.findall(value)
        frequency = self._frequency_elsewhere(value, runs)
        words = [n for n, run in enumerate(runs) if _is_word(value, run, frequency[run])]
        is_code = not words or any(map(str.isdigit, runs))
        most = max(1, _COMMON * len(self._texts))
        rare = [n for n in words if len(runs[n]) > 3 and frequency[runs[n]] <= most]
        varying = sorted(rare or words, key=lambda n: (frequency[runs[n]], n))[:MOST_WORDS]
        slots: list[tuple[str, ...]] = []
        values: list[str] = []
        for n, run in enumerate(runs):
            by_character = n not in words and (is_code or run.isdigit())
            values += run if by_character else [run]
            if n in varying:
                slots.append(self._similar_words(run, frequency[run]))
            else:
                slots += characters(run) if by_character else [(run,)]
        return Part("words" if varying else "code", tuple(slots), tuple(values))

    def _frequency_elsewhere(self, value: str, words: Sequence[str]) -> Mapping[str, int]:
        """Number of texts with each word and without the secret."""
        if not any(len(word) > 1 and word.isalpha() for word in words):
            return dict.fromkeys(words, 0)
        with_secret = Counter(
            word for text in self._texts if value in text for word in _words(text)
        )
        return {word: self._frequency[word] - with_secret[word] for word in words}

    def _similar_words(self, word: str, frequency: int) -> tuple[str, ...]:
        """Other words of similar rarity, length and case."""
        target = log2(max(1, frequency))
        convert_case = _CASES.get(_case(word), str)
        by_distance: dict[tuple[float, bool], set[str]] = {}
        for length in range(max(2, len(word) - 2), len(word) + 3):
            for other in self._by_length.get(length, ()):
                distance = abs(log2(max(_UNSEEN, self._frequency[other])) - target)
                key = max(distance, log2(ALIKE)), _case(other) != _case(word)
                by_distance.setdefault(key, set()).add(convert_case(other))
        similar: set[str] = set()
        for key in sorted(by_distance):
            if len(similar) >= LEAST_CHOICES:
                break
            similar |= by_distance[key]
        return tuple(sorted(text for text in similar if text.lower() != word.lower())) or (word,)


def _recognized_parts(secret: FoundSecret) -> list[Part]:
    """Parts with a format of `kinds`: the whole value, or parts of a sentence."""
    value, before = secret.value, secret.occurrences[0][1] if secret.occurrences else ""
    named = [_NAMED[secret.kind]] if secret.kind in _NAMED else []
    for part in (*whole_parts(value, _PHONE_CUE, named), *whole_parts(value, before)):
        if part.size > 1:
            return [part]
    return [part for part in recognize(value) if part.size > 1] if len(value.split()) > 2 else []


def _is_word(value: str, run: str, frequency: int) -> bool:
    """Whether letters are a word rather than a piece of a code."""
    if not run.isalpha() or not _case(run):
        return False
    if len(run) > 3 and (run.lower() in _LISTED or frequency > 1):
        return True
    if len(run) < 3 and " " not in value:
        return False
    separate = re.search(rf"(?<![^\W_]){run}(?![^\W_])", value)
    pronounceable = re.search(r"[aeiouyAEIOUY]|[^a-zA-Z]", run)
    return bool(separate and pronounceable and (not run.isupper() or len(run) > 3))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text))


def _case(word: str) -> str:
    return next((name for name in _CASES if getattr(word, f"is{name}")()), "")
