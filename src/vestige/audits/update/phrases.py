"""Texts that a search has read, and the phrases that they are cut into.

As in local alignment, a phrase is a segment of highest score: every token pays a penalty, and a
text is split where the score falls by more than a threshold, because only the search has joined the
parts there.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from vestige.audits.update.pair import Tokens
from vestige.audits.update.settings import Settings
from vestige.models.largest import rounded

PREFIX = 16  # most tokens before a phrase that are saved with it


@dataclass(frozen=True)
class Text:
    """Tokens that a search has read, or a phrase cut out of them.

    Attributes:
        tokens: including the context.
        gains: of each token, less its surprise; those of the context do not count.
        first: position after the context; 1 or more.
        source: the proposal that found it.
        prompt: tokens of the prompt before it; empty at a document's beginning, in a sample and
            after a single token.
        log_ratios: of a sample, log p' - log p of each token from `first` on.
        score: of a phrase, the sum of its gains less penalties.
    """

    tokens: Tokens
    gains: tuple[float, ...]
    first: int = 1
    source: str = ""
    prompt: Tokens = ()
    log_ratios: tuple[float, ...] = ()
    score: float = 0.0

    @cached_property
    def phrase(self) -> Tokens:
        """The last context token and all following ones."""
        return self.tokens[self.first - 1 :]

    @property
    def prefix(self) -> Tokens:
        """The tokens before the phrase."""
        return self.tokens[: self.first - 1]

    @property
    def is_repetitive(self) -> bool:
        """Whether the phrase mostly repeats itself, like rows of dots.

        Digits with spaces between them have few tokens but many pairs of neighbours, so they are
        not repetitive.

        Example:
            >>> phrases = ((7, 8, 7, 8), (7, 8, 9), (0, 9, 0, 4, 0, 7, 0, 1))
            >>> [Text(tokens, ()).is_repetitive for tokens in phrases]
            [True, False, False]
        """
        tokens = self.phrase
        return 2 * max(len(set(tokens)), len(set(pairwise(tokens)))) <= len(tokens)

    def with_prefix(self, length: int) -> "Text":
        """The same phrase with at most `length` tokens before it."""
        start = max(0, self.first - 1 - length)
        return replace(
            self, tokens=self.tokens[start:], gains=self.gains[start:], first=self.first - start
        )

    def cut(self, settings: Settings) -> "Iterator[Text]":
        """The phrases: segments of highest score, each after its last context token."""
        gains = self._penalised(settings) if self.log_ratios else self.gains
        best = total = 0.0
        first = stop = self.first
        for i in range(first, len(self.tokens) + 1):
            if i < len(self.tokens):
                total += gains[i] - settings.token_penalty
            if total > best:
                best, stop = total, i + 1
            elif i == len(self.tokens) or total <= 0 or total < best - settings.split_threshold:
                if best > 0:
                    yield self._segment(first, stop, gains, best)
                best = total = 0.0
                first = stop = i + 1

    def best(self, settings: Settings) -> "Text | None":
        """The phrase of highest score."""
        return max(self.cut(settings), key=lambda phrase: phrase.score, default=None)

    def as_phrase(self) -> "Text":
        """A complete sample as one phrase, scored by its mean log-ratio."""
        mean = sum(self.log_ratios) / max(1, len(self.log_ratios))
        return self._segment(self.first, len(self.tokens), self.gains, mean)

    def _segment(self, first: int, stop: int, gains: Sequence[float], score: float) -> "Text":
        start = max(0, first - 1 - PREFIX)
        return Text(
            tokens=self.tokens[start:stop],
            gains=(0.0,) * (first - start) + tuple(gains[first:stop]),
            first=first - start,
            source=self.source,
            prompt=self.prompt,
            score=score,
        )

    def _penalised(self, settings: Settings) -> tuple[float, ...]:
        """Gains of a sample less penalties of its loops; grown texts have paid them already.

        A loop repeats four tokens: three are too often digits with spaces between them.
        """
        gains, seen = list(self.gains), set[Tokens]()
        for i in range(self.first + 3, len(self.tokens)):
            last_four = self.tokens[i - 3 : i + 1]
            if last_four in seen:
                gains[i] -= settings.loop_penalty
            seen.add(last_four)
        return tuple(gains)


def cut(texts: Iterable[Text], settings: Settings) -> list[Text]:
    """The phrases of texts, best first, including near-copies."""
    phrases = long_enough((phrase for text in texts for phrase in text.cut(settings)), settings)
    return sorted(phrases, key=sort_key)


def sort_key(phrase: Text) -> tuple[float, Tokens]:
    """Sorts the best first; scores that float32 cannot tell apart are ties."""
    return -rounded(phrase.score), phrase.phrase


def long_enough(phrases: Iterable[Text], settings: Settings) -> Iterator[Text]:
    """The phrases of at least `min_tokens`."""
    return (phrase for phrase in phrases if len(phrase.phrase) >= settings.min_tokens)


def uncovered(phrase: Text, covered: Sequence[bool], settings: Settings) -> Iterator[Text]:
    """Phrases between the tokens of a near-copy that better phrases contain (`covered`)."""
    offset, first = phrase.first - 1, 1  # the token before the first one is context
    for stop in range(1, len(covered) + 1):
        if stop == len(covered) or covered[stop]:
            part = replace(
                phrase,
                tokens=phrase.tokens[: offset + stop],
                gains=phrase.gains[: offset + stop],
                first=offset + first,
            )
            yield from long_enough(part.cut(settings), settings)
            first = stop + 1
