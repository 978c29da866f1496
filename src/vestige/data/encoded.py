"""A corpus as one array of token ids, in memory or mapped from disk.

Ids are int32 in a NumPy file that is mapped, never read whole. Each document ends with the
end-of-text token. `encoded.json` is removed first and written last: if it exists, the arrays in its
folder are complete.
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
from vestige.data.writing import LOCK, remove_stale_lock, replacing, wait_for_lock, write_text
from vestige.errors import DataError

_CHECKSUM_BLOCK = 1 << 22  # tokens
_REMEDY = "Encode the corpus again."


@dataclass(frozen=True)
class EncodedCorpus:
    """A corpus as ids.

    Attributes:
        tokens: (n,) int32 ids, each document followed by the end-of-text token; mapped from
            disk if the corpus was encoded into a folder.
        offsets: (d + 1,) int64; document i is tokens[offsets[i]:offsets[i + 1]].
        users: (d,) int32, index in `names` of each document's user; None without users.
        names: the users, in alphabetical order.
    """

    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]
    users: NDArray[np.int32] | None = None
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def document(self, index: int) -> NDArray[np.int32]:
        """The ids of one document, with its end-of-text token."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


class _Description(Excerpt):
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
        directory: folder for `tokens.npy`, `offsets.npy` and `encoded.json`; an encoding of the
            same corpus with the same vocabulary is reused. None keeps the arrays in memory.
        replace: replace any other encoding in the directory.
        progress: called with the number of encoded documents.

    Raises:
        DataError: the corpus is empty, or the folder has an encoding of another corpus that may
            not be replaced.
    """
    if not len(corpus):
        raise DataError("an empty corpus has no tokens", remedy="Pass a corpus with documents.")
    batches = _encoded_batches(corpus, vocabulary, progress)
    if directory is None:
        tokens, lengths = zip(*batches, strict=True)
        return EncodedCorpus(np.concatenate(tokens), _offsets(lengths), *_users(corpus))
    directory = Path(directory)
    fingerprints = {"corpus": corpus.fingerprint(), "vocabulary": vocabulary.fingerprint()}
    cached = _load_cached(directory, fingerprints)
    if cached is None:
        description = _read_description(directory)
        if not (replace or description is None or _describes(description, fingerprints)):
            raise DataError(
                f"{directory} has an encoding of other text or of another vocabulary",
                remedy="Pass the same text and options, or another directory.",
            )
        with wait_for_lock(directory / LOCK):
            cached = _load_cached(directory, fingerprints)  # by another process in the meantime
            if cached is None:
                _write(directory, batches, fingerprints, *_users(corpus))
    remove_stale_lock(directory / LOCK)
    return cached or load_encoded(directory)


def load_encoded(directory: Path) -> EncodedCorpus:
    """The encoding in a folder, mapped from disk; DataError if a file is missing or changed."""
    directory = Path(directory)
    description = _read_description(directory)
    if description is None:
        raise DataError(
            f"{directory} has no complete encoding (no valid encoded.json)", remedy=_REMEDY
        )
    tokens = _map(directory / "tokens.npy", np.int32)
    offsets = _map(directory / "offsets.npy", np.int64)
    if len(tokens) != description.tokens:
        raise _broken(directory / "tokens.npy", "encoded.json states another number of tokens")
    checksum = 0
    for start in range(0, len(tokens), _CHECKSUM_BLOCK):  # never all of the file in memory
        block = tokens[start : start + _CHECKSUM_BLOCK]
        checksum = zlib.crc32(np.ascontiguousarray(block).data, checksum)
    if checksum != description.checksum:
        raise _broken(directory / "tokens.npy", "encoded.json states other tokens")
    documents = len(offsets) - 1
    consistent = (
        documents == description.documents > 0
        and offsets[0] == 0
        and offsets[-1] == len(tokens)
        and bool((np.diff(offsets) >= 1).all())  # each document has its end-of-text token
    )
    if not consistent:
        raise _broken(directory / "offsets.npy", "it does not fit encoded.json and tokens.npy")
    if description.users is None:
        return EncodedCorpus(tokens, np.array(offsets))
    users, names = _map(directory / "users.npy", np.int32), tuple(description.users)
    if len(users) != documents or not 0 <= users.min() <= users.max() < len(names):
        raise _broken(directory / "users.npy", "it does not fit encoded.json and offsets.npy")
    return EncodedCorpus(tokens, np.array(offsets), np.array(users), names)


def _encoded_batches(
    corpus: Corpus, vocabulary: Vocabulary, progress: Callable[[int], None] | None
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """(ids, length of each document) of each batch."""
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
    """(user index of each document, users in alphabetical order)."""
    if "user" not in corpus.table.column_names:
        return None, ()
    names, indices = corpus.user_indices()
    order = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.empty(len(names), np.int32)
    ranks[order] = np.arange(len(names))
    return ranks[indices], tuple(names[index] for index in order)


def _write(
    directory: Path,
    batches: Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]],
    fingerprints: dict[str, str],
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
        # NumPy pads the header, so that it can be overwritten with the final length.
        tokens_file.seek(0)
        _npy_header(tokens_file, total)
        tokens_file.seek(0, 2)
        offsets = _offsets(tuple(lengths))
        np.save(offsets_file, offsets)
        (directory / "encoded.json").unlink(missing_ok=True)
    if users is not None:
        with replacing(directory / "users.npy") as users_file:
            np.save(users_file, users)
    description = {
        "format": "vestige-encoded-3",
        **fingerprints,
        "tokens": total,
        "checksum": checksum,
        "documents": len(offsets) - 1,
        "users": None if users is None else list(names),
    }
    write_text(directory / "encoded.json", json.dumps(description, indent=2))


def _npy_header(file: BinaryIO, size: int) -> None:
    header = {"descr": "<i4", "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(file, header)


def _read_description(directory: Path) -> _Description | None:
    try:
        return read_json(directory / "encoded.json", _Description, error=DataError, remedy=_REMEDY)
    except DataError:
        return None


def _describes(description: _Description, fingerprints: dict[str, str]) -> bool:
    return {
        "corpus": description.corpus,
        "vocabulary": description.vocabulary,
    } == fingerprints


def _load_cached(directory: Path, fingerprints: dict[str, str]) -> EncodedCorpus | None:
    """The complete encoding of a corpus with a vocabulary in a folder, or None."""
    description = _read_description(directory)
    if description is None or not _describes(description, fingerprints):
        return None
    try:
        return load_encoded(directory)
    except DataError:
        return None


def _map(path: Path, dtype: type) -> NDArray[Any]:
    require_regular(path, error=DataError, remedy=_REMEDY)
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # from EOFError to the header parser's TokenError
        raise _broken(path, "it is not an array") from error
    if array.dtype != dtype or array.ndim != 1:
        raise _broken(path, f"it has {array.dtype} of shape {array.shape}")
    return array


def _broken(path: Path, reason: str) -> DataError:
    return DataError(f"{path} is missing, incomplete or changed: {reason}", remedy=_REMEDY)


# Pairs of source and target texts


@dataclass(frozen=True)
class EncodedPairs:
    """Target i answers or translates source i. ValueError if their numbers differ."""

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
