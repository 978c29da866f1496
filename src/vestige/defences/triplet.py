"""Triplet privacy regularizer: users' hidden states pulled together, a user's own apart.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in Language
Models", section 2.2, equation 4. With h the last hidden states of a batch and of an auxiliary one,
paired row by row:

    cross-entropy + weight * (sum over pairs of two users ||h_x - h_a|| - sum over pairs of one)

In-batch pairs are a variant of ours: each row is paired with another row of its own batch, which
needs no second forward pass. An auxiliary batch is read in one pass with the batch itself.

Differs from the paper: a mean over pairs in place of a sum, so that the weight does not depend on
the batch's size. The loss has no lower bound; a weight near 1 collapses the hidden states.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import pairwise_distance

from vestige import _validate
from vestige.defences.user_hidden_states import (
    RunningMeans,
    UserHiddenStates,
    read_both,
    read_linkable,
    users_of,
)
from vestige.models.protocols import LanguageModel, TwoParts
from vestige.training.batches import Batch
from vestige.training.precision import autocast
from vestige.training.sequences import SequenceBatches
from vestige.training.steps import descend, detached, last_hidden, no_step

Pairing = Literal["auxiliary", "in-batch"]


class TripletStep:
    """A StepFn that blurs who wrote what.

    Args:
        weight: lambda of equation 1, at least 0.
        auxiliary: where auxiliary batches are drawn from; None pairs within the batch.
        max_grad_norm: the norm that the gradient is cut to; None leaves it.
        precision: of the forward passes.
    """

    identity: ClassVar[str] = "Triplet"

    def __init__(
        self,
        *,
        weight: float,
        auxiliary: SequenceBatches | None = None,
        max_grad_norm: float | None = None,
        precision: torch.dtype = torch.float32,
    ) -> None:
        _validate.at_least(0, weight=weight)
        self.weight, self.auxiliary = weight, auxiliary
        self.max_grad_norm, self.precision = max_grad_norm, precision
        self._means = RunningMeans()

    @property
    def settings(self) -> dict[str, object]:
        """What the step depends on."""
        pairing: Pairing = "in-batch" if self.auxiliary is None else "auxiliary"
        return {"weight": self.weight, "pairing": pairing}

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Put the gradient of both terms into `.grad`."""
        users_of(batch)
        if not batch.tokens:
            return no_step(model, batch)
        with autocast(self.precision, batch.inputs.device):
            found, other, owners = self._read(model, batch, state)
        rows = len(owners)
        term = triplet_loss(found.last[:rows], other.float(), found.users[:rows] == owners)
        descend(model, found.reading.loss + self.weight * term, self.max_grad_norm)
        self._means.add(triplet_loss=term.detach(), hidden_spread=found.last.detach().std())
        return found.reading.loss.detach(), detached(found.reading.state)

    def _read(
        self, model: LanguageModel, batch: Batch, state: Any
    ) -> tuple[UserHiddenStates, Tensor, Tensor]:
        """The batch, and what its rows are paired with: hidden states (k, h) and users (k,)."""
        if self.auxiliary is None:
            found = read_linkable(model, batch, state)
            shift = int(torch.randint(1, max(2, len(found.last)), ()).item())
            return found, found.last.roll(shift, 0), found.users.roll(shift, 0)
        drawn = self.auxiliary.auxiliary(len(batch.inputs))
        owners = users_of(drawn)
        if self.weight and state is None and isinstance(model, TwoParts) and model.separate_head:
            return *read_both(model, batch, drawn), owners
        found = read_linkable(model, batch, state)
        assert isinstance(model, TwoParts)
        with torch.set_grad_enabled(self.weight > 0):  # at 0 it is measured and teaches nothing
            hidden, _ = model.body(drawn.inputs)
        return found, last_hidden(hidden, drawn), owners

    def measured(self) -> dict[str, float]:
        """The triplet term, and the hidden states' standard deviation: near 0 they collapsed."""
        return self._means.take()


def triplet_loss(states: Tensor, others: Tensor, same_user: Tensor) -> Tensor:
    """Mean over pairs of their distance, negative where both are one user's.

    Args:
        states: (k, h).
        others: (k, h), paired with them.
        same_user: bool (k,).

    Example:
        >>> states, others = torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([[3.0, 4.0]] * 2)
        >>> triplet_loss(states, others, torch.tensor([False, True])).item()
        0.0
    """
    distance = pairwise_distance(states, others)
    return torch.where(same_user, -distance, distance).mean()
