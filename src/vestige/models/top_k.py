"""Ranked words without probabilities: the least access to a model.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.3: a service lists its k most probable words, ranked. A true word has a
rank in the list, or is missing from it and has rank k + 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Answer = tuple[str, ...] | None
"""The most probable words, in order; None without an answer."""


@dataclass(frozen=True)
class Context:
    """The words before the next word, from the beginning of the text.

    `source`: the whole text that this one translates or answers, if any.
    """

    words: tuple[str, ...]
    source: str | None = None

    def __post_init__(self) -> None:
        plain = isinstance(self.words, list | tuple)
        if not plain or not all(isinstance(word, str) for word in self.words):
            raise ValueError(f"words must be a tuple of strings, got {type(self.words).__name__}")
        if self.source is not None and not isinstance(self.source, str):
            raise ValueError(f"source must be a string, got {type(self.source).__name__}")
        object.__setattr__(self, "words", tuple(self.words))


class TopK(Protocol):
    """The least access of all: ranked words, at most k, and no probabilities."""

    @property
    def k(self) -> int: ...

    def likeliest(self, contexts: Sequence[Context]) -> list[Answer]:
        """For each context the most probable next words, at most k, all different."""
        ...


def likeliest_ranks(
    model: TopK,
    contexts: Sequence[Context],
    words: Sequence[str],
    *,
    at_once: int = 1024,
    progress: Callable[[int, int], object] | None = None,
) -> NDArray[np.int32]:
    """(n,) ranks of true words in lists: 1 to k; k + 1 if it is missing; 0 without an answer.

    Args:
        contexts: of the n words; those of one text are best neighbours.
        at_once: lists that are in memory together.
        progress: gets (words done, all words).
    """
    if len(contexts) != len(words):
        raise ValueError(
            f"words must be one for each of {len(contexts)} contexts, got {len(words)}"
        )
    ranks = np.zeros(len(words), np.int32)
    for begin in range(0, len(words), at_once):
        answers = model.likeliest(contexts[begin : begin + at_once])
        for number, answer in enumerate(answers, start=begin):
            if answer is not None:
                shown = answer[: model.k]
                found = words[number] in shown
                ranks[number] = shown.index(words[number]) + 1 if found else model.k + 1
        if progress is not None:
            progress(min(begin + at_once, len(words)), len(words))
    return ranks
