"""Encoding of a corpus as one array of ids, in memory or mapped from disk.

Ids are int32 in a NumPy file that is mapped, never read whole; each document ends with the
end-of-text token. `encoded.json` is removed first and written last: if it exists, the arrays beside
it are whole.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vestige.data.corpus import Corpus
from vestige.data.files import Count, Excerpt, Sha256, read_json, require_regular
from vestige.data.vocabulary import Vocabulary
from vestige.data.writing import LOCK, discard, locked, replacing, write_text
from vestige.errors import DataError

_PIECE = 1 << 22
_AGAIN = "Encode the corpus again."


@dataclass(frozen=True)
class EncodedCorpus:
    """A corpus as ids.

    Attributes:
        tokens: (n,) int32 ids, each document followed by the end-of-text token; mapped from
            disk where the corpus was encoded into a folder.
        offsets: (d + 1,) int64; document i is tokens[offsets[i]:offsets[i + 1]].
        users: (d,) int32, user per document as a place in `names`; None without users.
        names: the users, in alphabetical order.
    """

    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]
    users: NDArray[np.int32] | None = None
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def document(self, index: int) -> NDArray[np.int32]:
        """The ids of one document, its end-of-text token included."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


class _File(Excerpt):
    """Schema of encoded.json."""

    format: Literal["vestige-encoded-3"]
    corpus: Sha256
    vocabulary: Sha256
    tokens: Count
    checksum: Count
    documents: Count
    users: list[str] | None


def encode(
    corpus: Corpus,
    vocabulary: Vocabulary,
    directory: Path | None = None,
    *,
    replace: bool = True,
    progress: Callable[[int], None] | None = None,
) -> EncodedCorpus:
    """The corpus as ids, a batch of documents at a time.

    Args:
        corpus: to encode.
        vocabulary: of the token ids.
        directory: where `tokens.npy`, `offsets.npy` and `encoded.json` are written; an
            encoding of the same corpus by the same vocabulary is used again. None keeps the
            arrays in memory.
        replace: replace any other encoding in the directory.
        progress: called with the number of documents done so far.

    Raises:
        DataError: the corpus is empty, or the folder holds an encoding of something else that
            may not be replaced.
    """
    if not len(corpus):
        raise DataError("an empty corpus has no tokens", remedy="Pass a corpus with documents.")
    batches = _encoded_batches(corpus, vocabulary, progress)
    if directory is None:
        pieces, lengths = zip(*batches, strict=True)
        return EncodedCorpus(np.concatenate(pieces), _offsets(lengths), *_users(corpus))
    directory = Path(directory)
    identity = {"corpus": corpus.fingerprint(), "vocabulary": vocabulary.fingerprint()}
    found = _found(directory, identity)
    if found is None:
        record = _record(directory)
        if not replace and record is not None and not _has(record, identity):
            raise DataError(
                f"{directory} has an encoding of other text or of another vocabulary",
                remedy="Pass the same text and options, or another directory.",
            )
        with locked(directory / LOCK):
            found = _found(directory, identity)  # another process may have encoded it meanwhile
            if found is None:
                _write(directory, batches, identity, *_users(corpus))
    discard(directory / LOCK)
    return found or load_encoded(directory)


def load_encoded(directory: Path) -> EncodedCorpus:
    """The encoding in a folder, mapped from disk; DataError if a file is missing or changed."""
    directory = Path(directory)
    record = _record(directory)
    if record is None:
        raise DataError(
            f"{directory} has no complete encoding (no valid encoded.json)", remedy=_AGAIN
        )
    tokens = _map(directory / "tokens.npy", np.int32)
    offsets = _map(directory / "offsets.npy", np.int64)
    if len(tokens) != record.tokens:
        raise _broken(directory / "tokens.npy", "encoded.json states another number of tokens")
    checksum = 0
    for begin in range(0, len(tokens), _PIECE):  # mapped: never all of it in memory
        checksum = zlib.crc32(np.ascontiguousarray(tokens[begin : begin + _PIECE]).data, checksum)
    if checksum != record.checksum:
        raise _broken(directory / "tokens.npy", "encoded.json states other tokens")
    fits = len(offsets) - 1 == record.documents > 0 == offsets[0] and offsets[-1] == len(tokens)
    if not fits or bool((np.diff(offsets) < 1).any()):  # each ends with its end-of-text token
        raise _broken(directory / "offsets.npy", "it does not fit encoded.json and tokens.npy")
    if record.users is None:
        return EncodedCorpus(tokens, np.array(offsets))
    users, names = _map(directory / "users.npy", np.int32), tuple(record.users)
    if len(users) != len(offsets) - 1 or not (0 <= users.min() <= users.max() < len(names)):
        raise _broken(directory / "users.npy", "it does not fit encoded.json and offsets.npy")
    return EncodedCorpus(tokens, np.array(offsets), np.array(users), names)


def _encoded_batches(
    corpus: Corpus, vocabulary: Vocabulary, progress: Callable[[int], None] | None
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    done, end = 0, [vocabulary.eos_id]
    for texts in corpus.batches():
        rows = vocabulary.encode_batch(texts)
        lengths = np.array([len(row) + 1 for row in rows], dtype=np.int64)
        flat = chain.from_iterable(chain(row, end) for row in rows)
        yield np.fromiter(flat, dtype=np.int32, count=int(lengths.sum())), lengths
        done += len(texts)
        if progress is not None:
            progress(done)


def _offsets(lengths: tuple[NDArray[np.int64], ...]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)


def _users(corpus: Corpus) -> tuple[NDArray[np.int32] | None, tuple[str, ...]]:
    """User number per document, users in alphabetical order."""
    if "user" not in corpus.table.column_names:
        return None, ()
    names, places = corpus.owners()
    order = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.empty(len(names), np.int32)
    ranks[order] = np.arange(len(names))
    return ranks[places], tuple(names[place] for place in order)


def _write(
    directory: Path,
    batches: Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]],
    identity: dict[str, str],
    users: NDArray[np.int32] | None,
    names: tuple[str, ...],
) -> None:
    lengths: list[NDArray[np.int64]] = []
    with (
        replacing(directory / "tokens.npy") as tokens_file,
        replacing(directory / "offsets.npy") as offsets_file,
    ):
        total = checksum = 0
        _npy_header(tokens_file, 0)
        for tokens, batch_lengths in batches:
            tokens_file.write(tokens.tobytes())
            checksum = zlib.crc32(tokens.data, checksum)
            lengths.append(batch_lengths)
            total += tokens.size
        # NumPy pads its header so that the length of the array can be put in afterwards.
        tokens_file.seek(0)
        _npy_header(tokens_file, total)
        tokens_file.seek(0, 2)
        offsets = _offsets(tuple(lengths))
        np.save(offsets_file, offsets)
        (directory / "encoded.json").unlink(missing_ok=True)
    if users is not None:
        with replacing(directory / "users.npy") as users_file:
            np.save(users_file, users)
    record = {
        "format": "vestige-encoded-3",
        **identity,
        "tokens": total,
        "checksum": checksum,
        "documents": len(offsets) - 1,
        "users": None if users is None else list(names),
    }
    write_text(directory / "encoded.json", json.dumps(record, indent=2))


def _npy_header(file: BinaryIO, size: int) -> None:
    header = {"descr": "<i4", "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(file, header)


def _record(directory: Path) -> _File | None:
    try:
        return read_json(directory / "encoded.json", _File, error=DataError, remedy=_AGAIN)
    except DataError:
        return None


def _has(record: _File, identity: dict[str, str]) -> bool:
    return {"corpus": record.corpus, "vocabulary": record.vocabulary} == identity


def _found(directory: Path, identity: dict[str, str]) -> EncodedCorpus | None:
    """The whole encoding of a corpus by a vocabulary in a folder."""
    record = _record(directory)
    if record is None or not _has(record, identity):
        return None
    try:
        return load_encoded(directory)
    except DataError:
        return None


def _map(path: Path, dtype: type) -> NDArray[Any]:
    require_regular(path, error=DataError, remedy=_AGAIN)
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # from EOFError to the TokenError of what parses its header
        raise _broken(path, "it is not an array") from error
    if array.dtype != dtype or array.ndim != 1:
        raise _broken(path, f"it has {array.dtype} of shape {array.shape}")
    return array


def _broken(path: Path, reason: str) -> DataError:
    return DataError(f"{path} is missing, incomplete or changed: {reason}", remedy=_AGAIN)


# Pairs of source and target texts


@dataclass(frozen=True)
class EncodedPairs:
    """Target i answers or translates source i; ValueError if they are not as many."""

    sources: EncodedCorpus
    targets: EncodedCorpus

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.targets):
            raise ValueError(
                f"sources must be as many as targets, {len(self.targets)}, got {len(self.sources)}"
            )

    def __len__(self) -> int:
        return len(self.targets)


def encode_pairs(
    corpus: Corpus, source_vocabulary: Vocabulary, vocabulary: Vocabulary
) -> EncodedPairs:
    """Encode a corpus with sources, in memory; its documents are the targets.

    Example:
        >>> from vestige.data.vocabulary import WordVocabulary
        >>> french, english = (WordVocabulary(("<unk>", "<eos>", w)) for w in ("oui", "yes"))
        >>> corpus = Corpus.from_texts(["yes", "no"], sources=["oui oui", "non"])
        >>> pairs = encode_pairs(corpus, french, english)
        >>> pairs.sources.tokens.tolist(), pairs.targets.tokens.tolist()
        ([2, 2, 1, 0, 1], [2, 1, 0, 1])
    """
    return EncodedPairs(encode(sources_of(corpus), source_vocabulary), encode(corpus, vocabulary))


def sources_of(corpus: Corpus) -> Corpus:
    """The sources of a corpus as documents; DataError if it has none."""
    if "source" not in corpus.table.column_names:
        raise DataError(
            "the corpus has no source texts",
            remedy="Pass their column with --source.",
        )
    return Corpus(pa.table({"text": corpus.table["source"]}))
