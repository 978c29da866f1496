"""Batches of a training; windows over one long stream of ids.

Models that carry a state read the stream in `batch_size` contiguous rows, window after window
(truncated back-propagation through time, Zaremba et al. 2014, section 4.1). Models that do not
read the same stream as independent windows, shuffled anew every epoch.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.errors import TrainingError

IGNORED = -100
"""The target that no loss counts (`torch.nn.functional.cross_entropy`'s own default)."""


@dataclass(frozen=True)
class Batch:
    """Batch of windows or sequences.

    Attributes:
        inputs: int64 (b, t) token ids.
        targets: int64 (b, t), the token after each input; IGNORED where there is none.
        padding: number of targets that are IGNORED.
        lengths: int64 (b,) tokens of each row before its padding; None: all t.
        users: int64 (b,) user per row, or None.
        numbers: int64 (b,) of the rows in the training set, or None where nobody asks.
    """

    inputs: Tensor
    targets: Tensor
    padding: int = 0
    lengths: Tensor | None = None
    users: Tensor | None = None
    numbers: Tensor | None = None

    @property
    def tokens(self) -> int:
        """Targets that count."""
        return self.targets.numel() - self.padding

    def select(self, rows: Tensor) -> "Batch":
        """Selected rows, by an int64 (k,) index, without unused columns."""
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
    """Epochs of batches, the same for the same seed.

    Attributes:
        carries: rows follow on from batch to batch, so that a state is handed on.
    """

    @property
    def carries(self) -> bool: ...

    def __len__(self) -> int:
        """Batches in an epoch."""
        ...

    def epoch(self, seed: int, number: int, *, first: int = 0) -> Iterator[Any]:
        """Batches of epoch `number`, from batch `first` on."""
        ...


@dataclass(frozen=True)
class Windows:
    """A stream cut into batches.

    Attributes:
        tokens: int32 (n,) ids, possibly memory-mapped.
        batch_size: rows, or windows, in a batch.
        sequence_length: tokens in a window.
        contiguous: rows follow on from batch to batch, for models that carry a state.
        device: where batches are put.
    """

    tokens: NDArray[np.int32]
    batch_size: int
    sequence_length: int
    contiguous: bool
    device: torch.device

    def __post_init__(self) -> None:
        needed = self.batch_size + 1 if self.contiguous else self.sequence_length + 1
        if len(self.tokens) < needed:
            raise TrainingError(
                f"{len(self.tokens)} tokens are too few: batch_size {self.batch_size} and "
                f"sequence_length {self.sequence_length} need {needed} or more",
                remedy="Pass more text, or a smaller batch_size or sequence_length.",
            )

    def __len__(self) -> int:
        """Batches in an epoch."""
        if self.contiguous:
            return math.ceil(self._row_length / self.sequence_length)
        return math.ceil(self._count / self.batch_size)

    @property
    def carries(self) -> bool:
        """Whether rows continue from batch to batch."""
        return self.contiguous

    @property
    def _row_length(self) -> int:
        return (len(self.tokens) - 1) // self.batch_size

    @property
    def _count(self) -> int:
        return (len(self.tokens) - 1) // self.sequence_length

    def epoch(self, seed: int, number: int, *, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from batch `first` on.

        Args:
            seed: with the epoch's number it decides the order of independent windows.
            number: the epoch, from 0.
            first: batches already read, when a training is resumed.
        """
        if self.contiguous:
            starts = np.arange(self.batch_size) * self._row_length
            for offset in range(
                first * self.sequence_length, self._row_length, self.sequence_length
            ):
                length = min(self.sequence_length, self._row_length - offset)
                yield self._batch(starts + offset, length)
            return
        order = np.random.default_rng([seed, number]).permutation(self._count)
        for begin in range(first * self.batch_size, self._count, self.batch_size):
            chosen = order[begin : begin + self.batch_size]
            yield self._batch(chosen * self.sequence_length, self.sequence_length)

    def _batch(self, starts: NDArray[np.int64], length: int) -> Batch:
        window = self.tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)
        ids = torch.from_numpy(window).to(self.device, non_blocking=True)
        return Batch(ids[:, :-1], ids[:, 1:])
