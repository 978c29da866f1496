"""Division of a corpus into training and held-out records, with a cap per user.

Differential privacy compares trainings on data that differ in one record, or one user: nothing
else may differ between what they read. So both choices follow from hashes of what is chosen, never
from its place: whether a record (or user) is held out depends on its content (or name) alone, and
one document more moves at most one other of the same user past a cap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.records import hash_texts, record_hashes, uniform
from vestige.errors import DataError

_HOLD_OUT, _CAP = b"hold-out", b"cap"
"""Purposes: with the same hashes, most documents that a cap keeps would be held out."""


@dataclass(frozen=True, kw_only=True)
class Division:
    """A corpus in three parts, each in the corpus' order.

    Attributes:
        corpus: all documents.
        capped: (len(corpus),) the documents that stay within the cap.
        drawn: (len(corpus),) those of them that are held out.
        by_user: users were held out, with all that is theirs.
        most_per_user: the cap; None: there is none.
    """

    corpus: Corpus
    capped: NDArray[np.bool_]
    drawn: NDArray[np.bool_]
    by_user: bool
    most_per_user: int | None

    @cached_property
    def within_cap(self) -> Corpus:
        """Records for training and records held out."""
        return self._part(self.capped)

    @cached_property
    def training(self) -> Corpus:
        """Records for training."""
        return self._part(self.capped & ~self.drawn)

    @cached_property
    def held_out(self) -> Corpus:
        """Records for validation."""
        return self._part(self.drawn)

    @cached_property
    def left_out(self) -> Corpus:
        """Records beyond their users' caps."""
        return self._part(~self.capped)

    def summary(self) -> dict[str, object]:
        """Numbers of held-out and left-out documents and users; None without users."""
        return {
            "held_out_documents": len(self.held_out),
            "held_out_users": _users(self.held_out) if self.by_user else None,
            "left_out_documents": len(self.left_out),
            "left_out_users": _users(self.left_out) if self.most_per_user else None,
            "max_documents_per_user": self.most_per_user,
        }

    def _part(self, chosen: NDArray[np.bool_]) -> Corpus:
        return self.corpus if chosen.all() else self.corpus.take(np.flatnonzero(chosen))


def divide(
    corpus: Corpus,
    fraction: float,
    *,
    by_user: bool = False,
    most_per_user: int | None = None,
    keep: Sequence[int] = (),
) -> Division:
    """Cap what each user contributes, then hold out records or users.

    Args:
        corpus: to divide.
        fraction: chance of a record (of a user, with `by_user`) to be held out, in [0, 1); copies
            of a text go the same way.
        by_user: users are held out, with all of their documents.
        most_per_user: documents of a user that stay, those of the smallest hashes; documents of
            nobody known count as one user's. None: all.
        keep: places of documents that are neither held out nor left out, such as planted
            canaries; nor are their users held out.

    Raises:
        ValueError: an argument is out of range.
        DataError: the corpus has no users and they are asked for, a user has more documents to
            keep than the cap allows, or nothing would be left to train on.

    Example:
        >>> corpus = Corpus.from_texts(map(str, range(1000)), users=["ann", "bob"] * 500)
        >>> parts = divide(corpus, 0.05, most_per_user=300)
        >>> len(parts.training), len(parts.held_out), len(parts.left_out)
        (562, 38, 400)
    """
    _validate.fraction(fraction=fraction)
    if len(keep) and not 0 <= min(keep) <= max(keep) < len(corpus):
        raise ValueError(f"keep must lie in [0, {len(corpus)}), got {min(keep)} to {max(keep)}")
    kept = np.zeros(len(corpus), dtype=bool)
    kept[list(keep)] = True
    capped = np.ones(len(corpus), dtype=bool)
    if most_per_user is not None:
        _validate.at_least(1, most_per_user=most_per_user)
        capped = _within_cap(corpus, most_per_user, kept)
    drawn = capped & _drawn(corpus, fraction, by_user, kept)
    if drawn.any() and not (capped & ~drawn).any():
        raise DataError(
            f"All {len(corpus):,} documents would be used for validation",
            remedy="Use a smaller share, or pass more documents.",
        )
    return Division(
        corpus=corpus, capped=capped, drawn=drawn, by_user=by_user, most_per_user=most_per_user
    )


def _drawn(
    corpus: Corpus, fraction: float, by_user: bool, kept: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """(len(corpus),) whether each document is held out."""
    if not fraction:
        return np.zeros(len(corpus), dtype=bool)
    if not by_user:
        return (uniform(record_hashes(corpus, purpose=_HOLD_OUT)) < fraction) & ~kept
    names, owners = corpus.owners()
    out = uniform(hash_texts(names, purpose=_HOLD_OUT)) < fraction
    out[owners[kept]] = False
    drawn: NDArray[np.bool_] = out[owners]
    return drawn


def _within_cap(corpus: Corpus, most: int, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(len(corpus),) whether each document is within its user's cap."""
    names, owners = corpus.owners()
    needed = np.bincount(owners[kept], minlength=1).max()
    if needed > most:
        raise DataError(
            f"A user has {needed} planted documents and may contribute {most}",
            remedy=f"Allow {needed} documents per user, or plant fewer copies or for more users.",
        )
    order = np.lexsort((uniform(record_hashes(corpus, purpose=_CAP)), ~kept, owners))
    sizes = np.bincount(owners, minlength=len(names))
    before = np.arange(len(corpus)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    stays = np.zeros(len(corpus), dtype=bool)
    stays[order[before < most]] = True
    return stays


def _users(corpus: Corpus) -> int:
    return len(corpus.owners()[0])
