"""Documents with their users, labels and sources.

Documents live in an Arrow table, so that 20 million words are a few contiguous buffers and
never a list of Python strings.
"""

import gzip
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
import pyarrow.parquet
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.data.writing import replacing
from vestige.errors import DataError

COLUMNS = ("text", "user", "label", "source")
_ENDINGS = "End the name in .parquet, .jsonl or .jsonl.gz."
_ROWS_PER_CHUNK = 10_000


@dataclass(frozen=True)
class Rows:
    """Documents or utterances, a row each."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def take(self, indices: ArrayLike) -> Self:
        """The rows at the given places, in the given order.

        Args:
            indices: (k,) places in [0, len(self)); a place may come twice.

        Raises:
            ValueError: a place lies outside.
        """
        places = np.asarray(indices, dtype=np.int64).reshape(-1)
        if places.size and not 0 <= places.min() <= places.max() < len(self):
            raise ValueError(f"indices must lie in [0, {len(self)}), got {places}")
        return type(self)(self.table.take(pa.array(places)))

    def _parted(self, held_out: NDArray[np.bool_], keep: Sequence[int]) -> tuple[Self, Self]:
        """(the rest, the rows held out), of which those to keep are none."""
        if len(keep) and not 0 <= min(keep) <= max(keep) < len(self):
            raise ValueError(f"keep must lie in [0, {len(self)}), got {min(keep)} to {max(keep)}")
        held_out[list(keep)] = False
        return self.take(np.flatnonzero(~held_out)), self.take(np.flatnonzero(held_out))


@dataclass(frozen=True)
class Corpus(Rows):
    """Documents in order, each with an optional user, label and source.

    Attributes:
        table: column `text` (large_string); optional `user`, `label` and `source`
            (large_string), where the empty string means unknown. The source is what a document
            answers or translates; the text is then what a model predicts from it.

    Raises:
        DataError: a column is missing, is no text, or holds nulls.

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
        kept = [name for name in COLUMNS if name in self.table.column_names]
        columns = {name: _as_text(name, self.table[name]) for name in kept}
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
        """A corpus from any iterable, read once and a batch at a time.

        Args:
            texts: the documents.
            users: user ID per text.
            labels: a class for each document, as many as texts.
            sources: source text per text.

        Raises:
            ValueError: users, labels or sources are fewer or more than the texts.
            DataError: something in the iterables is not text.
        """
        columns = {"text": texts, "user": users, "label": labels, "source": sources}
        given = {name: iter(values) for name, values in columns.items() if values is not None}
        chunks: dict[str, list[pa.Array]] = {name: [] for name in given}
        while True:
            block = {name: list(islice(it, _ROWS_PER_CHUNK)) for name, it in given.items()}
            sizes = {name: len(values) for name, values in block.items()}
            if len(set(sizes.values())) > 1:
                raise ValueError(f"every document must have one of each; a batch has {sizes}")
            if not block["text"]:
                break
            for name, values in block.items():
                chunks[name].append(_text_array(name, values))
        empty = pa.large_string()
        return cls(pa.table({n: pa.chunked_array(c, type=empty) for n, c in chunks.items()}))

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
        """The class of each document, or None where there are none."""
        return self._column("label")

    @property
    def sources(self) -> list[str] | None:
        """Source text per document, or None."""
        return self._column("source")

    def owners(self) -> tuple[list[str], NDArray[np.int64]]:
        """Users in the order of their first documents, and the user's number per document.

        Returns:
            the names, and (len(self),) places among them.

        Raises:
            DataError: the corpus has no users.
        """
        if "user" not in self.table.column_names:
            raise DataError(
                "the corpus has no users",
                remedy="Pass the user column with --user.",
            )
        codes = pc.dictionary_encode(self.table["user"]).combine_chunks()
        places = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return codes.dictionary.to_pylist(), places

    def __add__(self, other: "Corpus") -> "Corpus":
        return Corpus.concatenate([self, other])

    @classmethod
    def concatenate(cls, parts: Sequence["Corpus"]) -> Self:
        """One corpus after the other, with the columns that all of them have.

        Raises:
            ValueError: there are no parts.
        """
        if not parts:
            raise ValueError(f"parts must be at least one, got {parts}")
        tables = [part.table for part in parts]
        shared = [n for n in COLUMNS if all(n in table.column_names for table in tables)]
        return cls(pa.concat_tables([table.select(shared) for table in tables]))

    def split(
        self, fraction: float, *, seed: int, by_user: bool = False, keep: Sequence[int] = ()
    ) -> tuple["Corpus", "Corpus"]:
        """Hold out a random part; both parts keep the documents' order.

        One document more or less draws all of them anew: where a guarantee is claimed of each,
        take `division.divide`.

        Args:
            fraction: share of documents (of users, with `by_user`) to hold out, in [0, 1).
            seed: decides which.
            by_user: no user has documents in both parts.
            keep: places of documents that are never held out, such as planted canaries.

        Returns:
            (the rest, the part held out).

        Raises:
            ValueError: the fraction is out of range, or a place lies outside the corpus.
            DataError: `by_user` on a corpus without users.
        """
        _validate.fraction(fraction=fraction)
        return self._parted(self._draw(fraction, np.random.default_rng(seed), by_user), keep)

    def fingerprint(self) -> str:
        """SHA-256 (hex) over every column's name and contents, however the table is chunked.

        A column that the corpus does not have is ignored.
        """
        digest = hashlib.sha256(b"vestige corpus 1")
        for name in self.table.column_names:
            lengths, contents = hashlib.sha256(), hashlib.sha256()
            for chunk in self.table[name].chunks:
                lengths.update(_lengths(chunk).tobytes())
                contents.update(_contents(chunk))
            digest.update(name.encode() + lengths.digest() + contents.digest())
        return digest.hexdigest()

    def _column(self, name: str) -> list[str] | None:
        if name not in self.table.column_names:
            return None
        values: list[str] = self.table[name].to_pylist()
        return values

    def _draw(
        self, fraction: float, generator: np.random.Generator, by_user: bool
    ) -> NDArray[np.bool_]:
        owner = self.owners()[1] if by_user else np.arange(len(self))
        owners = int(owner.max()) + 1 if owner.size else 0
        drawn = np.zeros(owners, dtype=bool)
        drawn[generator.permutation(owners)[: round(fraction * owners)]] = True
        held_out: NDArray[np.bool_] = drawn[owner]
        return held_out


def _text_array(name: str, values: list[str]) -> pa.Array:
    try:
        return pa.array(values, type=pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise DataError(
            f"a value of the {name}s is not valid text: {_strange(values)}",
            remedy="Convert every value to str, without lone surrogates.",
        ) from error


def _strange(values: Sequence[object]) -> str:
    """Place and type of the first value that is no text."""
    for number, value in enumerate(values, 1):
        if not isinstance(value, str):
            return f"number {number} of a batch is {type(value).__name__}"
        if any("\ud800" <= character <= "\udfff" for character in value):
            return f"number {number} of a batch has half of a surrogate pair"
    return "they are too long"


def _as_text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if not is_text:
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


def _lengths(chunk: pa.LargeStringArray) -> NDArray[np.int64]:
    return np.asarray(pc.binary_length(chunk), dtype=np.int64)


def _contents(chunk: pa.LargeStringArray) -> memoryview:
    if not len(chunk):
        return memoryview(b"")
    _, offsets, data = chunk.buffers()
    bounds = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    return memoryview(data if data is not None else b"")[bounds[0] : bounds[-1]]


def write_corpus(
    corpus: Corpus, path: Path, *, progress: Callable[[int], None] | None = None
) -> None:
    """Write a corpus in the format of the file's ending, atomically, for `read_corpus`.

    Args:
        corpus: its columns are called `text`, `user`, `label` and `source` in the file.
            Documents that are blank are written, and left out by those who read tables.
        path: `.parquet`, `.jsonl`, `.jsonl.gz`, or `.txt` for a document a line, which keeps
            the texts only.
        progress: called with the number of documents written so far.

    Raises:
        DataError: the name says no format, or a document does not fit on a line of a `.txt`.
    """
    path = Path(path)
    if not path.name.endswith((".parquet", ".jsonl", ".jsonl.gz", ".txt")):
        raise DataError(f"the name of {path} ends in no known format", remedy=_ENDINGS)
    with replacing(path) as file:
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(corpus.table, file)
        elif path.suffix == ".gz":
            # Without name and time in its header, equal corpora make equal files.
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                _write_lines(corpus, packed.write, _json_lines, progress)
        else:
            _write_lines(
                corpus, file.write, _json_lines if path.suffix == ".jsonl" else _texts, progress
            )


def _write_lines(
    corpus: Corpus,
    write: Callable[[bytes], object],
    lines: Callable[[pa.RecordBatch, int], list[str]],
    progress: Callable[[int], None] | None,
) -> None:
    done = 0
    for batch in corpus.table.to_batches(max_chunksize=1000):
        write("".join(f"{line}\n" for line in lines(batch, done)).encode())
        done += len(batch)
        if progress is not None:
            progress(done)


def _json_lines(batch: pa.RecordBatch, _: int) -> list[str]:
    names = batch.schema.names
    rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]


def _texts(batch: pa.RecordBatch, before: int) -> list[str]:
    texts: list[str] = batch["text"].to_pylist()
    for number, text in enumerate(texts, before + 1):
        if not text or text != text.strip() or "\n" in text:
            raise DataError(
                f"document {number} does not fit on one line: it is blank, begins or ends with a "
                "blank, or has a line break",
                remedy=_ENDINGS,
            )
    return texts
