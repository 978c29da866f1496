"""Keys and values of an attention layer, appended to in place.

States that continue one text share its memory: the first to read on writes into the free room
behind its own length, any other takes a copy.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

ROOM = 64
"""Tokens that memory is grown by at most; below, it is doubled."""


@dataclass(frozen=True)
class KeysAndValues:
    """Keys and values of n rows.

    Attributes:
        keys, values: (m, heads, capacity, head_size) each; only the first `length` tokens count.
        length: tokens read.
        rows: (n,) which of the m rows these are; None for all of them in order.
        written: tokens that the memory holds, shared by all that share it.
    """

    keys: Tensor
    values: Tensor
    length: int
    rows: Tensor | None = None
    written: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> "KeysAndValues":
        """What has been read so far, (n, heads, t, head_size) each; not copied."""
        return cls(keys, values, keys.shape[2], written=[keys.shape[2]])

    @property
    def nbytes(self) -> int:
        """Memory of the n rows, their room included."""
        held = self.keys.nbytes + self.values.nbytes
        return held if self.rows is None else held // max(1, len(self.keys)) * len(self.rows)

    def __getitem__(self, index: Tensor | slice) -> "KeysAndValues":
        """Some rows; nothing is copied before they read on."""
        if self.rows is not None:
            return replace(self, rows=self.rows[index])
        if isinstance(index, slice):
            return replace(self, keys=self.keys[index], values=self.values[index])
        return replace(self, rows=index.to(self.keys.device))

    def read(self) -> tuple[Tensor, Tensor]:
        """Keys and values, (n, heads, length, head_size) each."""
        keys, values = self.keys[:, :, : self.length], self.values[:, :, : self.length]
        return (keys, values) if self.rows is None else (keys[self.rows], values[self.rows])

    def extended(self, keys: Tensor, values: Tensor) -> "KeysAndValues":
        """The same rows after t more tokens, (n, heads, t, head_size) each."""
        if not self.length:
            return KeysAndValues.of(keys, values)
        length = self.length + keys.shape[2]
        free = self.rows is None and self.written == [self.length]
        if free and length <= self.keys.shape[2]:
            self.written[0] = length
            longer = replace(self, length=length)
        else:
            capacity = length + min(self.length, ROOM)
            moved = self._moved(self.keys, capacity), self._moved(self.values, capacity)
            longer = KeysAndValues(*moved, length=length, written=[length])
        longer.keys[:, :, self.length : length] = keys
        longer.values[:, :, self.length : length] = values
        return longer

    def _moved(self, old: Tensor, capacity: int) -> Tensor:
        n = len(old) if self.rows is None else len(self.rows)
        new = old.new_empty(n, old.shape[1], capacity, old.shape[3])
        read, place = old[:, :, : self.length], new[:, :, : self.length]
        if self.rows is None:
            place.copy_(read)
        else:
            torch.index_select(read, 0, self.rows, out=place)
        return new


def all_rows(index: Tensor | slice, n: int) -> bool:
    """Whether an index selects n rows as they are."""
    if isinstance(index, slice):
        return index.indices(n) == (0, n, 1)
    return len(index) == n and torch.equal(index, torch.arange(n, device=index.device))
