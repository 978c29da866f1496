"""Coordinate descent over the words of a secret.

Each of several random secrets takes, place by place, the word of least loss, then the swap of two
places that helps most, until nothing does: near misses are often the right words in another
order. The classical greedy search (iterated conditional modes: Besag 1986, "On the Statistical
Analysis of Dirty Pictures") on the loss of Parikh, Dupuy and Gupta (2022), equation 3.

Differs from the paper: it needs no gradient, and every step is judged by the loss of real words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.extraction.candidates import (
    Candidates,
    CandidateTally,
    best_move,
    climb,
    gathered,
)
from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.attacks.update.beam_search import Progress


@dataclass(frozen=True, kw_only=True)
class CoordinateDescent:
    """Coordinate descent with restarts and swaps.

    Attributes:
        restarts: random secrets to begin with.
        sweeps: times that every place is looked at, at most.
    """

    name = "coordinate"
    restarts: int = 20
    sweeps: int = 20

    def __post_init__(self) -> None:
        _validate.at_least(1, restarts=self.restarts, sweeps=self.sweeps)

    def search(
        self,
        objective: ExtractionObjective,
        generator: torch.Generator,
        progress: Progress | None = None,
    ) -> Candidates:
        """The secrets of least loss on the way of all restarts."""

        def sweep(current: Tensor, tried: list[CandidateTally]) -> Tensor:
            for place in torch.randperm(len(objective.sizes), generator=generator).tolist():
                current = best_move(objective, replaced(objective, current, place), tried)
            return best_move(objective, swapped(current, objective.sizes), tried)

        start = objective.random(self.restarts, generator)
        tried = climb(objective, start, sweep, steps=self.sweeps, progress=progress)
        return gathered(objective, tried)


def replaced(objective: ExtractionObjective, secrets: Tensor, place: int) -> Tensor:
    """Secrets (trials, k, n) as they are, then with every other candidate at a place.

    Returns:
        int64 (trials, k, o, n).
    """
    size = objective.sizes[place]
    options = secrets[:, :, None].repeat(1, 1, size, 1)
    other = torch.arange(1, size, device=secrets.device)
    options[:, :, 1:, place] = (secrets[:, :, place, None] + other) % size
    return options


def swapped(secrets: Tensor, sizes: Sequence[int]) -> Tensor:
    """Secrets (trials, k, n) as they are, and with each two places swapped: (trials, k, o, n).

    Places with different numbers of candidates are never swapped.
    """
    places = list(range(len(sizes)))
    orders = [places]
    for i, j in combinations(places, 2):
        if sizes[i] == sizes[j]:
            order = list(places)
            order[i], order[j] = j, i
            orders.append(order)
    return secrets[:, :, torch.tensor(orders, device=secrets.device)]
