"""Batches of padded sequences: shuffled, by user, or by Poisson sampling.

Mireshghallah et al. (2021), "Privacy Regularization", appendix A.2.1: a discriminator learns its
authors faster from batches of one user than from mixed ones. Abadi et al. (2016), "Deep Learning
with Differential Privacy", section 3.1: the guarantee needs Poisson sampling, where each sequence
(or user with all sequences) is in a batch independently of the others.

A sequence is a document, or a piece of a document longer than `sequence_length`. Each begins with
the initial state of the model. In Poisson sampling each also begins with the first token of a text:
the token before a piece belongs to the previous piece and would count in two units. Otherwise a
piece begins with that token, as in an evaluation.
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
"""How batches are formed: shuffled, shuffled within one user, or by Poisson sampling."""


@dataclass(frozen=True)
class Sequences:
    """The n sequences of a corpus.

    Attributes:
        starts: position of the first target of each in `data.tokens`.
        lengths: number of targets, at least 2 for a whole document.
        documents: document of each.
    """

    data: EncodedCorpus
    starts: Ids
    lengths: Ids
    documents: Ids

    @classmethod
    def of(cls, data: EncodedCorpus, *, length: int) -> Self:
        """Documents in pieces of at most `length` tokens; TrainingError if all are empty."""
        sizes = np.diff(data.offsets)
        nonempty = np.flatnonzero(sizes > 1)  # one token: the end of an empty text
        if not len(nonempty):
            raise TrainingError("No document has a word", remedy="Give more text.")
        pieces = -(-sizes[nonempty] // length)
        documents = np.repeat(nonempty, pieces)
        within = np.arange(len(documents)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        starts = data.offsets[documents] + within * length
        lengths = np.minimum(length, data.offsets[documents + 1] - starts)
        return cls(data, starts, lengths, documents)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def first_pieces(self) -> "Sequences":
        """The sequences that begin a document."""
        is_first = self.starts == self.data.offsets[self.documents]
        parts = (self.starts, self.lengths, self.documents)
        return Sequences(self.data, *(part[is_first] for part in parts))

    @cached_property
    def users(self) -> Ids | None:
        """(n,) user per sequence."""
        return None if self.data.users is None else self.data.users[self.documents].astype(np.int64)

    def batch(
        self, rows: Ids, first: int, device: torch.device, *, disjoint: bool = False
    ) -> Batch:
        """Batch of the sequences at positions (b,), padded on the right.

        `first` precedes the first token of a document. If `disjoint`, it also precedes each piece:
        pieces then share no token.
        """
        lengths, starts = self.lengths[rows], self.starts[rows]
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]
        positions = np.where(inside, starts[:, None] + columns, 0)
        tokens = self.data.tokens
        targets = np.where(inside, tokens[positions], IGNORED).astype(np.int64)
        inputs = np.where(inside, tokens[positions - 1], first).astype(np.int64)
        at_beginning = starts == self.data.offsets[self.documents[rows]]
        inputs[at_beginning | disjoint, :1] = first
        users = None if self.users is None else torch.from_numpy(self.users[rows]).to(device)
        return Batch(
            torch.from_numpy(inputs).to(device, non_blocking=True),
            torch.from_numpy(targets).to(device, non_blocking=True),
            padding=int(inside.size - inside.sum()),
            lengths=torch.from_numpy(lengths).to(device),
            users=users,
            numbers=torch.from_numpy(rows).to(device),
        )


@dataclass(frozen=True)
class SequenceBatches:
    """Sequences in batches; `first` is the token before a document's first.

    In Poisson sampling `batch_size` is the expected number of sequences or users. TrainingError if
    users are needed and unknown, or if there are fewer sequences or users than `batch_size`.
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
        """Unit of Poisson sampling, and of the guarantee."""
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

        `seed` has any size; a secret one has 256 bits.
        """
        for index, rows in enumerate(self._plan(seed, number)):
            if index >= first:
                yield self._batch(rows)

    def auxiliary(self, rows: int) -> Batch:
        """Additional random batch of at most `rows`, from torch's global generator.

        If batches are by user, it has one user, sampled in proportion to their sequences.
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
        # "lots" is part of the key and decides the bits of trainings
        key = hashlib.blake2b(f"lots {seed} {number}".encode(), digest_size=32).digest()
        for batch in range(len(self)):
            drawn = poisson_sample(key, batch, units=self.units, sample_rate=self.sample_rate)
            if self.unit == "sequence":
                yield drawn
            else:
                yield np.concatenate([np.empty(0, np.int64), *(self._by_user[u] for u in drawn)])


def poisson_sample(key: bytes, step: int, *, units: int, sample_rate: float) -> Ids:
    """Sampled units of one step, ascending. Each is sampled independently at a rate in (0, 1].

    The key has 32 secret bytes. The rate is exact to 2^-53.
    """
    words = np.empty(units, np.uint64)
    Keystream(key, step, 0).fill(words)
    return np.flatnonzero((words >> np.uint64(11)) * 2.0**-53 < sample_rate)
