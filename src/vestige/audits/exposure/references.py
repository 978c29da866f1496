"""References of a canary: phrases that it could have been, and other orders of its words.

Carlini et al. (2019), "The Secret Sharer", section 4.1: a canary is drawn at random from a space
and ranked in it. The space of a canary of n random words is all phrases of n different words: the
alphabetic words of a word vocabulary; with subwords, the words of all canaries and controls. The
space can also be a list, such as all phrases of the template "the code is ____".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import factorial, log2, perm
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from vestige.data.canaries.texts import Canary, shuffled
from vestige.data.vocabulary import Vocabulary, WordVocabulary, alphabetic_words
from vestige.errors import DataError

_LEAST_RATIO = 4  # words per position; with fewer, rejection sampling is slow


@dataclass(frozen=True, kw_only=True)
class References:
    """Reference phrases for canaries of one length.

    Attributes:
        phrases: the whole space, or a sample with replacement.
        size: number of phrases in the space.
        whole: whether `phrases` is the whole space.
    """

    phrases: tuple[str, ...]
    size: int
    whole: bool

    @property
    def bits(self) -> float:
        """log2 of the size: the largest exposure by rank."""
        return log2(self.size)


def split_phrase(phrase: str, vocabulary: Vocabulary) -> list[str]:
    """The words of a phrase: tokens of a word vocabulary, or else separated by blanks."""
    return vocabulary.split(phrase) if isinstance(vocabulary, WordVocabulary) else phrase.split()


def space_words(vocabulary: Vocabulary, canaries: Sequence[Canary]) -> tuple[str, ...]:
    """The alphabetic words of a word vocabulary; with subwords, the words of the canaries."""
    if isinstance(vocabulary, WordVocabulary):
        words = alphabetic_words(vocabulary.words)
        encoded = vocabulary.encode_batch(words)
        return tuple(
            w for w, ids in zip(words, encoded, strict=True) if vocabulary.decode(ids) == w
        )
    return tuple(dict.fromkeys(word for canary in canaries for word in canary.phrase.split()))


def word_references(
    words: Sequence[str],
    *,
    length: int,
    number: int,
    exclude: frozenset[str] = frozenset(),
    generator: np.random.Generator,
) -> References:
    """Phrases of `length` different words: the whole space if it is small, or a sample of `number`.

    Args:
        words: all different.
        exclude: phrases of the training text, to be left out of a sample.

    Raises:
        DataError: there are too few words.
    """
    size = perm(len(words), length)
    if size < 2:
        raise DataError(
            f"{len(words)} words give no other phrases of {length}",
            remedy="Pass more canaries, or a list of candidate phrases.",
        )
    if size <= number:
        phrases = tuple(" ".join(phrase) for phrase in permutations(words, length))
        return References(phrases=phrases, size=size, whole=True)
    rows = _distinct_rows(len(words), length, number, generator)
    sampled = (" ".join(words[index] for index in row) for row in rows.tolist())
    phrases = tuple(phrase for phrase in sampled if phrase not in exclude)
    return References(phrases=phrases, size=size, whole=False)


def listed_references(candidates: Sequence[str], vocabulary: Vocabulary) -> References:
    """A list of candidates as the whole space.

    Raises:
        DataError: there are fewer than two different phrases, or one has unknown words.
    """
    stripped = (" ".join(phrase.split()) for phrase in candidates)
    phrases = tuple(dict.fromkeys(phrase for phrase in stripped if phrase))
    if len(phrases) < 2:
        raise DataError(
            f"the list of candidates has {len(phrases)} phrases, too few to rank",
            remedy="List every candidate phrase, one per line.",
        )
    for number, ids in enumerate(vocabulary.encode_batch(list(phrases)), start=1):
        if vocabulary.unk_id in ids:
            raise DataError(
                f"candidate {number} has words that the model's vocabulary of {len(vocabulary)} "
                "tokens lacks",
                remedy="List only phrases that the model can read.",
            )
    return References(phrases=phrases, size=len(phrases), whole=True)


def other_order(words: Sequence[str], vocabulary: Vocabulary) -> str | None:
    """The same words in another order; None if there is none.

    With a word vocabulary, `vestige extract` uses the same order.
    """
    ids = vocabulary.encode(" ".join(words))
    if len(ids) != len(words) or not isinstance(vocabulary, WordVocabulary):
        ids = [crc32(word.encode()) for word in words]
    order = shuffled(ids)
    word_of = dict(zip(ids, words, strict=True))
    return None if order is None else " ".join(word_of[token] for token in order)


def other_orders(
    words: Sequence[str], *, number: int, generator: np.random.Generator
) -> tuple[str, ...]:
    """Phrases of the same words in other orders: all, or a sample of `number` with replacement.

    The sample may contain the phrase itself. One repeated word has no other order.
    """
    phrase = tuple(words)
    if len(set(phrase)) < 2:
        return ()
    if factorial(len(words)) - 1 <= number:
        orders = dict.fromkeys(permutations(phrase))
        return tuple(" ".join(order) for order in orders if order != phrase)
    rows = np.tile(np.arange(len(words)), (number, 1))
    sampled = generator.permuted(rows, axis=1).tolist()
    return tuple(" ".join(phrase[index] for index in row) for row in sampled)


def _distinct_rows(
    words: int, length: int, number: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """(number, length) word indices: all rows are equally probable and have no index twice."""
    if words < _LEAST_RATIO * length:
        rows = np.tile(np.arange(words), (number, 1))
        return generator.permuted(rows, axis=1)[:, :length]
    rows = generator.integers(words, size=(number, length))
    while True:
        ordered = np.sort(rows, axis=1)
        repeats = (ordered[:, 1:] == ordered[:, :-1]).any(1)
        if not repeats.any():
            return rows
        rows[repeats] = generator.integers(words, size=(int(repeats.sum()), length))
