"""Optimisation of the unknown words' vectors: the paper's baseline attack.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 3.1: vectors start at random, the loss is minimised over them, and each becomes the word
whose vector is nearest by Euclidean distance.

Differs from the paper: the nearest word is sought among the candidates and not in the whole
vocabulary, which makes the attack stronger. The paper gives no settings for it: vectors start from
a normal distribution with the candidates' mean and spread in each dimension, and Adam and its
epochs are those of the discrete attack.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.extraction.candidates import Candidates, rescored
from vestige.attacks.extraction.discrete_optimization import descend
from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.monitor import Step as Progress


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptimization:
    """The trivial attack.

    Attributes:
        starts: how many random beginnings; the best by the words' loss is taken.
        epochs: steps.
        learning_rate: of the first epoch.
        decay: what the learning rate is multiplied by after each epoch.
    """

    name = "embedding"
    starts: int = 1
    epochs: int = 250
    learning_rate: float = 6.5e-3
    decay: float = 0.995

    def __post_init__(self) -> None:
        _validate.at_least(1, starts=self.starts, epochs=self.epochs)
        _validate.positive(learning_rate=self.learning_rate, decay=self.decay)

    def search(
        self,
        objective: ExtractionObjective,
        generator: torch.Generator,
        progress: Progress | None = None,
    ) -> Candidates:
        """The candidates nearest to each start's vectors, ranked by their own loss."""
        found = descend(
            self._beginnings(objective, generator),
            lambda vectors, _: objective.vector_losses(vectors).sum(),
            at_once=objective.at_once,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            decay=self.decay,
            progress=progress,
        )
        return rescored(objective, nearest(objective, found), gradients=self.starts * self.epochs)

    def _beginnings(self, objective: ExtractionObjective, generator: torch.Generator) -> Tensor:
        share = objective.mask / objective.mask.sum(1, keepdim=True)
        mean = torch.einsum("nc,rncd->rnd", share.to(objective.options), objective.options)
        square = torch.einsum("nc,rncd->rnd", share.to(objective.options), objective.options**2)
        spread = (square - mean**2).clamp_min(0).sqrt()
        drawn = torch.randn((self.starts, *mean.shape[1:]), generator=generator).to(mean)
        return mean[:, None] + drawn * spread[:, None]


def nearest(objective: ExtractionObjective, vectors: Tensor) -> Tensor:
    """Numbers (trials, k, n) of the candidates nearest to vectors (trials, k, n, d)."""
    distance = torch.cdist(vectors.transpose(1, 2), objective.options)  # (trials, n, k, c)
    return distance.masked_fill(~objective.mask[:, None], torch.inf).argmin(-1).transpose(1, 2)
