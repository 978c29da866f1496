"""Reference phrases that a canary could have been: the whole space or a sample.

Carlini et al. (2019), "The Secret Sharer", section 4.1: a canary is drawn at random from a space,
and its rank is that among all of the space. Here the space is that from which canaries of random
words are drawn (`vestige.data`): phrases of as many words, no word twice, every word alike. The
words are the alphabetic ones of a word vocabulary. A subword vocabulary has no words, so that
phrases are made of the words of all canaries and controls at hand. Or the space is a list: what a
template such as "the code is ____" could have said. Canaries that a language model wrote have their
controls for a space: which of both was planted, coins have said.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import factorial, log2, perm
from typing import Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from vestige.data.canary import Canary
from vestige.data.lexicon import alphabetic_words
from vestige.data.shuffled_controls import shuffled
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import DataError

Space = Literal["auto", "sampled", "whole"]
"""How a space of words is looked at; "auto" takes it whole where that is no more work."""

ORDERS = 719
"""Other orders of a phrase's words that are compared with it at most: all of six words."""

LARGEST = 2**20
"""Phrases that are listed at most."""

_CROWDED = 4  # with fewer words for each place, drawing anew until none comes twice takes long


@dataclass(frozen=True, kw_only=True)
class References:
    """Reference phrases for canaries of one length.

    Attributes:
        phrases: drawn with replacement, or every one of the space.
        size: phrases in the space.
        whole: whether these are all of them.
    """

    phrases: tuple[str, ...]
    size: int
    whole: bool

    @property
    def bits(self) -> float:
        """log2 of the size: no exposure by rank exceeds it."""
        return log2(self.size)


def split_phrase(phrase: str, vocabulary: Vocabulary) -> list[str]:
    """The words of a phrase, as a word vocabulary takes it apart, else between blanks."""
    return vocabulary.split(phrase) if isinstance(vocabulary, WordVocabulary) else phrase.split()


def space_words(vocabulary: Vocabulary, canaries: Sequence[Canary]) -> tuple[str, ...]:
    """The alphabetic words of a word vocabulary, or else those of the canaries, each once."""
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
    space: Space,
    exclude: frozenset[str] = frozenset(),
    generator: np.random.Generator,
) -> References:
    """Phrases of `length` different words: a sample, or every one there is.

    Args:
        words: all different.
        length: of each phrase.
        number: of phrases in a sample.
        space: "whole", "sampled", or "auto": whole where the space has no more than `number`.
        exclude: phrases that a sample leaves out, because a model was trained on them.
        generator: draws.

    Raises:
        DataError: there are too few words, or the whole space is too large to list.
    """
    size = perm(len(words), length)
    if size < 2:
        raise DataError(
            f"{len(words)} words give no other phrases of {length}",
            remedy="Pass more canaries, or a list of candidate phrases.",
        )
    if space == "whole" and size > LARGEST:
        raise DataError(
            f"the space has 2^{log2(size):.1f} phrases of {length} words, more than {LARGEST:,}",
            remedy="Sample it, or use exact ranks.",
        )
    if space == "whole" or (space == "auto" and size <= number):
        phrases = tuple(" ".join(chosen) for chosen in permutations(words, length))
        return References(phrases=phrases, size=size, whole=True)
    rows = _distinct_rows(len(words), length, number, generator)
    drawn = (" ".join(words[index] for index in row) for row in rows.tolist())
    kept = tuple(phrase for phrase in drawn if phrase not in exclude)
    return References(phrases=kept, size=size, whole=False)


def listed_references(candidates: Sequence[str]) -> References:
    """References given as a list, such as all that a template can say.

    Raises:
        DataError: fewer than two different phrases.
    """
    phrases = tuple(dict.fromkeys(" ".join(phrase.split()) for phrase in candidates))
    phrases = tuple(phrase for phrase in phrases if phrase)
    if len(phrases) < 2:
        raise DataError(
            f"the list of candidates has {len(phrases)} phrases, too few to rank",
            remedy="List every candidate phrase, one per line.",
        )
    return References(phrases=phrases, size=len(phrases), whole=True)


def control_references(phrases: Sequence[str], tokens: int, length: int) -> References:
    """Controls as references, of canaries that are told from them by coins alone.

    A coin does not ask what a text says, so that a canary that a model has not read is as likely
    to have any rank among them, whatever wrote both.

    Args:
        phrases: of the controls.
        tokens: of the vocabulary.
        length: tokens of the longest phrase.

    Raises:
        DataError: there are fewer than two.
    """
    if len(phrases) < 2:
        raise DataError(
            f"there is {len(phrases)} sampled control, too few to rank sampled canaries",
            remedy="Plant more sampled canaries: their controls are the references.",
        )
    return References(phrases=tuple(phrases), size=tokens**length, whole=False)


def other_order(words: Sequence[str], vocabulary: Vocabulary) -> str | None:
    """The same words in another order; None where all orders are the same.

    Of a word vocabulary it is the order that `vestige extract` takes too.
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
    """The phrases that the same words make in other orders: all of them, or a sample.

    A word that is repeated has no other order.

    Args:
        words: of a phrase.
        number: of phrases that a sample holds; drawn with replacement, its own order among them.
        generator: draws them.
    """
    own = tuple(words)
    if len(set(own)) < 2:
        return ()
    if factorial(len(words)) - 1 <= number:
        every = dict.fromkeys(permutations(own))
        return tuple(" ".join(order) for order in every if order != own)
    rows = np.tile(np.arange(len(words)), (number, 1))
    drawn = generator.permuted(rows, axis=1).tolist()
    return tuple(" ".join(own[place] for place in row) for row in drawn)


def _distinct_rows(
    words: int, length: int, number: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """(number, length) places of words, none twice in a row, every row as likely."""
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
