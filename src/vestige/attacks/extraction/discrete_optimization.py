r"""Gradient descent over mixtures of candidate words: the attack of the paper.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
equations 1 to 3 and appendix B: an unknown word is a softmax over its candidates,

.. math:: a_{i,v} = \frac{e^{z_{i,v}/T}}{\sum_j e^{z_{i,j}/T}}, \qquad T_t = 0.997^t / 10

whose logits z are all that is optimised (Adam, 250 epochs, 6.5e-3 falling by 0.995 an epoch).

Differs from the paper: it does not say where z starts. The start decides the attack, since all
steps together move a logit by less than 1: one start from zero, the default here, was its strongest
reading in our measurements; starts from N(0, 1) have almost chosen before they move. All trials
and starts are one batch with one backward pass a step, and the words that come out are ranked by
their own loss.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.extraction.candidates import Candidates, rescored
from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.monitor import Step as Progress


@dataclass(frozen=True, kw_only=True)
class DiscreteOptimization:
    """The paper's attack; its settings are the paper's.

    Attributes:
        starts: from how many logits to start; the best by the words' loss is taken.
        scale: starts are drawn from N(0, scale^2); 0 for the one start from zero.
        epochs: steps.
        learning_rate: of the first epoch.
        decay: what the learning rate is multiplied by after each epoch.
        temperature: of the first epoch.
        cooling: what the temperature is multiplied by after each epoch.

    Raises:
        ValueError: a setting is out of range, or there are several starts from zero.
    """

    name = "paper"
    starts: int = 1
    scale: float = 0.0
    epochs: int = 250
    learning_rate: float = 6.5e-3
    decay: float = 0.995
    temperature: float = 0.1
    cooling: float = 0.997

    def __post_init__(self) -> None:
        _validate.at_least(1, starts=self.starts, epochs=self.epochs)
        _validate.at_least(0, scale=self.scale)
        _validate.positive(learning_rate=self.learning_rate, temperature=self.temperature)
        _validate.positive(decay=self.decay, cooling=self.cooling)
        if self.starts > 1 and not self.scale:
            raise ValueError(
                f"scale must be positive with {self.starts} starts, got 0: they would be all alike"
            )

    def search(
        self,
        objective: ExtractionObjective,
        generator: torch.Generator,
        progress: Progress | None = None,
    ) -> Candidates:
        """The likeliest words of each start, ranked by their own loss."""
        shape = (self.starts, *objective.mask.shape)
        logits = (torch.randn(shape, generator=generator) * self.scale).to(objective.options)
        logits = logits.masked_fill(~objective.mask, -torch.inf).expand(objective.trials, *shape)

        def loss(z: Tensor, epoch: int) -> Tensor:
            temperature = self.temperature * self.cooling**epoch
            return objective.soft_losses((z / temperature).softmax(-1)).sum()

        found = descend(
            logits,
            loss,
            at_once=objective.at_once,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            decay=self.decay,
            progress=progress,
        )
        return rescored(objective, found.argmax(-1), gradients=self.starts * self.epochs)


def descend(
    start: Tensor,
    loss: Callable[[Tensor, int], Tensor],
    *,
    at_once: int,
    epochs: int,
    learning_rate: float,
    decay: float,
    progress: Progress | None,
) -> Tensor:
    """Adam from starts (trials, starts, ...), as many starts at once as have room.

    Args:
        start: the first values.
        loss: the summed loss of some of the starts (trials, k, ...), given the epoch, from 0.
        at_once: starts that are asked together.
        epochs: steps.
        learning_rate: of the first epoch.
        decay: what it is multiplied by after each epoch.
        progress: told (steps done, steps in all).
    """
    parts = torch.split(start, at_once, dim=1)
    done = []
    for number, part in enumerate(parts):
        values = part.detach().clone().requires_grad_()
        optimizer = torch.optim.Adam([values], lr=learning_rate)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
        for epoch in range(epochs):
            optimizer.zero_grad()
            # the model's own parameters get no gradient
            loss(values, epoch).backward(inputs=[values])  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            if progress:
                progress(number * epochs + epoch + 1, len(parts) * epochs)
        done.append(values.detach())
    return torch.cat(done, 1)
