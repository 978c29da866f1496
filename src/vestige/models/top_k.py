"""Ranked words without probabilities: the least access to a model.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.3: a service lists its k most probable words, ranked. The rank of the
true word is its position in the list, or k + 1 if the list does not contain it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Answer = tuple[str, ...] | None
"""The most probable words, in order; None: no answer."""


@dataclass(frozen=True)
class Context:
    """The words before the next word, from the beginning of the text.

    `source`: the whole text that is translated or answered, if any.
    """

    words: tuple[str, ...]
    source: str | None = None

    def __post_init__(self) -> None:
        is_list = isinstance(self.words, list | tuple)
        if not is_list or not all(isinstance(word, str) for word in self.words):
            raise ValueError(f"words must be a tuple of strings, got {type(self.words).__name__}")
        if self.source is not None and not isinstance(self.source, str):
            raise ValueError(f"source must be a string, got {type(self.source).__name__}")
        object.__setattr__(self, "words", tuple(self.words))


class TopK(Protocol):
    """The least access: at most k ranked words, no probabilities."""

    @property
    def k(self) -> int: ...

    def likeliest(self, contexts: Sequence[Context]) -> list[Answer]:
        """For each context, at most k different next words, the most probable first."""
        ...


def likeliest_ranks(
    model: TopK,
    contexts: Sequence[Context],
    words: Sequence[str],
    *,
    at_once: int = 1024,
    progress: Callable[[int, int], object] | None = None,
) -> NDArray[np.int32]:
    """(n,) ranks of the true words in the lists: 1 to k; k + 1: not listed; 0: no answer.

    Args:
        contexts: of the n words; keep contexts of one text together.
        at_once: contexts in one query, which bounds memory.
        progress: called with (words done, all words).
    """
    if len(contexts) != len(words):
        raise ValueError(
            f"words must be one for each of {len(contexts)} contexts, got {len(words)}"
        )
    ranks = np.zeros(len(words), np.int32)
    for begin in range(0, len(words), at_once):
        answers = model.likeliest(contexts[begin : begin + at_once])
        for row, answer in enumerate(answers, start=begin):
            if answer is not None:
                words_shown = answer[: model.k]
                listed = words[row] in words_shown
                ranks[row] = words_shown.index(words[row]) + 1 if listed else model.k + 1
        if progress is not None:
            progress(min(begin + at_once, len(words)), len(words))
    return ranks
