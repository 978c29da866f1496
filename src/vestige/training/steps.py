"""Steps: how a batch becomes a gradient. Defences bring their own.

A StepFn runs the model on one batch, puts a gradient into every trainable parameter's `.grad`
(clipped, noised, whatever it is for), where that of the step before still stands, and returns
the batch's mean loss and the state to carry on, both cut from the graph; the loop then lets the
optimizer move. It draws chance from torch's global generators only: those are seeded by the
loop and held in its checkpoints. A private step is handed a secret to draw from as well. It raises
FloatingPointError where it meets what is not finite and cannot go on.

A step may be an object that says more of itself: `settings` (what it depends on, part of the
training's identity), `tensors` and `restore` (what it learns besides the model, part of the
checkpoint), `measured` (numbers for the log since last asked), `draw_from` (that a guarantee of
differential privacy counts on its chance).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vestige.models.protocols import LanguageModel, TwoParts
from vestige.training.batches import IGNORED, Batch
from vestige.training.precision import autocast
from vestige.training.secret import Secret

StepFn = Callable[[LanguageModel, Batch, Any], tuple[Tensor, Any]]


@runtime_checkable
class Learns(Protocol):
    """Step with learnt state of its own."""

    def tensors(self) -> dict[str, Tensor]:
        """State that the next call depends on."""
        ...

    def restore(self, kept: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors` gave."""
        ...


@runtime_checkable
class Measures(Protocol):
    """Step with measurements for the log."""

    def measured(self) -> dict[str, float]:
        """Means since the last call, by name."""
        ...


@runtime_checkable
class Private(Protocol):
    """Step whose guarantee needs secret randomness."""

    def draw_from(self, secret: Secret, step: int) -> None:
        """Draw the noise of step `step`, counted from 0, from a secret."""
        ...


@dataclass(frozen=True)
class Reading:
    """Loss of a batch, and the hidden state at the end of each row.

    Attributes:
        loss: mean cross-entropy of the targets that count, in nats.
        last: (b, h) what the head read after each row's last token; None where the model does
            not show it.
        state: the state after the last token, in the graph.
    """

    loss: Tensor
    last: Tensor | None
    state: Any


def plain_step(
    *, max_grad_norm: float | None = None, precision: torch.dtype = torch.float32
) -> StepFn:
    """The step of an undefended training: mean cross-entropy, gradient cut to a norm.

    Args:
        max_grad_norm: the L2 norm that the gradient is cut to; None leaves it.
        precision: of the forward pass; parameters and gradients stay what they are.
    """

    def step(model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        if not batch.tokens:  # a Poisson sample may be empty
            return no_step(model, batch)
        with autocast(precision, batch.inputs.device):
            reading = read(model, batch, state)
        descend(model, reading.loss, max_grad_norm)
        return reading.loss.detach(), detached(reading.state)

    return step


def read(model: LanguageModel, batch: Batch, state: Any = None) -> Reading:
    """Forward pass: loss of a batch and the rows' last hidden states.

    Where rows are padded, the head is asked for no more than the targets that count.
    """
    if not (isinstance(model, TwoParts) and model.separate_head):
        logits, state = model(batch.inputs, state)
        return Reading(cross_entropy(logits.flatten(0, 1), batch.targets.flatten()), None, state)
    hidden, state = model.body(batch.inputs, state)
    return read_hidden(model, batch, hidden, state)


def read_hidden(model: LanguageModel, batch: Batch, hidden: Tensor, state: Any) -> Reading:
    """`read` from hidden vectors (b, t, h) and a state.

    The model has a separate head.
    """
    assert isinstance(model, TwoParts)
    if batch.padding:
        counts = batch.targets != IGNORED
        loss = cross_entropy(model.predict(hidden[counts]), batch.targets[counts])
    else:
        loss = cross_entropy(model.predict(hidden).flatten(0, 1), batch.targets.flatten())
    return Reading(loss, last_hidden(hidden, batch), state)


def last_hidden(hidden: Tensor, batch: Batch) -> Tensor:
    """(b, t, h) -> (b, h): hidden vector after each row's last token."""
    if batch.lengths is None:
        return hidden[:, -1]
    return hidden[torch.arange(len(hidden), device=hidden.device), batch.lengths - 1]


def descend(model: LanguageModel, loss: Tensor, max_grad_norm: float | None) -> None:
    """Replace the model's gradients by those of a loss, cut to a norm."""
    # Dropped only here, the old gradients leave holes that fit the new ones: dropped before the
    # forward pass, the logits would take them and every step would ask for fresh pages.
    model.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    if max_grad_norm is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)


def no_step(model: LanguageModel, batch: Batch) -> tuple[Tensor, None]:
    """Zero gradient and zero loss, for an empty batch."""
    model.zero_grad(set_to_none=True)
    return torch.zeros((), device=batch.inputs.device), None


def detached(state: Any) -> Any:
    """A state cut from the graph; None stays None."""
    return None if state is None else state.detach()
