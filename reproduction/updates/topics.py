"""The topic of an added text: a mechanical, calibrated criterion for phrases.

A word is over-represented in the added text if its log-odds there exceed those in the original by
more than a bound (0.5 added to each count, Haldane 1956). A phrase is on topic if at least half of
its content words are over-represented; content words are alphabetic and not among the commonest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class Topic:
    """Which tokens are content words (v,), and which of these are over-represented (v,)."""

    content: NDArray[np.bool_]
    special: NDArray[np.bool_]

    def contains(self, tokens: Sequence[int]) -> bool:
        """Whether a phrase is on topic."""
        return bool(self._share(np.asarray([tokens]))[0] >= 0.5)

    def share(self, text: EncodedCorpus, *, length: int) -> float:
        """Share of a text's windows of `length` tokens that are on topic: the calibration."""
        windows = np.lib.stride_tricks.sliding_window_view(np.asarray(text.tokens), length)
        return float((self._share(windows) >= 0.5).mean())

    def _share(self, phrases: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        content, special = self.content[phrases].sum(1), self.special[phrases].sum(1)
        share: NDArray[np.float64] = np.divide(
            special, content, out=np.zeros(len(phrases)), where=content > 0
        )
        return share


def topic_of(
    added: EncodedCorpus,
    original: EncodedCorpus,
    vocabulary: Vocabulary,
    *,
    bound: float = 2.0,
    commonest: int = 150,
) -> Topic:
    """The topic of a text that was added to an original one.

    `bound` is a log-odds ratio in nats; 2 is about seven times as frequent. The `commonest` tokens
    of the original are not content words.
    """
    counts = [
        np.bincount(text.tokens, minlength=len(vocabulary)) + 0.5 for text in (added, original)
    ]
    log_odds = [np.log(count / (count.sum() - count)) for count in counts]
    content = np.array([vocabulary.piece(i).isalpha() for i in range(len(vocabulary))])
    content[np.argsort(-counts[1], kind="stable")[:commonest]] = False
    return Topic(content, content & (log_odds[0] - log_odds[1] > bound))


def occurrences_of(tokens: Sequence[int], text: EncodedCorpus) -> int:
    """How often a sequence of tokens occurs in a text."""
    n = len(text.tokens) - len(tokens) + 1
    if n < 1:
        return 0
    matches = np.ones(n, dtype=bool)
    for position, token in enumerate(tokens):
        matches &= text.tokens[position : position + n] == token
    return int(matches.sum())
