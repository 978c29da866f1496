"""Training steps, which compute the gradient of a batch. Defences have their own.

A StepFn runs the model on one batch, fills `.grad` of every trainable parameter, and returns the
mean loss of the batch and the next state, both detached. The loop then calls the optimizer. A step
uses torch's global generators only, which the loop seeds and stores in checkpoints; a private step
also uses a secret. It raises FloatingPointError if a value is not finite. A step may be an object
with `settings` (part of the training's identity) and the methods of `Learns`, `Measures` and
`Private`.

Precision: on a CPU `auto` is float32, so that one seed gives one result on every machine: after two
epochs with the same seed, perplexity was 457 in float32 and 466 in bfloat16. bfloat16 is 1.5 times
faster on a CPU with AMX and seven times slower on one with AVX2 only. On a GPU `auto` is bfloat16
if the hardware supports it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vestige.models.protocols import LanguageModel, TwoParts
from vestige.training.batches import IGNORED, Batch
from vestige.training.config import TrainingConfig
from vestige.training.secret import Secret

StepFn = Callable[[LanguageModel, Batch, Any], tuple[Tensor, Any]]


@runtime_checkable
class Learns(Protocol):
    """Step with trainable state of its own, which is part of a checkpoint."""

    def tensors(self) -> dict[str, Tensor]: ...

    def restore(self, saved: Mapping[str, Tensor]) -> None: ...


@runtime_checkable
class Measures(Protocol):
    """Step with measurements for the log: means by name since the last call."""

    def measured(self) -> dict[str, float]: ...


@runtime_checkable
class Private(Protocol):
    """Step with secret randomness; `draw_from` sets the secret of a step, counted from 0."""

    def draw_from(self, secret: Secret, step: int) -> None: ...


class Reading(NamedTuple):
    """Forward pass of a batch.

    Attributes:
        loss: mean cross-entropy of the targets that count, in nats.
        last: (b, h) input of the head after the last token of each row; None if the model has no
            separate head.
        state: after the last token, in the graph.
    """

    loss: Tensor
    last: Tensor | None
    state: Any


def plain_step(
    *, max_grad_norm: float | None = None, precision: torch.dtype = torch.float32
) -> StepFn:
    """Step without a defence: mean cross-entropy, with the gradient clipped to an L2 norm.

    `precision` is that of the forward pass; parameters and gradients keep their own.
    """

    def step(model: Any, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        if not batch.tokens:  # a Poisson sample may be empty
            return no_step(model, batch)
        with autocast(precision, batch.inputs.device):
            reader = model if batch.sources is None else model.reading(batch.sources)
            reading = read(reader, batch, state)
        descend(model, reading.loss, max_grad_norm)
        # The state of a decoder has its source, and no batch continues it.
        after = reading.state if batch.sources is None else None
        return reading.loss.detach(), detached(after)

    return step


def read(model: LanguageModel, batch: Batch, state: Any = None) -> Reading:
    """Forward pass: loss of a batch and last hidden states of its rows.

    The head skips padding.
    """
    if not (isinstance(model, TwoParts) and model.separate_head):
        logits, state = model(batch.inputs, state)
        return Reading(cross_entropy(logits.flatten(0, 1), batch.targets.flatten()), None, state)
    hidden, state = model.body(batch.inputs, state)
    return read_hidden(model, batch, hidden, state)


def read_hidden(model: LanguageModel, batch: Batch, hidden: Tensor, state: Any) -> Reading:
    """`read` for given hidden vectors (b, t, h) and a state; the model has a separate head."""
    assert isinstance(model, TwoParts)
    if batch.padding:
        counts = batch.targets != IGNORED
        loss = cross_entropy(model.predict(hidden[counts]), batch.targets[counts])
    else:
        loss = cross_entropy(model.predict(hidden).flatten(0, 1), batch.targets.flatten())
    return Reading(loss, last_hidden(hidden, batch), state)


def last_hidden(hidden: Tensor, batch: Batch) -> Tensor:
    """(b, t, h) -> (b, h): hidden vector after the last token of each row."""
    if batch.lengths is None:
        return hidden[:, -1]
    return hidden[torch.arange(len(hidden), device=hidden.device), batch.lengths - 1]


def descend(model: LanguageModel, loss: Tensor, max_grad_norm: float | None) -> None:
    """Replace the gradients of a model by those of a loss, clipped to a norm."""
    # Freed here, the old gradients leave room for the new ones. Freed before the forward pass,
    # their memory would go to the logits, and every step would allocate new pages.
    model.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    if max_grad_norm is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)


def no_step(model: LanguageModel, batch: Batch) -> tuple[Tensor, None]:
    """Zero gradient and zero loss, for an empty batch."""
    model.zero_grad(set_to_none=True)
    return torch.zeros((), device=batch.inputs.device), None


def detached(state: Any) -> Any:
    """A state without its graph; None stays None."""
    return None if state is None else state.detach()


def choose_precision(
    wanted: Literal["auto", "float32", "bfloat16"], device: torch.device
) -> torch.dtype:
    """The dtype of matrix products; `auto` is bfloat16 on a GPU that supports it, else float32."""
    if wanted == "auto":
        on_gpu = device.type == "cuda"
        native = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if native else torch.float32
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def settled(config: TrainingConfig, device: torch.device) -> TrainingConfig:
    """The configuration with the precision that `auto` selects on a device, for the record.

    Example:
        >>> settled(TrainingConfig(seed=0), torch.device("cpu")).precision
        'float32'
    """
    native = choose_precision(config.precision, device) == torch.bfloat16
    return replace(config, precision="bfloat16" if native else "float32")


@contextmanager
def autocast(precision: torch.dtype, device: torch.device) -> Iterator[None]:
    """Compute matrix products in `precision`; weights and gradients stay float32.

    On a CPU without the instructions, recurrent layers of oneDNN fail in bfloat16; those of torch
    do not.
    """
    enabled = precision != torch.float32
    native = device.type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled):
        if native or not enabled:
            yield
            return
        before = torch.backends.mkldnn.set_flags(_enabled=False)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            torch.backends.mkldnn.set_flags(_enabled=before[0])  # type: ignore[no-untyped-call]
