"""Vectors of a fastText model (`.bin`), also of words that it has not seen.

Bojanowski et al. (2017), "Enriching Word Vectors with Subword Information", section 3.2. A word's
vector is the mean of its own row and the rows of its character n-grams, of which many share a
row: an n-gram's row is its hash (FNV-1a over signed bytes) modulo the number of buckets.

Differs from the paper: the mean, not the sum, as in the released program. The layout is that of
its version 12: magic and version; twelve settings and a threshold; the dictionary; the input
matrix, of which only the rows that are asked for are read; the output matrix.
"""

import mmap
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.data.text_file import existing
from vestige.errors import DataError

MAGIC, VERSION = 793712314, 12
_AGAIN = "Download or write it again."
_UNSIGNED = 0xFFFFFFFF


def read_fasttext_model(
    path: Path, wanted: Collection[str] | None
) -> tuple[list[str], NDArray[np.float32]]:
    """Vectors of the wanted words, or of all words in the model's dictionary.

    Args:
        path: the `.bin` file.
        wanted: words, or None.

    Returns:
        (w words, float32 (w, d) vectors): the dictionary's in its order, then others in theirs.
        A word outside of the dictionary of a model without n-grams is left out.

    Raises:
        DataError: it is no fastText model, is quantised, of another version, damaged or cut short.
    """
    model = _opened(path, wanted)
    words = list(model.words)
    if wanted is not None:
        words += sorted(set(wanted) - model.words.keys())
    rows = {word: found for word in words if (found := model.rows(word))}
    vectors = np.empty((len(rows), model.matrix.shape[1]), dtype=np.float32)
    for place, found in enumerate(rows.values()):
        vectors[place] = model.matrix[found].mean(axis=0, dtype=np.float64)
        if not np.isfinite(vectors[place]).all():
            raise DataError(f"{path}: the vector of word {place + 1} is not finite", remedy=_AGAIN)
    return list(rows), vectors


def ngrams(word: str, shortest: int, longest: int) -> Iterator[str]:
    """The character n-grams of a word between angle brackets, a bracket by itself left out.

    Example:
        >>> list(ngrams("as", 2, 3))
        ['<a', '<as', 'as', 'as>', 's>']
    """
    text = f"<{word}>"
    for start in range(len(text)):
        for length in range(max(shortest, 1), min(longest, len(text) - start) + 1):
            if length > 1 or 0 < start < len(text) - 1:
                yield text[start : start + length]


def ngram_hash(ngram: str) -> int:
    """FNV-1a over 32 bits with signed bytes, as in fastText.

    Example:
        >>> hex(ngram_hash("a"))
        '0xe40c292c'
    """
    value = 0x811C9DC5
    for byte in ngram.encode():
        signed = (byte ^ 0x80) - 0x80
        value = ((value ^ (signed & _UNSIGNED)) * 0x01000193) & _UNSIGNED
    return value


@dataclass(frozen=True)
class _Model:
    words: dict[str, int]  # the dictionary, or what is wanted of it, and each word's row
    entries: int  # words in the whole dictionary: the row of the first bucket
    buckets: int
    lengths: tuple[int, int]  # of the shortest and the longest n-gram
    matrix: NDArray[np.float32]  # mapped

    def rows(self, word: str) -> list[int]:
        own = [self.words[word]] if word in self.words else []
        if not self.buckets or word == "</s>":
            return own
        hashes = (ngram_hash(ngram) for ngram in ngrams(word, *self.lengths))
        return own + [self.entries + value % self.buckets for value in hashes]


class _Reader:
    """Reads a mapped file from front to back."""

    def __init__(self, path: Path) -> None:
        with existing(path).open("rb") as file:
            if not path.stat().st_size:
                raise DataError(f"{path} is empty", remedy=_AGAIN)
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.path, self.place = path, 0

    def take(self, layout: str, what: str) -> tuple[Any, ...]:
        values = struct.Struct(f"<{layout}")
        self.need(values.size, what)
        self.place += values.size
        return values.unpack_from(self.bytes, self.place - values.size)

    def take_word(self) -> bytes:
        end = self.bytes.find(b"\0", self.place)
        self.need(1 if end < 0 else end + 1 - self.place, "dictionary", short=end < 0)
        word = self.bytes[self.place : end]
        self.place = end + 1
        return word

    def take_matrix(self, what: str) -> NDArray[np.float32]:
        rows, columns = self.take("qq", what)
        if rows < 0 or columns < 0:
            raise self.damaged(f"the {what} has {rows} rows and {columns} columns")
        self.need(4 * rows * columns, what)
        values = np.frombuffer(self.bytes, np.dtype("<f4"), rows * columns, self.place)
        self.place += values.nbytes
        return values.reshape(rows, columns)

    def need(self, size: int, what: str, *, short: bool = False) -> None:
        if short or self.place + size > len(self.bytes):
            raise DataError(f"{self.path} is incomplete: its {what} is cut short", remedy=_AGAIN)

    def damaged(self, problem: str) -> DataError:
        return DataError(f"{self.path} is damaged: {problem}", remedy=_AGAIN)


def _opened(path: Path, wanted: Collection[str] | None) -> _Model:
    reader = _Reader(path)
    _check_kind(reader)
    width, *_, buckets, shortest, longest, _, _ = reader.take("12id", "settings")
    if width < 1 or buckets < 0:
        raise reader.damaged(f"it states {width} dimensions and {buckets} buckets")
    entries, words, pruned = _dictionary(reader, wanted)
    if pruned or reader.take("?", "input matrix")[0]:
        raise DataError(
            f"{path} is a quantized fastText model, so its vectors are approximate",
            remedy="Pass the model before `fasttext quantize`, or its .vec file.",
        )
    matrix = reader.take_matrix("input matrix")
    if matrix.shape != (entries + buckets, width):
        raise reader.damaged(
            f"its input matrix is {matrix.shape}; expected {entries} words, {buckets} buckets and "
            f"{width} dimensions"
        )
    reader.take("?", "output matrix")
    reader.take_matrix("output matrix")  # not used, but its end is the file's
    return _Model(words, entries, buckets, (shortest, longest), matrix)


def _check_kind(reader: _Reader) -> None:
    magic, version = reader.take("ii", "beginning")
    if magic != MAGIC:
        raise DataError(
            f"{reader.path} is not a fastText model: it begins with {magic}, not {MAGIC}",
            remedy="Convert binary word2vec files to text (.vec).",
        )
    if version != VERSION:
        raise DataError(
            f"{reader.path} has version {version}; version {VERSION} is needed",
            remedy="Download a newer one, or pass its .vec file.",
        )


def _dictionary(
    reader: _Reader, wanted: Collection[str] | None
) -> tuple[int, dict[str, int], bool]:
    """(number of words, rows of the wanted ones, whether rows were pruned)."""
    size, words, _, _, pruned = reader.take("iiiqq", "dictionary")
    if not 0 <= words <= size:
        raise reader.damaged(f"its dictionary has {size} entries, {words} of them words")
    sought = None if wanted is None else {word.encode() for word in wanted}
    found: dict[str, int] = {}
    for row in range(size):
        word = reader.take_word()
        reader.take("qb", "dictionary")  # how often it came; whether it is a label
        if row < words and (sought is None or word in sought):  # labels stand last
            found.setdefault(_decoded(word, reader.path, row), row)
    return words, found, pruned >= 0


def _decoded(word: bytes, path: Path, row: int) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: word {row + 1} of its dictionary is not UTF-8",
            remedy="Pass the words that are needed.",
        ) from error
