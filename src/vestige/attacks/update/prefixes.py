"""Prefixes that are read only when they are asked: states of many rows are never all held.

A state of a large model is megabytes a row, and a search that begins with every token of the
vocabulary has as many rows. What would not fit is read again from the last states that did, slice
by slice, as scores are.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vestige.attacks.update.model_pair import ModelPair, PairState

HELD_BYTES = 128 * 2**20
"""Memory that the states of one set of prefixes may take, both models together."""


@dataclass(frozen=True)
class Prefixes:
    """k prefixes of one length, in two models.

    Attributes:
        pair: what reads them.
        held: what m rows have read.
        row: (k,) which of these each prefix goes on from.
        since: (k, j) tokens that each has to read after that.
    """

    pair: ModelPair
    held: PairState
    row: Tensor
    since: Tensor

    @classmethod
    def start(cls, pair: ModelPair) -> "Prefixes":
        """One empty prefix, at the beginning of a text."""
        row = torch.zeros(1, dtype=torch.int64, device=pair.device)
        return cls(pair, pair.start(1), row, row.new_empty(1, 0))

    def __len__(self) -> int:
        return len(self.row)

    def read(self, rows: slice) -> PairState:
        """The states of some of the prefixes."""
        state = self.held[self.row[rows]]
        for token in self.since[rows].T:
            state = self.pair.advance(state, token)
        return state

    def extended(self, parent: Tensor, token: Tensor) -> "Prefixes":
        """Prefixes one token longer; held where their states take `HELD_BYTES` or less.

        Args:
            parent: (k,) which prefix each goes on from.
            token: (k,) the token that it adds.
        """
        since = torch.cat([self.since[parent], token[:, None]], 1)
        longer = Prefixes(self.pair, self.held, self.row[parent], since)
        if not len(longer) or longer.read(slice(1)).nbytes * len(longer) > HELD_BYTES:
            return longer
        every = torch.arange(len(longer), device=token.device)
        return Prefixes(self.pair, longer.read(slice(None)), every, since[:, :0])
