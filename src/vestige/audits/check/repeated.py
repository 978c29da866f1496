"""Which word sequences are repeated across texts?

A secret without a format shows only by its copies. Sequences of 1, 2, 4… words get equal numbers if
they are equal (prefix doubling: Manber and Myers, 1993, "Suffix arrays"). From each position the
longest sequence that three texts share is then found by a binary search over its length, in
O(n log² n) of all words, however long the texts agree. Words are compared in any case, and whatever
lies between them.
"""

import re
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

LEAST_WORDS = 5
LEAST_TEXTS = 3
WORD = re.compile(r"\w+(?:['’]\w+)*")
_PRUNED = 2  # level of 4 words, the largest power of two that every sequence contains

Integers = NDArray[np.int64]
Place = tuple[int, int, int]


def repeated_sequences(texts: Sequence[str], never: Sequence[str] = ()) -> list[list[Place]]:
    """Word sequences that occur in three or more texts, and in no other text.

    A sequence has at least five words and is maximal: no longer one that contains it occurs in
    three texts, in those that are its places. One that overlaps longer ones in all its places is
    left out.

    Args:
        texts: n texts.
        never: texts that must not contain the sequence.

    Returns:
        For each sequence, the longest first, its first place in each text: number of the text,
        first character, and the character after the last.

    Example:
        >>> texts = ["so the old key is here", "The old key, is here!", "the old key is here"]
        >>> repeated_sequences(texts)
        [[(0, 3, 22), (1, 0, 20), (2, 0, 19)]]
    """
    if len(texts) < LEAST_TEXTS:
        return []
    words, owners, starts = _words(texts, never)
    taken = bytearray(words.size)
    spans: dict[int, list[tuple[int, int]]] = {}
    found: list[list[Place]] = []
    for length, places in sorted(_maximal(words, owners), key=lambda one: (-one[0], one[1])):
        free = [at for at in places if not (taken[at] or taken[at + length - 1])]
        for at in free:
            taken[at : at + length] = b"\1" * length
        if not free:
            continue
        found.append([])
        for at in places:
            number = int(owners[at])
            if number not in spans:
                spans[number] = [word.span() for word in WORD.finditer(texts[number])]
            first = at - starts[number]
            of_text = spans[number]
            found[-1].append((number, of_text[first][0], of_text[first + length - 1][1]))
    return found


def _words(texts: Sequence[str], never: Sequence[str]) -> tuple[Integers, Integers, list[int]]:
    """Words of all texts in a row, each text followed by a 0.

    Returns:
        (n,) numbers from 1, equal for equal words; (n,) numbers of the texts, -1 for those of
        `never`; the first position of each text.
    """
    forms: dict[str, int] = {}
    rows = [
        [forms.setdefault(word, len(forms) + 1) for word in WORD.findall(text)]
        for text in chain(texts, never)
    ]
    folded: dict[str, int] = {}
    same = np.array([0, *(folded.setdefault(one.casefold(), len(folded) + 1) for one in forms)])
    sizes = np.array([len(row) + 1 for row in rows])
    ids = np.fromiter(chain.from_iterable((*row, 0) for row in rows), np.int64, int(sizes.sum()))
    numbers = np.where(np.arange(sizes.size) < len(texts), np.arange(sizes.size), -1)
    return same[ids], np.repeat(numbers, sizes), (np.cumsum(sizes) - sizes).tolist()


def _maximal(words: Integers, owners: Integers) -> list[tuple[int, list[int]]]:
    """Length and positions of each sequence, one position a text."""
    lengths, groups, is_public = _longest(words, owners)
    long = (lengths >= LEAST_WORDS) & (np.roll(lengths, 1) <= lengths)  # else it begins earlier
    chosen = np.flatnonzero(long & ~is_public & (owners >= 0))
    found: dict[int, dict[int, int]] = {}
    columns = (chosen.tolist(), groups[chosen].tolist(), owners[chosen].tolist())
    for at, group, owner in zip(*columns, strict=True):
        found.setdefault(group, {}).setdefault(owner, at)
    return [
        (int(lengths[min(places.values())]), [*places.values()])
        for places in found.values()
        if len(places) >= LEAST_TEXTS
    ]


def _longest(words: Integers, owners: Integers) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """The longest sequence from each position that three texts share.

    Returns:
        (n,) lengths, 0 for less than four words; (n,) numbers, equal for equal sequences; (n,)
        whether a text of `never` has the sequence.
    """
    lengths, groups = np.zeros_like(words), np.zeros_like(words)
    is_public = np.zeros(words.size, bool)
    tables = _tables(words, owners)
    at = np.flatnonzero(tables[_PRUNED]) if len(tables) > _PRUNED else np.zeros(0, np.int64)
    last = 0
    for level in reversed(range(len(tables))) if at.size else ():
        follows = tables[level][at + lengths[at]]
        longer = at[follows > 0]
        keys = _pairs(groups[longer], follows[follows > 0])
        often = _often(keys, owners[longer])
        longer, keys = longer[often], keys[often] + last + 1
        lengths[longer] += 1 << level
        groups[longer] = keys
        is_public[longer] = np.isin(keys, keys[owners[longer] < 0])
        last = int(keys.max(initial=last))
    return lengths, groups, is_public


def _tables(words: Integers, owners: Integers) -> list[Integers]:
    """For 1, 2, 4… words: (n,) a number for the sequence from each position, 0 if it is rare."""
    at = np.flatnonzero(words)
    keys, tables = words[at], []
    while (often := _often(keys, owners[at])).any():
        at = at[often]
        table = np.zeros_like(words)
        table[at] = keys[often] + 1
        tables.append(table)
        step = 1 << (len(tables) - 1)
        at = at[table[at + step] > 0]
        keys = _pairs(table[at], table[at + step])
    return tables


def _pairs(first: Integers, second: Integers) -> Integers:
    """Equal numbers, from 0, for equal pairs."""
    return np.unique(first * (second.max(initial=0) + 1) + second, return_inverse=True)[1]


def _often(keys: Integers, owners: Integers) -> NDArray[np.bool_]:
    """Whether each of some numbers occurs in three texts, those of `never` apart."""
    if not keys.size:
        return np.zeros(0, bool)
    own, texts = owners >= 0, int(owners.max()) + 2
    pairs = np.sort(keys[own] * texts + owners[own])  # np.unique would hash: ten times slower
    different = pairs[np.diff(pairs, prepend=-1) > 0] // texts
    often: NDArray[np.bool_] = np.bincount(different, minlength=int(keys.max()) + 1) >= LEAST_TEXTS
    return often[keys]
