"""Pairs of tokens that the update promoted most, of all pairs: each first token its own context."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.update import extension
from vestige.attacks.update.beam_search import best_children
from vestige.attacks.update.extension import BLOCK, Seed
from vestige.attacks.update.forward_tokens import Passes, Work
from vestige.attacks.update.model_pair import ModelPair, PairState
from vestige.attacks.update.proposals.protocol import Ground, Outcome, Unit, Units

FRESH = 0.4
"""Share of the pairs that no phrase has told by then: measured, for the plan alone."""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Seeds among all pairs of tokens, v x v of them: two forward tokens for each of v tokens.

    Attributes:
        seeds: pairs to start from.
        beam: hypotheses kept for each.
        largest: vocabularies of more tokens are not asked for their pairs; None asks any.
    """

    name: ClassVar[str] = "pairs"
    seeds: int = 2000
    beam: int = 1
    largest: int | None = None

    def __post_init__(self) -> None:
        _validate.positive(seeds=self.seeds, beam=self.beam)

    def units(self, ground: Ground) -> Units:
        """The most promoted pairs, then blocks of them grown, best first."""
        if not self._asks(ground.plain):
            return
        best = yield Unit("pairs/all", lambda: Outcome(seeds=tuple(_seeds(ground, self.seeds))))
        for number, first in enumerate(range(0, self.seeds, BLOCK)):
            block = best.seeds[first : first + BLOCK]
            run = partial(ground.grown, block, self.name, beam=self.beam)
            yield Unit(f"pairs/grown/{number}", run)

    def planned(self, pair: ModelPair, starts: Sequence[tuple[int, ...]]) -> Work:
        """One pass over the vocabulary, then the seeds."""
        if not self._asks(pair):
            return Work()
        every = Passes(proposal=self.name, kind="decode", rows=pair.vocab_size,
                       asked=pair.vocab_size)  # fmt: skip
        fresh = round(FRESH * min(self.seeds, pair.vocab_size**2))
        grown = extension.expected(fresh, proposal=self.name, beam=self.beam, context=1)
        return Work(1 + -(-self.seeds // BLOCK), (every, *grown))

    def _asks(self, pair: ModelPair) -> bool:
        return self.largest is None or pair.vocab_size <= self.largest


@dataclass(frozen=True)
class _Unread:
    """An earlier model's state of rows that read their one token only when they are asked for."""

    pair: ModelPair
    tokens: Tensor  # (n,)
    has_read: bool = True

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: Tensor | slice) -> Any:
        return self.pair.entered(self.tokens[index], later=False)


def _seeds(ground: Ground, number: int) -> list[Seed]:
    """Pairs (context, token) of highest gain.

    A document's end may be context, never token, a token for its beginning neither; a token after
    itself begins a run.
    """
    pair = ground.pair
    every = torch.arange(pair.vocab_size, device=pair.device)

    def read(rows: slice) -> PairState:
        context = every[rows]
        return PairState(_Unread(pair, context), pair.entered(context, later=True))

    zero = torch.zeros(pair.vocab_size, device=pair.device)
    kinds = 2 if pair.beginning is None else 4
    for spare in (number, kinds * pair.vocab_size):  # as many as are left out, at most
        best = best_children(pair, read, zero, number + spare)
        able = (best.token != ground.end) & (best.parent != best.token)
        if pair.beginning is not None:
            able &= (best.token != pair.beginning) & (best.parent != pair.beginning)
        use = able.nonzero()[:number, 0]
        if len(use) == number:
            break
    rows = zip(best.parent[use].tolist(), best.token[use].tolist(), best.gain[use].tolist(),
               strict=True)  # fmt: skip
    return [Seed((parent,), token, gain) for parent, token, gain in rows]
