"""Tokens that the update promoted most at a document's beginning, or behind a prompt."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch

from vestige import _validate
from vestige.attacks.update import extension
from vestige.attacks.update.extension import BLOCK, Seed
from vestige.attacks.update.forward_tokens import Passes, Work
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.proposals.protocol import Ground, Outcome, Unit, Units
from vestige.models.largest import ROUNDED, largest


@dataclass(frozen=True, kw_only=True)
class Openings:
    """Seeds behind each start: the document's beginning and every prompt.

    Attributes:
        openings: tokens to start from, over all starts together; at least one of each.
        beam: hypotheses kept for each, which one unlikely token must not end.
    """

    name: ClassVar[str] = "openings"
    openings: int = 100
    beam: int = 4

    def __post_init__(self) -> None:
        _validate.positive(openings=self.openings, beam=self.beam)

    def units(self, ground: Ground) -> Units:
        """For each start its most promoted tokens, then these grown in blocks."""
        for place, start in enumerate(ground.starts):
            number = self._share(len(ground.starts), place)
            found = yield Unit(f"openings/{place}", partial(_opened, ground, start, number))
            for block, first in enumerate(range(0, number, BLOCK)):
                seeds = found.seeds[first : first + BLOCK]
                run = partial(ground.grown, seeds, self.name, beam=self.beam)
                yield Unit(f"openings/{place}/grown/{block}", run)

    def planned(self, pair: ModelPair, starts: Sequence[tuple[int, ...]]) -> Work:
        """Each start is read once and its tokens grown."""
        parts = []
        for place, start in enumerate(starts):
            number, context = self._share(len(starts), place), len(start)
            read = Passes(proposal=self.name, kind="prefill", rows=1, tokens=context, asked=1)
            grown = extension.expected(
                number, proposal=self.name, beam=self.beam, context=context, alike=True
            )
            parts.append(Work(1 + -(-number // BLOCK), (read, *grown)))
        return Work.together(parts)

    def _share(self, starts: int, place: int) -> int:
        return max(1, len(range(place, self.openings, starts)))


def _opened(ground: Ground, start: tuple[int, ...], number: int) -> Outcome:
    """The tokens of highest gain behind a start.

    What surprises is no matter here: any one beginning of a document does, however much promoted.
    """
    pair = ground.plain
    gains = pair.gains(pair.read(torch.tensor([start], device=pair.device)))[0]
    gains[ground.never] = -torch.inf
    best = largest(gains, min(number, len(gains) - len(ground.never)), alike=ROUNDED)
    found = zip(best.tolist(), gains[best].tolist(), strict=True)
    return Outcome(seeds=tuple(Seed(start, token, gain) for token, gain in found))
