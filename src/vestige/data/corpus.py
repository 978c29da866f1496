"""Documents with their users, labels and sources.

Documents are in an Arrow table: 20 million words are a few contiguous buffers and never a list of
Python strings.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.data.writing import replacing
from vestige.errors import DataError

COLUMNS = ("text", "user", "label", "source")
_ROWS_PER_CHUNK = 10_000


@dataclass(frozen=True)
class Rows:
    """Documents or utterances, a row each."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def take(self, indices: ArrayLike) -> Self:
        """The rows at (k,) indices in [0, len(self)); ValueError for one outside."""
        rows = np.asarray(indices, dtype=np.int64).reshape(-1)
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise ValueError(f"indices must lie in [0, {len(self)}), got {rows}")
        return type(self)(self.table.take(pa.array(rows)))

    def keep_mask(self, keep: Sequence[int]) -> NDArray[np.bool_]:
        """(len(self),) whether an index is in `keep`; ValueError for one outside."""
        if len(keep) and not 0 <= min(keep) <= max(keep) < len(self):
            raise ValueError(f"keep must lie in [0, {len(self)}), got {min(keep)} to {max(keep)}")
        return np.isin(np.arange(len(self)), np.asarray(keep, dtype=np.int64))

    def split(self, fraction: float, *, seed: int, keep: Sequence[int] = ()) -> tuple[Self, Self]:
        """(the rest, a random share of the rows), both in order.

        One row more or less changes the choice of all rows. For a guarantee for each row, use
        `division.divide`.

        Args:
            fraction: share to hold out, in [0, 1).
            seed: random seed of the choice.
            keep: indices that are never held out, such as planted canaries.
        """
        _validate.fraction(fraction=fraction)
        held_out = np.zeros(len(self), dtype=bool)
        order = np.random.default_rng(seed).permutation(len(self))
        held_out[order[: round(fraction * len(self))]] = True
        held_out &= ~self.keep_mask(keep)
        return self.take(np.flatnonzero(~held_out)), self.take(np.flatnonzero(held_out))


@dataclass(frozen=True)
class Corpus(Rows):
    """Documents in order, each with an optional user, label and source.

    Attributes:
        table: column `text` (large_string); optional `user`, `label` and `source`
            (large_string), where the empty string means unknown. A source is the text that a
            document answers or translates.

    Raises:
        DataError: a column is missing, is no text, or has nulls.

    Example:
        >>> corpus = Corpus.from_texts(["to be", "or not"], users=["ann", "bob"])
        >>> len(corpus), list(corpus), corpus.users
        (2, ['to be', 'or not'], ['ann', 'bob'])
    """

    table: pa.Table

    def __post_init__(self) -> None:
        if "text" not in self.table.column_names:
            raise DataError(
                f'the corpus has no column "text"; its columns are {self.table.column_names}',
                remedy='Rename the text column to "text".',
            )
        names = [name for name in COLUMNS if name in self.table.column_names]
        columns = {name: _as_text(name, self.table[name]) for name in names}
        object.__setattr__(self, "table", pa.table(columns))

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        *,
        users: Iterable[str] | None = None,
        labels: Iterable[str] | None = None,
        sources: Iterable[str] | None = None,
    ) -> Self:
        """A corpus from iterables of equal length, read once and a batch at a time.

        Raises:
            ValueError: users, labels or sources are fewer or more than the texts.
            DataError: a value is not text.
        """
        columns = {"text": texts, "user": users, "label": labels, "source": sources}
        iterators = {name: iter(values) for name, values in columns.items() if values is not None}
        chunks: dict[str, list[pa.Array]] = {name: [] for name in iterators}
        while True:
            block = {
                name: list(islice(values, _ROWS_PER_CHUNK)) for name, values in iterators.items()
            }
            sizes = {name: len(values) for name, values in block.items()}
            if len(set(sizes.values())) > 1:
                raise ValueError(f"every document must have one of each; a batch has {sizes}")
            if not block["text"]:
                break
            for name, values in block.items():
                chunks[name].append(_text_array(name, values))
        kind = pa.large_string()
        return cls(pa.table({n: pa.chunked_array(c, type=kind) for n, c in chunks.items()}))

    def __iter__(self) -> Iterator[str]:
        for batch in self.batches():
            yield from batch

    def batches(self, size: int = 1000) -> Iterator[list[str]]:
        """The texts in lists of at most `size`; only one list is in memory at a time."""
        _validate.positive(size=size)
        for start in range(0, len(self), size):
            yield self.table["text"].slice(start, size).to_pylist()

    @property
    def users(self) -> list[str] | None:
        """User ID per document, or None."""
        return self._column("user")

    @property
    def labels(self) -> list[str] | None:
        """Class per document, or None."""
        return self._column("label")

    @property
    def sources(self) -> list[str] | None:
        """Source text per document, or None."""
        return self._column("source")

    def _column(self, name: str) -> list[str] | None:
        if name not in self.table.column_names:
            return None
        values: list[str] = self.table[name].to_pylist()
        return values

    def user_indices(self) -> tuple[list[str], NDArray[np.int64]]:
        """(users in order of appearance, (len(self),) user index of each document).

        DataError if the corpus has no users.
        """
        if "user" not in self.table.column_names:
            raise DataError(
                "the corpus has no users",
                remedy="Pass the user column with --user.",
            )
        codes = pc.dictionary_encode(self.table["user"]).combine_chunks()
        indices = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return codes.dictionary.to_pylist(), indices

    def __add__(self, other: "Corpus") -> "Corpus":
        return Corpus.concatenate([self, other])

    @classmethod
    def concatenate(cls, parts: Sequence["Corpus"]) -> Self:
        """One or more corpora in sequence, with the columns that all of them have."""
        if not parts:
            raise ValueError(f"parts must be at least one, got {parts}")
        tables = [part.table for part in parts]
        shared = [n for n in COLUMNS if all(n in table.column_names for table in tables)]
        return cls(pa.concat_tables([table.select(shared) for table in tables]))

    def fingerprint(self) -> str:
        """SHA-256 (hex) over every column's name and contents, however the table is chunked."""
        digest = hashlib.sha256(b"vestige corpus 1")
        for name in self.table.column_names:
            lengths, contents = hashlib.sha256(), hashlib.sha256()
            for chunk in self.table[name].chunks:
                lengths.update(np.asarray(pc.binary_length(chunk), dtype=np.int64).tobytes())
                contents.update(_contents(chunk))
            digest.update(name.encode() + lengths.digest() + contents.digest())
        return digest.hexdigest()


def _text_array(name: str, values: list[str]) -> pa.Array:
    try:
        return pa.array(values, type=pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise DataError(
            f"a value of the {name}s is not valid text: {_invalid_value(values)}",
            remedy="Convert every value to str, without lone surrogates.",
        ) from error


def _invalid_value(values: Sequence[object]) -> str:
    """Number and type of the first value that is no text."""
    for number, value in enumerate(values, 1):
        if not isinstance(value, str):
            return f"number {number} of a batch is {type(value).__name__}"
        if any("\ud800" <= character <= "\udfff" for character in value):
            return f"number {number} of a batch has half of a surrogate pair"
    return "they are too long"


def _as_text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise DataError(
            f'column "{name}" has type {column.type}, not text',
            remedy="Choose another column, or convert this one to strings.",
        )
    if column.null_count:
        raise DataError(
            f'column "{name}" has {column.null_count} empty (null) entries',
            remedy="Remove those rows or fill them in.",
        )
    return column.cast(pa.large_string())


def _contents(chunk: pa.LargeStringArray) -> memoryview:
    if not len(chunk):
        return memoryview(b"")
    _, offsets, data = chunk.buffers()
    bounds = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    return memoryview(data if data is not None else b"")[bounds[0] : bounds[-1]]


def write_corpus(
    corpus: Corpus, path: Path, *, progress: Callable[[int], None] | None = None
) -> None:
    """Write a corpus as JSON lines for `read_corpus`, whole or not at all.

    Args:
        corpus: its columns keep their names. Blank documents are written, but not read.
        path: a name that ends in `.jsonl`.
        progress: called with the number of documents written.
    """
    path, done = Path(path), 0
    if path.suffix != ".jsonl":
        raise DataError(f"the name of {path} ends in no known format", remedy="End it in .jsonl.")
    with replacing(path) as file:
        for batch in corpus.table.to_batches(max_chunksize=1000):
            rows = (json.dumps(row, ensure_ascii=False) for row in batch.to_pylist())
            file.write("".join(f"{row}\n" for row in rows).encode())
            done += len(batch)
            if progress is not None:
                progress(done)
