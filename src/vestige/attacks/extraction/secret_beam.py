"""Left-to-right beam search for a secret.

A beam of beginnings grows by one word after the other; words that are still unknown are the mean
of their candidates' vectors (equation 2 of Parikh, Dupuy and Gupta 2022, with equal weights).
Filling them with the best of four random choices instead found the least loss no more often in
the same time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.extraction.candidates import Candidates, rescored
from vestige.attacks.extraction.discrete_optimization import one_hot_weights
from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.attacks.update.beam_search import Progress
from vestige.models.largest import largest


@dataclass(frozen=True, kw_only=True)
class SecretBeam:
    """Left-to-right beam search.

    Attributes:
        width: beginnings that are kept.
    """

    name = "beam"
    width: int = 200

    def __post_init__(self) -> None:
        _validate.at_least(1, width=self.width)

    def search(
        self,
        objective: ExtractionObjective,
        generator: torch.Generator,
        progress: Progress | None = None,
    ) -> Candidates:
        """The whole secrets that the beam ends with; nothing is left to chance."""
        sizes, mixtures = objective.sizes, 0
        shape = (objective.trials, 1, len(sizes))
        beam = torch.zeros(shape, dtype=torch.int64, device=objective.device)
        for place, size in enumerate(sizes):
            beam = _grown(beam, place, size)
            if place + 1 < len(sizes) and beam.shape[1] > self.width:
                mixtures += beam.shape[1]
                losses = _partial_losses(objective, beam, place + 1)
                best = largest(-losses, self.width)
                beam = beam.gather(1, best[:, :, None].expand(-1, -1, len(sizes)))
            if progress:
                progress(place + 1, len(sizes))
        return rescored(objective, beam, besides=mixtures)


def _grown(beam: Tensor, place: int, size: int) -> Tensor:
    """Every beginning (trials, k, n) with every word at a place: (trials, k * size, n)."""
    grown = beam[:, :, None].repeat(1, 1, size, 1)
    grown[..., place] = torch.arange(size, device=beam.device)
    return grown.flatten(1, 2)


@torch.no_grad()
def _partial_losses(objective: ExtractionObjective, beam: Tensor, known: int) -> Tensor:
    """Losses (trials, k) of secrets of which the first words are known."""
    mean = objective.mask / objective.mask.sum(1, keepdim=True)
    found = []
    for part in torch.split(beam, objective.at_once, dim=1):
        weights = one_hot_weights(objective, part)
        weights[:, :, known:] = mean[known:].to(weights)
        found.append(objective.soft_losses(weights))
    return torch.cat(found, 1)
