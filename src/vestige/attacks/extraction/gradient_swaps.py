r"""Word replacements that a gradient proposes.

Ebrahimi, Rao, Lowd and Dou (2018), "HotFlip: White-Box Adversarial Examples for Text
Classification", and Zou et al. (2023), "Universal and Transferable Adversarial Attacks on Aligned
Language Models": one gradient estimates what every single replacement would cost,

.. math:: L(u_i \to v) - L \approx \partial L / \partial a_{i,v} - \partial L / \partial a_{i,u_i}

and the most promising ones are tried exactly.

Differs from them: the loss is that of Parikh, Dupuy and Gupta (2022), equation 3, and the best
replacement is taken only where it helps.
"""

from dataclasses import dataclass

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
from vestige.attacks.extraction.discrete_optimization import one_hot_weights
from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.attacks.update.beam_search import Progress
from vestige.models.largest import largest


@dataclass(frozen=True, kw_only=True)
class GradientSwaps:
    """Replacements that a gradient proposes, from several random secrets.

    Attributes:
        restarts: random secrets to begin with.
        proposals: replacements that are tried at each step.
        steps: at most so many from each beginning.
    """

    name = "gradient"
    restarts: int = 20
    proposals: int = 16
    steps: int = 50

    def __post_init__(self) -> None:
        _validate.at_least(1, restarts=self.restarts, proposals=self.proposals, steps=self.steps)

    def search(
        self,
        objective: ExtractionObjective,
        generator: torch.Generator,
        progress: Progress | None = None,
    ) -> Candidates:
        """The secrets of least loss on the way of all restarts."""
        asked: list[int] = []

        def step(current: Tensor, tried: list[CandidateTally]) -> Tensor:
            asked.append(current.shape[1])
            return best_move(objective, proposed(objective, current, self.proposals), tried)

        start = objective.random(self.restarts, generator)
        tried = climb(objective, start, step, steps=self.steps, progress=progress)
        return gathered(objective, tried, gradients=sum(asked))


def proposed(objective: ExtractionObjective, secrets: Tensor, number: int) -> Tensor:
    """Secrets (trials, k, n) as they are, and with their most promising replacements.

    Returns:
        int64 (trials, k, o, n), the first option the secret itself; o is number + 1 or, where
        there are not so many replacements, all of them and one.
    """
    parts = [_promise(objective, part) for part in torch.split(secrets, objective.at_once, dim=1)]
    promise = torch.cat(parts, 1).flatten(2)
    most = min(number, int(objective.mask.sum()) - len(objective.sizes))
    best = largest(-promise, most)
    place, word = best // objective.mask.shape[1], best % objective.mask.shape[1]
    options = secrets[:, :, None].repeat(1, 1, most + 1, 1)
    options[:, :, 1:].scatter_(3, place[..., None], word[..., None])
    return options


def _promise(objective: ExtractionObjective, secrets: Tensor) -> Tensor:
    """First-order change of the loss (trials, k, n, c) by each replacement."""
    weights = one_hot_weights(objective, secrets).requires_grad_()
    (slope,) = torch.autograd.grad(objective.soft_losses(weights).sum(), weights)
    change = slope - slope.gather(3, secrets[..., None])
    change = change.masked_fill(~objective.mask, torch.inf)
    return change.scatter(3, secrets[..., None], torch.inf)
