"""Phrases that a canary could have been: its reference space, and other orders of its words.

Carlini et al. (2019), "The Secret Sharer", section 4.1: a canary is drawn at random from a space
and ranked in it. The space of random words (`vestige.data`) holds the phrases of as many different
words. These are the alphabetic ones of a word vocabulary; with subwords, the words of all canaries
and controls. Or the space is a list, such as all that the template "the code is ____" can say.
Canaries that a language model wrote are ranked among their controls: only coins tell the two apart.
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

_CROWDED = 4  # with fewer words per position, sampling rows again until no word repeats is slow


@dataclass(frozen=True, kw_only=True)
class References:
    """Reference phrases for canaries of one length.

    Attributes:
        phrases: a sample with replacement, or the whole space.
        size: phrases in the space.
        whole: whether `phrases` is the whole space.
    """

    phrases: tuple[str, ...]
    size: int
    whole: bool

    @property
    def bits(self) -> float:
        """log2 of the size, which no exposure by rank exceeds."""
        return log2(self.size)


def split_phrase(phrase: str, vocabulary: Vocabulary) -> list[str]:
    """The words of a phrase: tokens of a word vocabulary, or what blanks separate."""
    return vocabulary.split(phrase) if isinstance(vocabulary, WordVocabulary) else phrase.split()


def space_words(vocabulary: Vocabulary, canaries: Sequence[Canary]) -> tuple[str, ...]:
    """The alphabetic words of a word vocabulary; with subwords, the words of the canaries."""
    if isinstance(vocabulary, WordVocabulary):
        words = alphabetic_words(vocabulary.words)
        read = vocabulary.encode_batch(words)
        return tuple(w for w, ids in zip(words, read, strict=True) if vocabulary.decode(ids) == w)
    return tuple(dict.fromkeys(word for canary in canaries for word in canary.phrase.split()))


def word_references(
    words: Sequence[str],
    *,
    length: int,
    number: int,
    exclude: frozenset[str] = frozenset(),
    generator: np.random.Generator,
) -> References:
    """Phrases of `length` different words: a sample of `number`, or the whole space if it is small.

    Args:
        words: all different.
        exclude: phrases that are left out of a sample, since the model was trained on them.

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
        phrases = tuple(" ".join(chosen) for chosen in permutations(words, length))
        return References(phrases=phrases, size=size, whole=True)
    rows = _distinct_rows(len(words), length, number, generator)
    drawn = (" ".join(words[index] for index in row) for row in rows.tolist())
    kept = tuple(phrase for phrase in drawn if phrase not in exclude)
    return References(phrases=kept, size=size, whole=False)


def listed_references(candidates: Sequence[str], vocabulary: Vocabulary) -> References:
    """A list of candidates as the whole space.

    Raises:
        DataError: fewer than two different phrases, or one with unknown words.
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

    With a word vocabulary it is the order that `vestige extract` compares as well.
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

    The sample may hold the phrase itself. One repeated word has no other order.
    """
    own = tuple(words)
    if len(set(own)) < 2:
        return ()
    if factorial(len(words)) - 1 <= number:
        return tuple(" ".join(o) for o in dict.fromkeys(permutations(own)) if o != own)
    rows = np.tile(np.arange(len(words)), (number, 1))
    drawn = generator.permuted(rows, axis=1).tolist()
    return tuple(" ".join(own[place] for place in row) for row in drawn)


def _distinct_rows(
    words: int, length: int, number: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """(number, length) indices of words, none twice in a row, every row equally probable."""
    if words < _CROWDED * length:
        rows = np.tile(np.arange(words), (number, 1))
        return generator.permuted(rows, axis=1)[:, :length]
    rows = generator.integers(words, size=(number, length))
    while True:
        ordered = np.sort(rows, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(1)
        if not twice.any():
            return rows
        rows[twice] = generator.integers(words, size=(int(twice.sum()), length))
