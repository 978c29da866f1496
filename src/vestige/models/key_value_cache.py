"""Keys and values of an attention layer, appended in place.

States that continue one text share its memory. The first state that reads on writes into the free
memory after its tokens; every other state makes a copy.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

MOST_GROWTH = 64
"""Most tokens by which memory grows; smaller memory is doubled."""


@dataclass(frozen=True)
class KeysAndValues:
    """Keys and values of n rows.

    Attributes:
        keys, values: (m, heads, capacity, head_size) each; only the first `length` tokens count.
        length: tokens read.
        rows: (n,) indices among the m rows; None: all rows in order.
        written: number of tokens in the memory, shared by all states that use it.
    """

    keys: Tensor
    values: Tensor
    length: int
    rows: Tensor | None = None
    written: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> "KeysAndValues":
        """Keys and values read so far, (n, heads, t, head_size) each; not copied."""
        return cls(keys, values, keys.shape[2], written=[keys.shape[2]])

    @property
    def nbytes(self) -> int:
        """Memory of the n rows, with free memory."""
        size = self.keys.nbytes + self.values.nbytes
        return size if self.rows is None else size // max(1, len(self.keys)) * len(self.rows)

    def __getitem__(self, index: Tensor | slice) -> "KeysAndValues":
        """Some rows, without a copy until they read on."""
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
        can_append = self.rows is None and self.written == [self.length]
        if can_append and length <= self.keys.shape[2]:
            self.written[0] = length
            longer = replace(self, length=length)
        else:
            capacity = length + min(self.length, MOST_GROWTH)
            copies = self._copied(self.keys, capacity), self._copied(self.values, capacity)
            longer = KeysAndValues(*copies, length=length, written=[length])
        longer.keys[:, :, self.length : length] = keys
        longer.values[:, :, self.length : length] = values
        return longer

    def _copied(self, old: Tensor, capacity: int) -> Tensor:
        n = len(old) if self.rows is None else len(self.rows)
        new = old.new_empty(n, old.shape[1], capacity, old.shape[3])
        source, target = old[:, :, : self.length], new[:, :, : self.length]
        if self.rows is None:
            target.copy_(source)
        else:
            torch.index_select(source, 0, self.rows, out=target)
        return new


def all_rows(index: Tensor | slice, n: int) -> bool:
    """Whether an index selects all n rows in order."""
    if isinstance(index, slice):
        return index.indices(n) == (0, n, 1)
    return len(index) == n and torch.equal(index, torch.arange(n, device=index.device))
