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
from vestige.attacks.extraction.candidates import Candidates, codes, gathered
from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.monitor import Step as Progress


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
        choices: list[Tensor] = []
        losses: list[Tensor] = []

        def best(options: Tensor) -> Tensor:
            """Of options (trials, k, o, n) those of least loss; the first of equals."""
            trials, number, moves, places = options.shape
            choices.append(options.reshape(trials, number * moves, places))
            losses.append(objective.losses(choices[-1]))
            least = losses[-1].view(trials, number, moves).argmin(2)
            return options.gather(2, least[..., None, None].expand(-1, -1, 1, places)).squeeze(2)

        current = objective.random(self.restarts, generator)
        for sweep in range(self.sweeps):
            before = current
            for place in torch.randperm(len(objective.sizes), generator=generator).tolist():
                current = best(replaced(objective, current, place))
            current = still_moving(objective, before, best(swapped(current, objective.sizes)))
            if progress:
                progress(sweep + 1, self.sweeps)
            if not current.shape[1]:
                break
        return gathered(objective, torch.cat(choices, 1), torch.cat(losses, 1))


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


def still_moving(objective: ExtractionObjective, before: Tensor, after: Tensor) -> Tensor:
    """The secrets (trials, k', n) that have moved, each once; k' is 0 where none has.

    Trials with fewer of them than others keep some that stand still, which costs time only.
    """
    code = codes(objective, after)
    alike = code[:, :, None] == code[:, None, :]
    again = alike.tril(-1).any(2)
    moving = (after != before).any(2) & ~again
    order = (~moving).to(torch.int8).argsort(dim=1, stable=True)[:, : int(moving.sum(1).max())]
    return after.gather(1, order[:, :, None].expand(-1, -1, after.shape[2]))
