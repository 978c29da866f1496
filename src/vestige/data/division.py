"""Division of a corpus into training and validation records, by hashes of their content.

Differential privacy compares trainings on data that differ in one record or one user. Nothing else
may differ in their input. Therefore the content of a record (or the name of a user) alone decides
whether it is held out, never its position, and one more document moves at most one other document
of the same user over a cap.

The hashes have no key: a text can be tested for membership. So they are as private as the texts.
`ReadRecords` is stored in the directory of a training, for later trainings on the same records, and
never in the folder of its model.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.errors import DataError

BYTES = 16
"""Bytes of a hash: with 128 bits, no two texts of a corpus collide."""
UNKNOWN_USER = bytes(BYTES)
"""The hash of an unknown user."""

Hashes = NDArray[np.void]
_HASH = np.dtype((np.void, BYTES))
_ROW = np.dtype([("record", _HASH), ("user", _HASH), ("held_out", np.bool_)])
_HOLD_OUT, _CAP = b"hold-out", b"cap"
"""Purposes: with shared hashes, the documents under a cap would be those that are held out."""


def record_hashes(corpus: Corpus, *, purpose: bytes = b"") -> Hashes:
    """(len(corpus),) hashes of texts, each with its source where the corpus has sources.

    Hashes for two purposes (of at most 16 bytes) are independent.

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
    """(n,) uniform numbers in [0, 1) from the hashes.

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
        users: (n,) hashes of their users' names; UNKNOWN_USER for an unknown user.
        held_out: (n,) whether a record was held out for validation.
    """

    records: Hashes
    users: Hashes
    held_out: NDArray[np.bool_]

    @classmethod
    def of(cls, training: Corpus, held_out: Corpus) -> Self:
        """Records of a training corpus and of a validation corpus."""
        parts = (training, held_out)
        return cls(
            np.concatenate([record_hashes(part) for part in parts]),
            np.concatenate([_user_hashes(part) for part in parts]),
            np.repeat([False, True], [len(part) for part in parts]),
        )

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read an array of `rows` that `numpy.save` wrote; DataError if it is none."""
        try:
            # Mapped, so that a wrong size in the header allocates nothing.
            rows = np.load(file, mmap_mode="r", allow_pickle=False)
            if rows.dtype != _ROW or rows.ndim != 1:
                raise ValueError("its columns differ")
        except (OSError, ValueError, EOFError, OverflowError, TypeError) as error:
            raise DataError(
                f"{file} has no valid hashes of training records: {error}",
                remedy="Pass the folder of the model alone; its training text is then unknown.",
            ) from error
        return cls(*(np.array(rows[name]) for name in ("record", "user", "held_out")))

    def rows(self) -> NDArray[np.void]:
        """(n,) all columns as one array, for a file."""
        rows = np.empty(len(self.records), _ROW)
        rows["record"], rows["user"], rows["held_out"] = self.records, self.users, self.held_out
        return rows

    def __len__(self) -> int:
        return len(self.records)

    def training(self) -> "ReadRecords":
        """Training records."""
        return self._part(~self.held_out)

    def validation(self) -> "ReadRecords":
        """Held-out records."""
        return self._part(self.held_out)

    def _part(self, mask: NDArray[np.bool_]) -> "ReadRecords":
        return ReadRecords(self.records[mask], self.users[mask], self.held_out[mask])


def among(hashes: Hashes, others: Hashes) -> NDArray[np.bool_]:
    """(len(hashes),) whether each hash is in `others`; False for UNKNOWN_USER.

    Example:
        >>> to, be, nobody = *hash_texts(["to", "be"]), np.zeros(1, _HASH)[0]
        >>> among(np.array([to, be, nobody]), np.array([be, nobody])).tolist()
        [False, True, False]
    """
    members = {row.tobytes() for row in others} - {UNKNOWN_USER}
    return np.fromiter((row.tobytes() in members for row in hashes), np.bool_, len(hashes))


def _user_hashes(corpus: Corpus) -> Hashes:
    if corpus.users is None:
        return np.zeros(len(corpus), _HASH)
    names, user_indices = corpus.user_indices()
    hashes = hash_texts(names).copy()
    hashes[[not name for name in names]] = np.zeros(1, _HASH)
    return hashes[user_indices]


@dataclass(frozen=True, kw_only=True)
class Division:
    """A corpus in three parts, each in the corpus' order: `training`, `held_out`, `left_out`.

    Attributes:
        corpus: all documents.
        within_cap_mask: (len(corpus),) the documents within the cap.
        held_out_mask: (len(corpus),) the held-out documents among them.
        by_user: users were held out, with all their documents.
        most_per_user: the cap; None without one.
    """

    corpus: Corpus
    within_cap_mask: NDArray[np.bool_]
    held_out_mask: NDArray[np.bool_]
    by_user: bool
    most_per_user: int | None

    @cached_property
    def within_cap(self) -> Corpus:
        """Records for training or held out."""
        return self._part(self.within_cap_mask)

    @cached_property
    def training(self) -> Corpus:
        """Records for training."""
        return self._part(self.within_cap_mask & ~self.held_out_mask)

    @cached_property
    def held_out(self) -> Corpus:
        """Records for validation."""
        return self._part(self.held_out_mask)

    @cached_property
    def left_out(self) -> Corpus:
        """Records beyond their users' caps."""
        return self._part(~self.within_cap_mask)

    def summary(self) -> dict[str, object]:
        """Numbers of held-out and left-out documents and users; None without users."""
        held_out, left_out = self.held_out, self.left_out
        return {
            "held_out_documents": len(held_out),
            "held_out_users": len(held_out.user_indices()[0]) if self.by_user else None,
            "left_out_documents": len(left_out),
            "left_out_users": len(left_out.user_indices()[0]) if self.most_per_user else None,
            "max_documents_per_user": self.most_per_user,
        }

    def _part(self, mask: NDArray[np.bool_]) -> Corpus:
        return self.corpus if mask.all() else self.corpus.take(np.flatnonzero(mask))


def divide(
    corpus: Corpus,
    fraction: float,
    *,
    by_user: bool = False,
    most_per_user: int | None = None,
    keep: Sequence[int] = (),
) -> Division:
    """Cap the documents of each user, then hold out records or users.

    Args:
        corpus: to divide.
        fraction: probability that a record (a user, with `by_user`) is held out, in [0, 1). Copies
            of a text stay together.
        by_user: hold out users, with all of their documents.
        most_per_user: documents that stay of a user, those with the smallest hashes; documents of
            unknown users count as one user's. None: all.
        keep: indices of documents that are neither held out nor left out, such as planted
            canaries; their users are not held out either.

    Raises:
        ValueError: an argument is out of range.
        DataError: the corpus has no users and they are needed, a user has more documents to
            keep than the cap allows, or nothing would be left to train on.

    Example:
        >>> corpus = Corpus.from_texts(map(str, range(1000)), users=["ann", "bob"] * 500)
        >>> parts = divide(corpus, 0.05, most_per_user=300)
        >>> len(parts.training), len(parts.held_out), len(parts.left_out)
        (562, 38, 400)
    """
    _validate.fraction(fraction=fraction)
    keep_mask = corpus.keep_mask(keep)
    within_cap = np.ones(len(corpus), dtype=bool)
    if most_per_user is not None:
        _validate.at_least(1, most_per_user=most_per_user)
        within_cap = _within_cap(corpus, most_per_user, keep_mask)
    held_out = within_cap & _held_out(corpus, fraction, by_user, keep_mask)
    if held_out.any() and not (within_cap & ~held_out).any():
        raise DataError(
            f"All {len(corpus):,} documents would be used for validation",
            remedy="Use a smaller share, or pass more documents.",
        )
    return Division(
        corpus=corpus,
        within_cap_mask=within_cap,
        held_out_mask=held_out,
        by_user=by_user,
        most_per_user=most_per_user,
    )


def _held_out(
    corpus: Corpus, fraction: float, by_user: bool, keep_mask: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """(len(corpus),) whether each document is held out."""
    if not fraction:
        return np.zeros(len(corpus), dtype=bool)
    if not by_user:
        return (uniform(record_hashes(corpus, purpose=_HOLD_OUT)) < fraction) & ~keep_mask
    names, user_indices = corpus.user_indices()
    users_held_out: NDArray[np.bool_] = uniform(hash_texts(names, purpose=_HOLD_OUT)) < fraction
    users_held_out[user_indices[keep_mask]] = False
    return users_held_out[user_indices]


def _within_cap(corpus: Corpus, most: int, keep_mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(len(corpus),) whether each document is within its user's cap."""
    names, user_indices = corpus.user_indices()
    needed = np.bincount(user_indices[keep_mask], minlength=1).max()
    if needed > most:
        raise DataError(
            f"A user has {needed} planted documents and may contribute {most}",
            remedy=f"Allow {needed} documents per user, or plant fewer copies or for more users.",
        )
    # By user, then documents to keep, then by hash.
    order = np.lexsort((uniform(record_hashes(corpus, purpose=_CAP)), ~keep_mask, user_indices))
    counts = np.bincount(user_indices, minlength=len(names))
    rank_in_user = np.arange(len(corpus)) - np.repeat(np.cumsum(counts) - counts, counts)
    within_cap = np.zeros(len(corpus), dtype=bool)
    within_cap[order[rank_in_user < most]] = True
    return within_cap
