"""Batches of padded sequences: shuffled, by user, or by Poisson sampling.

Mireshghallah et al. (2021), "Privacy Regularization", appendix A.2.1: batches of one user's
sequences let a discriminator learn its authors faster than mixed ones. Abadi et al. (2016), "Deep
Learning with Differential Privacy", section 3.1: the guarantee counts on Poisson sampling: every
sequence (or user, with all of theirs) is in a batch independently of the others.

A sequence is a document, or a piece of one that is longer than `sequence_length`. Each begins with
the model's first state. With Poisson sampling, each also begins with the first token of a text: the
token before a piece is in the piece before it, and would count in two units. Otherwise a piece
is read after that token, as an evaluation reads it.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from vestige.data.encoded import EncodedCorpus
from vestige.errors import TrainingError
from vestige.training.batches import IGNORED, Batch, Ids
from vestige.training.secret import Keystream

Draw = Literal["documents", "users", "poisson", "poisson-users"]
"""How sequences come into batches: shuffled, shuffled within one user, or by Poisson sampling."""


@dataclass(frozen=True)
class Sequences:
    """The n sequences of a corpus.

    Attributes:
        starts: position of each one's first target in `data.tokens`.
        lengths: number of its targets, at least 2 for a whole document.
        documents: the document that it is or is a piece of.
    """

    data: EncodedCorpus
    starts: Ids
    lengths: Ids
    documents: Ids

    @classmethod
    def of(cls, data: EncodedCorpus, *, length: int) -> Self:
        """Documents in pieces of at most `length` tokens; TrainingError if all are empty."""
        sizes = np.diff(data.offsets)
        kept = np.flatnonzero(sizes > 1)  # one token: the end of an empty text
        if not len(kept):
            raise TrainingError("No document has a word", remedy="Give more text.")
        pieces = -(-sizes[kept] // length)
        documents = np.repeat(kept, pieces)
        within = np.arange(len(documents)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        starts = data.offsets[documents] + within * length
        lengths = np.minimum(length, data.offsets[documents + 1] - starts)
        return cls(data, starts, lengths, documents)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def first_pieces(self) -> "Sequences":
        """The sequences that begin a document."""
        begins = self.starts == self.data.offsets[self.documents]
        parts = (self.starts, self.lengths, self.documents)
        return Sequences(self.data, *(part[begins] for part in parts))

    @cached_property
    def users(self) -> Ids | None:
        """(n,) user per sequence."""
        return None if self.data.users is None else self.data.users[self.documents].astype(np.int64)

    def batch(
        self, chosen: Ids, first: int, device: torch.device, *, disjoint: bool = False
    ) -> Batch:
        """Batch of the sequences at positions (b,), padded on the right.

        `first` is read before a document's first token, and if `disjoint` before a piece's, too, so
        that no two share one.
        """
        lengths, starts = self.lengths[chosen], self.starts[chosen]
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]
        places = np.where(inside, starts[:, None] + columns, 0)
        tokens = self.data.tokens
        targets = np.where(inside, tokens[places], IGNORED).astype(np.int64)
        inputs = np.where(inside, tokens[places - 1], first).astype(np.int64)
        at_beginning = starts == self.data.offsets[self.documents[chosen]]
        inputs[at_beginning | disjoint, :1] = first
        owners = None if self.users is None else torch.from_numpy(self.users[chosen]).to(device)
        return Batch(
            torch.from_numpy(inputs).to(device, non_blocking=True),
            torch.from_numpy(targets).to(device, non_blocking=True),
            padding=int(inside.size - inside.sum()),
            lengths=torch.from_numpy(lengths).to(device),
            users=owners,
            numbers=torch.from_numpy(chosen).to(device),
        )


@dataclass(frozen=True)
class SequenceBatches:
    """Sequences in batches; `first` is the token before a document's first.

    With Poisson sampling `batch_size` is the expected number of sequences or users. TrainingError
    if users are needed and unknown, or there are fewer sequences or users than a batch has.
    """

    sequences: Sequences
    batch_size: int
    draw: Draw
    first: int
    device: torch.device
    carries: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if "users" in self.draw and self.sequences.users is None:
            raise TrainingError(
                f"Batches by {self.draw!r} need a user for each document",
                remedy="Pass the user column with --user.",
            )
        if "poisson" in self.draw and self.batch_size > self.units:
            raise TrainingError(
                f"batch_size {self.batch_size} exceeds the {self.units} {self.unit}s",
                remedy="Use a smaller batch_size, or more data.",
            )

    def __len__(self) -> int:
        if self.draw == "users":
            return int((-(-self._counts // self.batch_size)).sum())
        return math.ceil(self.units / self.batch_size)

    @property
    def unit(self) -> Literal["sequence", "user"]:
        """Unit of Poisson sampling, which differential privacy protects."""
        return "user" if self.draw == "poisson-users" else "sequence"

    @property
    def units(self) -> int:
        """Number of sequences or users."""
        return len(self._counts) if self.unit == "user" else len(self.sequences)

    @property
    def sample_rate(self) -> float:
        """Poisson sampling rate: the probability that a unit is in a batch, in (0, 1]."""
        if "poisson" not in self.draw:
            raise ValueError(
                f"draw must be poisson or poisson-users for a sample rate, got {self.draw!r}: only "
                "Poisson sampling amplifies privacy"
            )
        return self.batch_size / self.units

    @cached_property
    def _counts(self) -> Ids:
        """(users,) sequences of each user that has any."""
        if self.sequences.users is None:
            return np.array([len(self.sequences)])
        return np.unique(self.sequences.users, return_counts=True)[1]

    @cached_property
    def _by_user(self) -> list[Ids]:
        assert self.sequences.users is not None
        order = np.argsort(self.sequences.users, kind="stable")
        return np.split(order, np.cumsum(self._counts)[:-1])

    def epoch(self, seed: int, number: int, *, first: int = 0) -> Iterator[Batch]:
        """See `Batches`; Poisson-sampled ones may be empty.

        `seed` has any size: samples from a seed of 256 secret bits cannot be guessed.
        """
        for index, chosen in enumerate(self._plan(seed, number)):
            if index >= first:
                yield self._batch(chosen)

    def auxiliary(self, rows: int) -> Batch:
        """Random batch beside the epochs', from torch's global generator, of at most `rows`.

        With batches by user it is one user's, each as likely as they have sequences.
        """
        generator = np.random.default_rng(int(torch.randint(2**31, ()).item()))
        pool = np.arange(len(self.sequences))
        if self.draw == "users":
            pool = self._by_user[generator.choice(len(self._counts), p=self._share)]
        return self._batch(generator.choice(pool, min(rows, len(pool)), replace=False))

    def _batch(self, chosen: Ids) -> Batch:
        disjoint = "poisson" in self.draw
        return self.sequences.batch(chosen, self.first, self.device, disjoint=disjoint)

    @cached_property
    def _share(self) -> NDArray[np.float64]:
        return np.asarray(self._counts / self._counts.sum())

    def _plan(self, seed: int, number: int) -> Iterator[Ids]:
        if "poisson" in self.draw:
            return self._poisson_batches(seed, number)
        generator = np.random.default_rng([seed, number])
        if self.draw == "documents":
            return self._cut(generator.permutation(len(self.sequences)))
        batches = [part for own in self._by_user for part in self._cut(generator.permutation(own))]
        return (batches[index] for index in generator.permutation(len(batches)))

    def _cut(self, order: Ids) -> Iterator[Ids]:
        for begin in range(0, len(order), self.batch_size):
            yield order[begin : begin + self.batch_size]

    def _poisson_batches(self, seed: int, number: int) -> Iterator[Ids]:
        # "lots" is part of the key: another word would give trainings other bits
        key = hashlib.blake2b(f"lots {seed} {number}".encode(), digest_size=32).digest()
        for batch in range(len(self)):
            drawn = poisson_sample(key, batch, units=self.units, sample_rate=self.sample_rate)
            if self.unit == "sequence":
                yield drawn
            else:
                yield np.concatenate([np.empty(0, np.int64), *(self._by_user[u] for u in drawn)])


def poisson_sample(key: bytes, step: int, *, units: int, sample_rate: float) -> Ids:
    """Units of one step, ascending, each sampled independently at a rate in (0, 1], to 2^-53.

    The key has 32 secret bytes.
    """
    words = np.empty(units, np.uint64)
    Keystream(key, step, 0).fill(words)
    return np.flatnonzero((words >> np.uint64(11)) * 2.0**-53 < sample_rate)
