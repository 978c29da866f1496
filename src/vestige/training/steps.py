"""The first door for a defence: how a batch becomes a gradient.

A StepFn runs the model on one batch, puts a gradient into every trainable parameter's `.grad`
(clipped, noised, whatever it is for), where that of the step before still stands, and returns
the batch's mean loss and the state to carry on, both cut from the graph; the loop then lets the
optimizer move. It draws chance from torch's global generators only: those are seeded by the
loop and held in its checkpoints.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vestige.models.protocols import LanguageModel
from vestige.training.batches import Batch
from vestige.training.precision import autocast

StepFn = Callable[[LanguageModel, Batch, Any], tuple[Tensor, Any]]


def plain_step(
    *, max_grad_norm: float | None = None, precision: torch.dtype = torch.float32
) -> StepFn:
    """The step of an undefended training: mean cross-entropy, gradient cut to a norm.

    Args:
        max_grad_norm: the L2 norm that the gradient is cut to; None leaves it.
        precision: of the forward pass; parameters and gradients stay what they are.
    """

    def step(model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        with autocast(precision, batch.inputs.device):
            logits, state = model(batch.inputs, state)
            loss = cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        # Dropped only here, the old gradients leave holes that fit the new ones: dropped before the
        # forward pass, the logits would take them and every step would ask for fresh pages.
        model.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        return loss.detach(), None if state is None else state.detach()

    return step
