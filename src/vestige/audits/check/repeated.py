"""Which word sequences are repeated across texts?

A secret without a format shows only by its copies. With a suffix array over the words (Manber and
Myers, 1993, "Suffix arrays") the longest sequence from each position that three texts share is
found in O(n log n) of all words, however long the texts agree. Words are compared in any case, and
whatever lies between them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    words = _Words.of(texts, never)
    found = _unmerged(words)
    taken = bytearray(words.ids.size)
    spans: dict[int, list[tuple[int, int]]] = {}
    kept = []
    for length, starts in sorted(found, key=lambda one: (-one[0], one[1])):
        free = [at for at in starts if not (taken[at] or taken[at + length - 1])]
        for at in free:
            taken[at : at + length] = b"\1" * length
        if free:
            kept.append([words.place(at, length, texts, spans) for at in starts])
    return kept


@dataclass(frozen=True)
class _Words:
    """Words of all texts in a row.

    Attributes:
        ids: (n,) equal for equal words.
        owners: (n,) number of the text; -1 for one that must not contain the sequence.
        starts: first word of each text.
        ends: (n,) the word after the last one of its text.
    """

    ids: Integers
    owners: Integers
    starts: Integers
    ends: Integers

    @classmethod
    def of(cls, texts: Sequence[str], never: Sequence[str]) -> "_Words":
        forms: dict[str, int] = {}
        rows = [
            [forms.setdefault(word, len(forms)) for word in WORD.findall(text)]
            for text in chain(texts, never)
        ]
        folded: dict[str, int] = {}
        same = np.array([folded.setdefault(form.casefold(), len(folded)) for form in forms] or [0])
        sizes = np.array([len(row) for row in rows])
        ids = np.fromiter(chain.from_iterable(rows), np.int64, int(sizes.sum()))
        numbers = np.where(np.arange(sizes.size) < len(texts), np.arange(sizes.size), -1)
        ends = np.cumsum(sizes)
        return cls(same[ids], np.repeat(numbers, sizes), ends - sizes, np.repeat(ends, sizes))

    def place(
        self, at: int, length: int, texts: Sequence[str], spans: dict[int, list[tuple[int, int]]]
    ) -> Place:
        """Characters of a sequence; `spans` remembers those of the words of a text."""
        number = int(self.owners[at])
        if number not in spans:
            spans[number] = [word.span() for word in WORD.finditer(texts[number])]
        first = at - int(self.starts[number])
        return number, spans[number][first][0], spans[number][first + length - 1][1]


def _unmerged(words: _Words) -> Iterator[tuple[int, list[int]]]:
    """Length and positions of each sequence, one position a text."""
    at, grams = _repeated_grams(words)
    if not at.size:
        return
    ranks, reach = _ranks(at, grams, words.ids.size)
    order = at[np.argsort(ranks[-1][at], kind="stable")]
    common = _common(order, ranks, reach)
    owners = words.owners[order]
    never = np.where(owners < 0, _ANY, 0).tolist()
    with_never = np.array(_spread(never, common.tolist()))
    lengths = np.zeros(words.ids.size + 1, np.int64)
    lengths[order] = _shared(owners.tolist(), common.tolist())
    own = lengths[order]
    maximal = lengths[order - 1] <= own  # the sequence from the word before ends earlier
    chosen = order[(owners >= 0) & maximal & (own > with_never)]
    chosen.sort()
    size = lengths[chosen]
    level = np.array([int(one).bit_length() - 1 for one in size], np.int64)
    tables = np.stack(ranks)
    first, last = tables[level, chosen], tables[level, chosen + size - (1 << level)]
    groups: dict[tuple[int, int, int], dict[int, int]] = {}
    columns = (chosen.tolist(), size.tolist(), first.tolist(), last.tolist())
    for position, grams_, start, end in zip(*columns, strict=True):
        of = groups.setdefault((grams_, start, end), {})
        of.setdefault(int(words.owners[position]), position)
    for (grams_, _, _), places in groups.items():
        if len(places) >= LEAST_TEXTS:
            yield grams_ + LEAST_WORDS - 1, list(places.values())


def _repeated_grams(words: _Words) -> tuple[Integers, Integers]:
    """Positions of sequences of five words that three texts share, and a number for each."""
    total = words.ids.size
    grams, width = words.ids, 1
    at = np.flatnonzero(np.arange(total) + LEAST_WORDS <= words.ends)
    if not at.size:
        return at, at
    while width < LEAST_WORDS:
        step = min(width, LEAST_WORDS - width)
        follows = np.minimum(np.arange(total) + step, total - 1)
        grams, width = _pairs(grams, grams[follows]), width + step
    own = at[words.owners[at] >= 0]
    texts = int(words.owners.max()) + 1
    keys = np.sort(grams[own] * texts + words.owners[own])  # np.unique would hash: ten times slower
    different = keys[np.diff(keys, prepend=-1) > 0]
    often = np.bincount(different // texts, minlength=int(grams.max()) + 1) >= LEAST_TEXTS
    at = at[often[grams[at]]]
    return at, grams[at]


def _pairs(first: Integers, second: Integers) -> Integers:
    """Ranks of pairs in their order."""
    return np.unique(first * (second.max() + 1) + second, return_inverse=True)[1]


def _ranks(at: Integers, grams: Integers, total: int) -> tuple[list[Integers], Integers]:
    """Ranks of the 1, 2, 4… grams from each position, and how many grams follow.

    Rank 0 is no gram; what follows it does not count.
    """
    breaks = np.ones(total + 1, bool)
    breaks[at] = False
    reach = np.zeros(total + 1, np.int64)
    ends = np.flatnonzero(breaks)
    reach[at] = ends[np.searchsorted(ends, at)] - at
    table = np.zeros(total + 1, np.int64)
    table[at] = np.unique(grams, return_inverse=True)[1] + 1
    tables, width = [table], 1
    while width < reach.max() and table.max() < at.size:
        follows = np.where(reach[at] > width, table[np.minimum(at + width, total)], 0)
        table, before = np.zeros(total + 1, np.int64), table
        table[at] = _pairs(before[at], follows) + 1
        tables.append(table)
        width *= 2
    return tables, reach


def _common(order: Integers, ranks: Sequence[Integers], reach: Integers) -> Integers:
    """How many grams each suffix shares with the one before it in the order."""
    first, second = order[:-1].copy(), order[1:].copy()
    common = np.zeros(order.size, np.int64)
    for level in range(len(ranks) - 1, -1, -1):
        table = ranks[level]
        equal = (table[first] == table[second]) & (table[first] > 0)
        step = np.where(equal, np.minimum(1 << level, reach[first]), 0)
        common[1:] += step
        first, second = first + step, second + step
    return common


def _shared(owners: Sequence[int], common: Sequence[int]) -> list[int]:
    """The longest prefix of each suffix that three texts share."""
    smallest = [0] * len(owners)  # what the smallest window of three texts that ends here shares
    recent: list[list[int]] = []  # text, and what all suffixes since its last one share
    for rank, (owner, shared) in enumerate(zip(owners, common, strict=True)):
        for one in recent:
            if one[1] > shared:
                one[1] = shared
        if owner >= 0:
            recent = [[owner, _ANY], *(one for one in recent if one[0] != owner)][:LEAST_TEXTS]
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
