"""Which word sequences are repeated across texts?

A secret without a format can be recognized only by its copies. A suffix array over the n words of
all texts (Manber and Myers, 1993, "Suffix arrays") gives the longest sequence from each position
that three texts share, in O(n log n). Case and the characters between words do not count.
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
_UNLIMITED = 1 << 40  # words

Integers = NDArray[np.int64]
Occurrence = tuple[int, int, int]
"""Index of a text, first character, and the character after the last."""


def repeated_sequences(texts: Sequence[str], never: Sequence[str] = ()) -> list[list[Occurrence]]:
    """Word sequences that occur in three or more texts, and in none of `never`.

    A sequence has at least five words and is maximal: no longer sequence with it occurs in the same
    texts. A sequence that overlaps longer ones in all its texts is left out.

    Returns:
        For each sequence, the longest first, its first occurrence in each text.

    Example:
        >>> texts = ["so the old key is here", "The old key, is here!", "the old key is here"]
        >>> repeated_sequences(texts)
        [[(0, 3, 22), (1, 0, 20), (2, 0, 19)]]
    """
    words, text_ids = _words((*texts, *never))
    text_starts = np.searchsorted(text_ids, range(len(texts))).tolist()

    @cache
    def word_spans(text_id: int) -> list[tuple[int, int]]:
        return [word.span() for word in WORD.finditer(texts[text_id])]

    def occurrence(position: int, length: int) -> Occurrence:
        text_id = int(text_ids[position])
        first = position - text_starts[text_id]
        spans = word_spans(text_id)
        return text_id, spans[first][0], spans[first + length - 1][1]

    covered = bytearray(words.size)
    result = []
    sequences = _sequences(words, text_ids, len(texts))
    for length, positions in sorted(sequences, key=lambda item: (-item[0], item[1])):
        free = [start for start in positions if not (covered[start] or covered[start + length - 1])]
        for start in free:
            covered[start : start + length] = b"\1" * length
        if free:
            result.append([occurrence(start, length) for start in positions])
    return result


def _words(texts: Sequence[str]) -> tuple[Integers, Integers]:
    """(n,) ids of all words, equal in any case, and the index of the text of each."""
    forms: dict[str, int] = {}
    rows = [[forms.setdefault(word, len(forms)) for word in WORD.findall(text)] for text in texts]
    folded: dict[str, int] = {}
    id_of_form = [folded.setdefault(form.casefold(), len(folded)) for form in forms]
    form_ids = np.fromiter(chain.from_iterable(rows), np.int64)
    text_ids = np.repeat(np.arange(len(rows)), np.array([*map(len, rows)], np.int64))
    return np.array(id_of_form, np.int64)[form_ids], text_ids


def _sequences(words: Integers, text_ids: Integers, total: int) -> Iterator[tuple[int, list[int]]]:
    """Length and positions of each sequence, one position per text.

    The first `total` texts are searched; the others are those of `never`.
    """
    positions, grams = _repeated_grams(words, text_ids, total)
    if not positions.size:
        return
    ranks = _ranks(positions, grams, words.size)
    order = positions[np.argsort(ranks[-1][positions])]
    common = _common_lengths(order, ranks).tolist()
    texts = text_ids[order]
    never = np.array(_spread(np.where(texts < total, 0, _UNLIMITED).tolist(), common))
    lengths = np.zeros(words.size + 1, np.int64)
    lengths[order] = _shared_lengths(texts.tolist(), common, total)
    size = lengths[order]
    maximal = lengths[order - 1] <= size  # the sequence from the word before ends earlier
    starts = np.sort(order[(texts < total) & maximal & (size > never)])
    size = lengths[starts]
    level = np.frexp(size)[1] - 1
    first, last = ranks[level, starts], ranks[level, starts + size - (1 << level)]
    groups: dict[tuple[int, ...], dict[int, int]] = {}
    columns = (text_ids[starts], starts, size, first, last)
    for text, start, *sequence in zip(*(column.tolist() for column in columns), strict=True):
        groups.setdefault(tuple(sequence), {}).setdefault(text, start)
    for (length, *_), by_text in groups.items():
        if len(by_text) >= LEAST_TEXTS:
            yield length + LEAST_WORDS - 1, list(by_text.values())


def _repeated_grams(words: Integers, text_ids: Integers, total: int) -> tuple[Integers, Integers]:
    """Positions of five-word sequences that three texts share, and the id of each sequence."""
    end = LEAST_WORDS - 1
    positions = np.flatnonzero(text_ids[end:] == text_ids[:-end])
    if not positions.size:
        return positions, positions
    pairs = _pair_ids(words[:-1], words[1:])
    grams = _pair_ids(_pair_ids(pairs[:-2], pairs[2:])[:-1], words[end:])
    inside = positions[text_ids[positions] < total]
    keys = np.sort(grams[inside] * total + text_ids[inside])  # np.unique would be ten times slower
    different = keys[np.diff(keys, prepend=-1) > 0]
    often = np.bincount(different // max(1, total), minlength=grams.max() + 1) >= LEAST_TEXTS
    positions = positions[often[grams[positions]]]
    return positions, grams[positions]


def _pair_ids(first: Integers, second: Integers) -> Integers:
    """Ids of pairs, in lexicographic order."""
    return np.unique(first * (second.max() + 1) + second, return_inverse=True)[1]


def _ranks(positions: Integers, grams: Integers, n_words: int) -> Integers:
    """(levels, total + 1) ranks of the 1, 2, 4… grams from each position, until all differ.

    A position without a repeated gram differs from all others, so no sequence crosses it.
    """
    table = np.arange(n_words, 2 * n_words + 1)
    table[positions] = np.unique(grams, return_inverse=True)[1]
    tables = [table]
    while table[positions].max() + 1 < positions.size:
        follows = table[np.minimum(positions + (1 << len(tables) - 1), n_words)]
        table = table.copy()
        table[positions] = _pair_ids(table[positions], follows)
        tables.append(table)
    return np.stack(tables)


def _common_lengths(order: Integers, ranks: Integers) -> Integers:
    """Number of grams that each suffix shares with the one before it in the order."""
    first, second = order[:-1].copy(), order[1:].copy()
    for level in reversed(range(len(ranks))):
        step = (ranks[level, first] == ranks[level, second]) * (1 << level)
        first += step
        second += step
    return np.append(0, second - order[1:])


def _shared_lengths(texts: Sequence[int], common: Sequence[int], total: int) -> list[int]:
    """The longest prefix of each suffix that three texts share."""
    smallest = [0] * len(texts)  # prefix of the shortest window of three texts that ends here
    recent: list[list[int]] = []  # text, and the prefix of all suffixes since its last one
    for rank, (text, shared) in enumerate(zip(texts, common, strict=True)):
        for entry in recent:
            entry[1] = min(entry[1], shared)
        if text < total:
            others = [entry for entry in recent if entry[0] != text]
            recent = [[text, _UNLIMITED], *others][:LEAST_TEXTS]
            if len(recent) == LEAST_TEXTS:
                smallest[rank] = recent[-1][1]
    return _spread(smallest, common)


def _spread(lengths: list[int], common: Sequence[int]) -> list[int]:
    """Extend each prefix length to the neighbouring suffixes that share the prefix."""
    ranks = range(1, len(lengths))
    for rank in ranks:
        if lengths[rank] < (least := min(lengths[rank - 1], common[rank])):
            lengths[rank] = least
    for rank in reversed(ranks):
        if lengths[rank - 1] < (least := min(lengths[rank], common[rank])):
            lengths[rank - 1] = least
    return lengths
