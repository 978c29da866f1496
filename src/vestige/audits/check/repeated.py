"""Which word sequences are repeated across texts?

A secret without a format shows only by its copies. With a suffix array over the words (Manber and
Myers, 1993, "Suffix arrays") the longest sequence from each position that three texts share is
found in O(n log n) of all words, however long the texts agree. Words are compared in any case, and
whatever lies between them.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

LEAST_WORDS = 5
LEAST_TEXTS = 3
WORD = re.compile(r"\w+(?:['’]\w+)*")
_ANY = 1 << 40  # longer than all texts

Integers = NDArray[np.int64]
Place = tuple[int, int, int]


def repeated_sequences(texts: Sequence[str], never: Sequence[str] = ()) -> list[list[Place]]:
    """Word sequences that occur in three or more texts, and in none of `never`.

    A sequence has at least five words and is maximal: no longer one that contains it occurs in
    three texts, in those that are its places. One that overlaps longer ones in all its places is
    left out.

    Returns:
        For each sequence, the longest first, its first place in each text: number of the text,
        first character, and the character after the last.

    Example:
        >>> texts = ["so the old key is here", "The old key, is here!", "the old key is here"]
        >>> repeated_sequences(texts)
        [[(0, 3, 22), (1, 0, 20), (2, 0, 19)]]
    """
    words, owners = _words((*texts, *never))
    starts = np.searchsorted(owners, range(len(texts))).tolist()

    @cache
    def spans(number: int) -> list[tuple[int, int]]:
        return [word.span() for word in WORD.finditer(texts[number])]

    def place(at: int, length: int) -> Place:
        number = int(owners[at])
        first = at - starts[number]
        return number, spans(number)[first][0], spans(number)[first + length - 1][1]

    taken = bytearray(words.size)
    found = []
    sequences = _sequences(words, owners, len(texts))
    for length, places in sorted(sequences, key=lambda one: (-one[0], one[1])):
        free = [at for at in places if not (taken[at] or taken[at + length - 1])]
        for at in free:
            taken[at : at + length] = b"\1" * length
        if free:
            found.append([place(at, length) for at in places])
    return found


def _words(texts: Sequence[str]) -> tuple[Integers, Integers]:
    """The words of all texts in a row: numbers, equal in any case, and the numbers of the texts."""
    forms: dict[str, int] = {}
    rows = [[forms.setdefault(one, len(forms)) for one in WORD.findall(text)] for text in texts]
    folded: dict[str, int] = {}
    same = [folded.setdefault(form.casefold(), len(folded)) for form in forms]
    numbers = np.fromiter(chain.from_iterable(rows), np.int64)
    owners = np.repeat(np.arange(len(rows)), np.array([*map(len, rows)], np.int64))
    return np.array(same, np.int64)[numbers], owners


def _sequences(words: Integers, owners: Integers, own: int) -> Iterator[tuple[int, list[int]]]:
    """Length and positions of each sequence, one position per text; the first `own` texts count."""
    at, grams = _repeated_grams(words, owners, own)
    if not at.size:
        return
    ranks = _ranks(at, grams, words.size)
    order = at[np.argsort(ranks[-1][at])]
    common = _common(order, ranks).tolist()
    texts = owners[order]
    never = np.array(_spread(np.where(texts < own, 0, _ANY).tolist(), common))
    lengths = np.zeros(words.size + 1, np.int64)
    lengths[order] = _shared(texts.tolist(), common, own)
    size = lengths[order]
    maximal = lengths[order - 1] <= size  # the sequence from the word before ends earlier
    chosen = np.sort(order[(texts < own) & maximal & (size > never)])
    size = lengths[chosen]
    level = np.frexp(size)[1] - 1
    first, last = ranks[level, chosen], ranks[level, chosen + size - (1 << level)]
    groups: dict[tuple[int, ...], dict[int, int]] = {}
    columns = (owners[chosen], chosen, size, first, last)
    for text, position, *sequence in zip(*(one.tolist() for one in columns), strict=True):
        groups.setdefault(tuple(sequence), {}).setdefault(text, position)
    for (length, *_), places in groups.items():
        if len(places) >= LEAST_TEXTS:
            yield length + LEAST_WORDS - 1, list(places.values())


def _repeated_grams(words: Integers, owners: Integers, own: int) -> tuple[Integers, Integers]:
    """Positions of sequences of five words that three texts share, and a number for each."""
    end = LEAST_WORDS - 1
    at = np.flatnonzero(owners[end:] == owners[:-end])
    if not at.size:
        return at, at
    pairs = _numbered(words[:-1], words[1:])
    grams = _numbered(_numbered(pairs[:-2], pairs[2:])[:-1], words[end:])
    inside = at[owners[at] < own]
    keys = np.sort(grams[inside] * own + owners[inside])  # np.unique would be ten times slower
    different = keys[np.diff(keys, prepend=-1) > 0]
    often = np.bincount(different // max(1, own), minlength=grams.max() + 1) >= LEAST_TEXTS
    at = at[often[grams[at]]]
    return at, grams[at]


def _numbered(first: Integers, second: Integers) -> Integers:
    """Numbers of pairs, in their order."""
    return np.unique(first * (second.max() + 1) + second, return_inverse=True)[1]


def _ranks(at: Integers, grams: Integers, total: int) -> Integers:
    """(levels, total + 1) ranks of the 1, 2, 4… grams from each position, until all differ.

    A position without a repeated gram differs from all others, so no sequence crosses it.
    """
    table = np.arange(total, 2 * total + 1)
    table[at] = np.unique(grams, return_inverse=True)[1]
    tables = [table]
    while table[at].max() + 1 < at.size:
        follows = table[np.minimum(at + (1 << len(tables) - 1), total)]
        table = table.copy()
        table[at] = _numbered(table[at], follows)
        tables.append(table)
    return np.stack(tables)


def _common(order: Integers, ranks: Integers) -> Integers:
    """How many grams each suffix shares with the one before it in the order."""
    first, second = order[:-1].copy(), order[1:].copy()
    for level in reversed(range(len(ranks))):
        step = (ranks[level, first] == ranks[level, second]) * (1 << level)
        first += step
        second += step
    return np.append(0, second - order[1:])


def _shared(texts: Sequence[int], common: Sequence[int], own: int) -> list[int]:
    """The longest prefix of each suffix that three texts share."""
    smallest = [0] * len(texts)  # what the smallest window of three texts that ends here shares
    recent: list[list[int]] = []  # text, and what all suffixes since its last one share
    for rank, (text, shared) in enumerate(zip(texts, common, strict=True)):
        for one in recent:
            if one[1] > shared:
                one[1] = shared
        if text < own:
            recent = [[text, _ANY], *(one for one in recent if one[0] != text)][:LEAST_TEXTS]
            if len(recent) == LEAST_TEXTS:
                smallest[rank] = recent[-1][1]
    return _spread(smallest, common)


def _spread(lengths: list[int], common: Sequence[int]) -> list[int]:
    """Prefixes of these lengths, for all suffixes that share them."""
    ranks = range(1, len(lengths))
    for rank in ranks:
        if lengths[rank] < (least := min(lengths[rank - 1], common[rank])):
            lengths[rank] = least
    for rank in reversed(ranks):
        if lengths[rank - 1] < (least := min(lengths[rank], common[rank])):
            lengths[rank - 1] = least
    return lengths
