"""Secrets that texts contain, and other texts of their format, with which they are compared.

A secret stands out only among texts that could have been in its place: numbers with valid check
digits for a card, words as rare as its own for a passphrase. Formats are those of `kinds` where
they recognize the value; otherwise random digits stand for digits, random letters of the same case
for letters, and words for words.
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
    of_whole,
    phone,
    recognized,
)
from vestige.data.secrets.lines import Secret

LEAST_CHOICES = 100
"""Words that stand for a word at least; fewer only if no more of its length are known."""

ALIKE = 2.0
"""Ratio of document frequencies up to which words are of similar rarity."""

_COMMON = 0.1  # share of the texts from which on a word varies only if no other can
_UNSEEN = 0.25  # document frequency of listed words that are in no text
_ATTEMPTS = 20  # draws for each alternative that is wanted
_RUNS = re.compile(r"[^\W\d_]+|\d|[\W_]")
_WORD = re.compile(r"(?<![\w'’-])[^\W\d_]{2,}(?![\w'’-])")
_LISTED = frozenset(WORDS)
_FORMS: dict[str, Callable[[str], str]] = {
    "lower": str.lower, "title": str.title, "upper": str.upper,
}  # fmt: skip
_CUE = "call "  # which makes a number one of a telephone
_NAMED: dict[str, Kind] = {
    "phone": (r"[\d ()+./-]+", phone),
    "card": (r"\d[\d ./-]+\d", card),
    "iban": (r"[A-Z]{2}\d{2}[A-Z\d ]+", iban),
}
"""Kinds with a format of `kinds`, whatever their pattern and context."""


@dataclass(frozen=True)
class FoundSecret:
    """A value that nobody should be able to extract from a model.

    Attributes:
        value: the secret itself.
        kind: such as "card", or "listed".
        places: for each text that contains it, the number of the text, from 0 (-1: none), and the
            end of the text before its first occurrence.
    """

    value: str
    kind: str
    places: tuple[tuple[int, str], ...]


class Alternatives:
    """Alternatives of secrets; words of the texts stand for words as rare in them.

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
        """Other texts of a secret's format, all different, in random order.

        There are fewer than `count` if the format has fewer.
        """
        form, generator = self._format(secret), np.random.default_rng(seed)
        if form.size <= _ATTEMPTS * count:
            every = [text for text in dict.fromkeys(form.every()) if text != secret.value]
            return [every[place] for place in generator.permutation(len(every))[:count]]
        drawn: dict[str, None] = {}
        for _ in range(_ATTEMPTS * count):
            if len(drawn) == count:
                break
            if (text := form.draw(generator)) != secret.value:
                drawn[text] = None
        return list(drawn)

    def _format(self, secret: FoundSecret) -> Secret:
        if secret not in self._formats:
            parts, positions = _recognized(secret), self._positions(secret.value)
            key = any(part.kind == "key" for part in parts)
            if not parts or (key and positions.kind == "words"):
                parts = [positions]
            self._formats[secret] = Secret(secret.value, tuple(parts))
        return self._formats[secret]

    def _positions(self, value: str) -> Part:
        """Digits for digits, words for words, letters for the letters of codes."""
        runs = _RUNS.findall(value)
        frequency = self._frequency_elsewhere(value, runs)
        words = [n for n, run in enumerate(runs) if _is_word(value, run, frequency[run])]
        coded = not words or any(map(str.isdigit, runs))
        most = max(1, _COMMON * len(self._texts))
        rare = [n for n in words if len(runs[n]) > 3 and frequency[runs[n]] <= most]
        varied = sorted(rare or words, key=lambda n: (frequency[runs[n]], n))[:MOST_WORDS]
        slots: list[tuple[str, ...]] = []
        own: list[str] = []
        for n, run in enumerate(runs):
            by_character = n not in words and (coded or run.isdigit())
            own += run if by_character else [run]
            if n in varied:
                slots.append(self._like(run, frequency[run]))
            else:
                slots += characters(run) if by_character else [(run,)]
        return Part("words" if varied else "code", tuple(slots), tuple(own))

    def _frequency_elsewhere(self, value: str, words: Sequence[str]) -> Mapping[str, int]:
        """Number of texts that hold each word and not the secret."""
        if not any(len(word) > 1 and word.isalpha() for word in words):
            return dict.fromkeys(words, 0)
        beside = Counter(word for text in self._texts if value in text for word in _words(text))
        return {word: self._frequency[word] - beside[word] for word in words}

    def _like(self, word: str, frequency: int) -> tuple[str, ...]:
        """Words of similar rarity, length and case, without the word itself."""
        wanted = log2(max(1, frequency))
        form = _FORMS.get(_case(word), str)
        ranked: dict[tuple[float, bool], set[str]] = {}
        for length in range(max(2, len(word) - 2), len(word) + 3):
            for other in self._by_length.get(length, ()):
                far = abs(log2(max(_UNSEEN, self._frequency[other])) - wanted)
                key = max(far, log2(ALIKE)), _case(other) != _case(word)
                ranked.setdefault(key, set()).add(form(other))
        made: set[str] = set()
        for key in sorted(ranked):
            if len(made) >= LEAST_CHOICES:
                break
            made |= ranked[key]
        return tuple(sorted(text for text in made if text.lower() != word.lower())) or (word,)


def _recognized(secret: FoundSecret) -> list[Part]:
    """Parts with a format of `kinds`: the whole value, or within a sentence."""
    value, before = secret.value, secret.places[0][1] if secret.places else ""
    named = [_NAMED[secret.kind]] if secret.kind in _NAMED else []
    for part in (*of_whole(value, _CUE, named), *of_whole(value, before)):
        if part.size > 1:
            return [part]
    return [part for part in recognized(value) if part.size > 1] if len(value.split()) > 2 else []


def _is_word(value: str, run: str, frequency: int) -> bool:
    """Whether letters are a word rather than a piece of a code."""
    if not run.isalpha() or not _case(run):
        return False
    if len(run) > 3 and (run.lower() in _LISTED or frequency > 1):
        return True
    if len(run) < 3 and " " not in value:
        return False
    by_itself = re.search(rf"(?<![^\W_]){run}(?![^\W_])", value)
    spoken = re.search(r"[aeiouyAEIOUY]|[^a-zA-Z]", run)
    return bool(by_itself and spoken and (not run.isupper() or len(run) > 3))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text))


def _case(word: str) -> str:
    return next((name for name in _FORMS if getattr(word, f"is{name}")()), "")
