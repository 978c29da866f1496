"""Per-unit gradient clipping: each unit's gradient cut to a norm, then summed.

Abadi et al. (2016), "Deep Learning with Differential Privacy", Algorithm 1:

    sum over units i of  g_i * min(1, C / ||g_i||_2)

and divided by how many are expected, as part of the same factor: no pass over memory divides.
A sequence's loss is the sum of its tokens' cross-entropies over a fixed number of tokens, so that
its gradient depends on it alone: a mean over a batch's tokens would not.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vestige.defences.row_masks import StepChance
from vestige.models.protocols import LanguageModel, TwoParts
from vestige.training.batches import IGNORED, Batch


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How units are clipped and averaged.

    Attributes:
        max_grad_norm: C.
        tokens_per_sequence: what a sequence's summed loss is divided by.
        expected_units: what the clipped sum is divided by.
        chance: what dropout draws from; None: torch's generators, as they are.
    """

    max_grad_norm: float
    tokens_per_sequence: float
    expected_units: float
    chance: StepChance | None = None

    def keys(self, numbers: Tensor) -> Tensor:
        """int64 (rows,) what the dropout masks of rows with these numbers follow from."""
        if self.chance is None:
            return torch.randint(-(1 << 63), (1 << 63) - 1, numbers.shape, device=numbers.device)
        return self.chance.keys(numbers)

    def by_row(self, numbers: Tensor) -> AbstractContextManager[None]:
        """Dropout masks by the numbers of the rows that are read."""
        return nullcontext() if self.chance is None else self.chance.by_row(numbers)

    def alone(self, numbers: Tensor) -> AbstractContextManager[None]:
        """Chance of a unit that is read by itself, by the numbers of its rows."""
        if self.chance is None:
            return nullcontext()
        return self.chance.alone(int(numbers[0]))

    def weights(self, norms: Tensor) -> Tensor:
        """min(1, C / norm) / expected_units.

        Raises:
            FloatingPointError: a norm is not finite.
        """
        return coefficients(norms, self.max_grad_norm) / self.expected_units


@dataclass(frozen=True)
class Clipped:
    """What was added to the gradients.

    Attributes:
        norms: (units,) L2 norms before clipping.
        loss: scalar, summed cross-entropy of all targets that count, in nats.
    """

    norms: Tensor
    loss: Tensor


ClipFn = Callable[[LanguageModel, Batch, Rule], Clipped]
"""Adds a batch's clipped, averaged gradients to `.grad` of every trainable parameter, which is
there."""


def numbers_of(batch: Batch) -> Tensor:
    """int64 (b,) of the rows in the training set; where a batch has none, places in it."""
    if batch.numbers is not None:
        return batch.numbers
    return torch.arange(len(batch.inputs), device=batch.inputs.device)


def coefficients(norms: Tensor, max_grad_norm: float) -> Tensor:
    """min(1, C / norm); a gradient of zero stays zero.

    Raises:
        FloatingPointError: a norm is not finite: 0 times infinity would be no bound.
    """
    if not bool(norms.isfinite().all()):
        raise FloatingPointError("norms must be finite, got a gradient that is not")
    return (max_grad_norm / norms.clamp_min(1e-12)).clamp(max=1.0)


def measured_norms(norms: list[Tensor], clipped: list[Tensor]) -> dict[str, float]:
    """Median of norms and the share that was clipped, each tensor (units,); empty without any."""
    every = torch.cat(norms) if norms else torch.empty(0)
    if not len(every):
        return {}
    share = torch.cat(clipped).float().mean()
    return {"median_norm": every.median().item(), "clipped": share.item()}


def trainable(model: nn.Module) -> list[Any]:
    """The parameters that learn, each once."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def summed_losses(model: LanguageModel, batch: Batch) -> Tensor:
    """(b,) each sequence's summed cross-entropy in nats, in the graph.

    Where rows are padded, a head that does not learn is asked for the targets that count alone.
    """
    if not (batch.padding and isinstance(model, TwoParts) and _reads_alone(model)):
        logits = model(batch.inputs, None)[0].flatten(0, 1).float()
        each = cross_entropy(logits, batch.targets.flatten(), reduction="none")
        return each.view(batch.targets.shape).sum(1)
    counts = batch.targets != IGNORED
    hidden, _ = model.body(batch.inputs, None)
    logits = model.predict(hidden[counts]).float()
    each = cross_entropy(logits, batch.targets[counts], reduction="none")
    return each.new_zeros(counts.shape).masked_scatter(counts, each).sum(1)


def _reads_alone(model: TwoParts) -> bool:
    """Whether the head is apart and does not learn: one that learns has to see the rows."""
    head = getattr(model, "head", None)
    if not (model.separate_head and isinstance(head, nn.Module)):
        return False
    return not any(parameter.requires_grad for parameter in head.parameters())
