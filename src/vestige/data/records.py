"""Hashes of records: names that follow from the content alone.

What follows from a record's hash (whether it is held out, whether two trainings read it) follows
from that record alone: with one record more or less in the corpus, nothing changes for the others.

The hashes have no key: anyone who has a text can check whether its hash is among them. They are as
private as the texts. `ReadRecords` is in the directory of a training, for later trainings on the
same records, and never in the folder of its model.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vestige.data.corpus import Corpus
from vestige.errors import DataError

BYTES = 16
"""Of a hash: 128 bits, so that no two texts of a corpus share one."""
NOBODY = bytes(BYTES)

Hashes = NDArray[np.void]
_HASH = np.dtype((np.void, BYTES))
_ROW = np.dtype([("record", _HASH), ("user", _HASH), ("held_out", np.bool_)])


def record_hashes(corpus: Corpus, *, purpose: bytes = b"") -> Hashes:
    """(len(corpus),) hashes of texts, each with its source where the corpus has sources.

    Args:
        corpus: the records.
        purpose: of the hashes, at most 16 bytes; those of two purposes are independent.

    Example:
        >>> hashes = record_hashes(Corpus.from_texts(["to be", "or not", "to be"]))
        >>> len(hashes), len(np.unique(hashes))
        (3, 2)
    """
    texts: Iterable[str] = corpus
    if corpus.sources is not None:
        texts = (f"{len(s)} {s}{t}" for s, t in zip(corpus.sources, corpus, strict=True))
    return hash_texts(texts, purpose=purpose)


def hash_texts(texts: Iterable[str], *, purpose: bytes = b"") -> Hashes:
    """(n,) BLAKE2b hashes of BYTES bytes each, of texts or of names; see `record_hashes`."""
    empty = hashlib.blake2b(digest_size=BYTES, person=purpose)
    digests = []
    for text in texts:
        digest = empty.copy()
        digest.update(text.encode())
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), dtype=_HASH)


def uniform(hashes: Hashes) -> NDArray[np.float64]:
    """(n,) uniform numbers in [0, 1) that follow from the hashes.

    Example:
        >>> bool((uniform(hash_texts(map(str, range(1000)))) < 0.05).sum() in range(30, 75))
        True
    """
    first = np.frombuffer(hashes.tobytes(), dtype="<u8")[:: BYTES // 8]
    return (first >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class ReadRecords:
    """Record hashes of a training, with multiplicity.

    Attributes:
        records: (n,) hashes of the texts.
        users: (n,) hashes of the names of those whose they are; NOBODY where that is not known.
        held_out: (n,) whether a record was not learnt from and chose the epoch.
    """

    records: Hashes
    users: Hashes
    held_out: NDArray[np.bool_]

    @classmethod
    def of(cls, learnt: Corpus, held_out: Corpus | None = None) -> Self:
        """Records of a training corpus and of a validation corpus."""
        parts = [learnt] if held_out is None else [learnt, held_out]
        return cls(
            np.concatenate([record_hashes(part) for part in parts]),
            np.concatenate([_owners(part) for part in parts]),
            np.repeat([False, True][: len(parts)], [len(part) for part in parts]),
        )

    @classmethod
    def of_texts(cls, learnt: list[str], held_out: list[str]) -> Self:
        """Records of texts without users; otherwise as `of`."""
        hashes = hash_texts([*learnt, *held_out])
        return cls(
            hashes,
            np.zeros(len(hashes), _HASH),
            np.repeat([False, True], [len(learnt), len(held_out)]),
        )

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read an array that `rows` gave and `numpy.save` wrote.

        Raises:
            DataError: it is no whole file of record hashes.
        """
        try:
            # Mapped, so that a header that lies about the size allocates nothing.
            rows = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError, OverflowError, TypeError) as error:
            raise _broken(file, str(error)) from error
        if rows.dtype != _ROW or rows.ndim != 1:
            raise _broken(file, "its columns differ")
        return cls(*(np.array(rows[name]) for name in ("record", "user", "held_out")))

    def rows(self) -> NDArray[np.void]:
        """(n,) all of it as one array, for a file."""
        rows = np.empty(len(self), _ROW)
        rows["record"], rows["user"], rows["held_out"] = self.records, self.users, self.held_out
        return rows

    def __len__(self) -> int:
        return len(self.records)

    def learnt(self) -> "ReadRecords":
        """Training records."""
        return self.part(~self.held_out)

    def judging(self) -> "ReadRecords":
        """Held-out records."""
        return self.part(self.held_out)

    def part(self, chosen: NDArray[np.bool_]) -> "ReadRecords":
        """Selected records."""
        return ReadRecords(self.records[chosen], self.users[chosen], self.held_out[chosen])


def among(hashes: Hashes, others: Hashes) -> NDArray[np.bool_]:
    """(len(hashes),) whether each hash is among others; NOBODY never is.

    Example:
        >>> to, be, nobody = *hash_texts(["to", "be"]), np.zeros(1, _HASH)[0]
        >>> among(np.array([to, be, nobody]), np.array([be, nobody])).tolist()
        [False, True, False]
    """
    known = {one.tobytes() for one in others} - {NOBODY}
    return np.fromiter((one.tobytes() in known for one in hashes), np.bool_, len(hashes))


def _owners(corpus: Corpus) -> Hashes:
    if corpus.users is None:
        return np.zeros(len(corpus), _HASH)
    names, places = corpus.owners()
    hashes = hash_texts(names).copy()
    hashes[[not name for name in names]] = np.zeros(1, _HASH)
    return hashes[places]


def _broken(file: Path, problem: str) -> DataError:
    return DataError(
        f"{file} has no valid hashes of training records: {problem}",
        remedy="Pass the folder of the model alone; its training text is then unknown.",
    )
