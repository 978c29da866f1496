"""Batches of a training: windows over one stream, or rows of one length; `sequences` has more.

Models that carry a state read a stream in `batch_size` contiguous rows, one window after another
(truncated back-propagation through time, Zaremba et al. 2014, section 4.1). Others read independent
windows, shuffled in every epoch.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.data.encoded import EncodedCorpus
from vestige.errors import TrainingError

Ids = NDArray[np.int64]
IGNORED = -100
"""Target that no loss counts (the default of `torch.nn.functional.cross_entropy`)."""


@dataclass(frozen=True)
class Batch:
    """Batch of windows or sequences.

    Attributes:
        inputs: int64 (b, t) token ids.
        targets: int64 (b, t), the token after each input; IGNORED if there is none.
        padding: number of IGNORED targets.
        lengths: int64 (b,) tokens of each row without padding; None: all t.
        users: int64 (b,) user per row, or None.
        numbers: int64 (b,) of the rows in the training set, or None.
        sources: int64 (b, s) of an encoder-decoder, or None.
    """

    inputs: Tensor
    targets: Tensor
    padding: int = 0
    lengths: Tensor | None = None
    users: Tensor | None = None
    numbers: Tensor | None = None
    sources: Tensor | None = None

    @property
    def tokens(self) -> int:
        """Number of targets that count."""
        return self.targets.numel() - self.padding

    def select(self, rows: Tensor) -> "Batch":
        """Some rows, by an int64 (k,) index, without unused columns."""
        lengths = None if self.lengths is None else self.lengths[rows]
        width = self.inputs.shape[1]
        if lengths is not None:
            width = int(lengths.max()) if len(lengths) else 0
        targets = self.targets[rows, :width]
        return Batch(
            inputs=self.inputs[rows, :width],
            targets=targets,
            padding=0 if lengths is None else targets.numel() - int(lengths.sum()),
            lengths=lengths,
            users=None if self.users is None else self.users[rows],
            numbers=None if self.numbers is None else self.numbers[rows],
        )


class Batches(Protocol):
    """Epochs of batches, determined by a seed; `carries`: a state passes from batch to batch."""

    @property
    def carries(self) -> bool: ...

    def __len__(self) -> int:
        """Batches in an epoch."""
        ...

    def epoch(self, seed: int, number: int, *, first: int = 0) -> Iterator[Any]:
        """Batches of epoch `number`, starting with batch `first` if a training resumes."""
        ...


@dataclass(frozen=True)
class Windows:
    """A stream of int32 ids (n,), possibly memory-mapped, divided into batches.

    `carries`: rows continue from batch to batch, for models that carry a state.
    """

    tokens: NDArray[np.int32]
    batch_size: int
    sequence_length: int
    carries: bool
    device: torch.device

    def __post_init__(self) -> None:
        needed = self.batch_size + 1 if self.carries else self.sequence_length + 1
        if len(self.tokens) < needed:
            raise TrainingError(
                f"{len(self.tokens)} tokens are too few: batch_size {self.batch_size} and "
                f"sequence_length {self.sequence_length} need {needed} or more",
                remedy="Pass more text, or a smaller batch_size or sequence_length.",
            )

    def __len__(self) -> int:
        if self.carries:
            return math.ceil(self._row_length / self.sequence_length)
        return math.ceil(self._count / self.batch_size)

    @property
    def _row_length(self) -> int:
        return (len(self.tokens) - 1) // self.batch_size

    @property
    def _count(self) -> int:
        return (len(self.tokens) - 1) // self.sequence_length

    def epoch(self, seed: int, number: int, *, first: int = 0) -> Iterator[Batch]:
        """See `Batches`; contiguous rows are the same in every epoch."""
        length = self.sequence_length
        if self.carries:
            starts = np.arange(self.batch_size) * self._row_length
            for offset in range(first * length, self._row_length, length):
                yield self._batch(starts + offset, min(length, self._row_length - offset))
            return
        order = np.random.default_rng([seed, number]).permutation(self._count)
        for begin in range(first * self.batch_size, self._count, self.batch_size):
            yield self._batch(order[begin : begin + self.batch_size] * length, length)

    def _batch(self, starts: Ids, length: int) -> Batch:
        window = self.tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)
        ids = torch.from_numpy(window).to(self.device, non_blocking=True)
        return Batch(ids[:, :-1], ids[:, 1:])


@dataclass(frozen=True)
class EqualLengths:
    """Rows of `lengths` (n,) in batches of one length, in a new order in every epoch.

    There is no padding or mask, which is more than twice as fast as packed sequences. `make` builds
    a batch from row numbers (b,). Rows of a batch are also similar in `alike` (n,).
    """

    lengths: Ids
    batch_size: int
    make: Callable[[Ids], Any]
    alike: Ids | None = None
    carries: ClassVar[bool] = False

    def __len__(self) -> int:
        _, counts = np.unique(self.lengths, return_counts=True)
        return int(np.ceil(counts / self.batch_size).sum())

    def epoch(self, seed: int, number: int, *, first: int = 0) -> Iterator[Any]:
        """See `Batches`."""
        generator = np.random.default_rng([seed, number])
        order = generator.permutation(len(self.lengths))
        if self.alike is not None:
            order = order[np.argsort(self.alike[order], kind="stable")]
        groups = of_one_length(self.lengths, self.batch_size, order)
        for index in generator.permutation(len(groups))[first:]:
            yield self.make(groups[index])


def of_one_length(lengths: Ids, size: int, order: Ids | None = None) -> list[Ids]:
    """Row numbers in groups of one length, at most `size` in each, shortest first."""
    order = np.arange(len(lengths)) if order is None else order
    order = order[np.argsort(lengths[order], kind="stable")]
    ends = np.flatnonzero(np.diff(lengths[order])) + 1
    return [
        group[begin : begin + size]
        for group in np.split(order, ends)
        for begin in range(0, len(group), size)
    ]


def beginnings(data: EncodedCorpus, documents: Ids, length: int, device: torch.device) -> Tensor:
    """int64 (b, t): the first tokens, at most `length`, of documents of equal length."""
    width = min(int(data.offsets[documents[0] + 1] - data.offsets[documents[0]]), length)
    ids = data.tokens[data.offsets[documents][:, None] + np.arange(width)].astype(np.int64)
    return torch.from_numpy(ids).to(device, non_blocking=True)
