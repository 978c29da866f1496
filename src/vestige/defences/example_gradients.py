"""Gradients of single examples, formed where a backward pass forms their sum.

The gradient of a linear layer's weight is a product of what went in with what came back, summed
over the tokens of a batch. Summed over the tokens of each example by themselves, it costs the same
multiplications: one forward and one backward pass give every example's gradient, and no norm has to
be computed by other means. The gradients of a LoRA adapter are small, r (in + out) numbers for a
layer and example, so that they are kept until the norms are known. Goodfellow (2015), "Efficient
Per-Example Gradient Computations", arXiv:1510.01799; Lee and Kifer (2021), "Scaling up
Differentially Private Deep Learning with Fast Per-Example Gradient Clipping".

Nothing is hooked and nothing is wrapped: while gradients are gathered, a layer's `forward` is one
whose backward pass gathers. So adapters may have been put on, moved or converted in any order, and
activations may be recomputed (gradient checkpointing).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vestige.defences.clipping import ClipFn, Clipped, Rule, summed_losses, trainable
from vestige.errors import TrainingError
from vestige.models.protocols import LanguageModel
from vestige.training.batches import Batch

WIDEST = 256
"""The rank of an adapter whose gradients are kept for every example."""


class ExampleGradients:
    """Gradients of some units, by parameter: of sequences, or of users with several each.

    Args:
        number: of units.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._held: dict[Tensor, Tensor] = {}

    def add(self, parameter: Tensor, gradients: Tensor, units: Tensor | None) -> None:
        """Add the rows' gradients of one use of a parameter.

        Args:
            parameter: its shape is (o, i).
            gradients: (rows, o, i).
            units: int64 (rows,) the unit of each row, from 0; None: each row is one.
        """
        gradients = gradients.flatten(1)
        if gradients.dtype.itemsize < 4:
            gradients = gradients.float()
        held = self._held.get(parameter)
        if units is None:
            self._held[parameter] = gradients if held is None else held.add_(gradients)
            return
        if held is None:
            held = gradients.new_zeros(self.number, gradients.shape[1])
            self._held[parameter] = held
        held.index_add_(0, units, gradients)

    def norms(self) -> Tensor:
        """(units,) L2 norm of each unit's gradient, all parameters together."""
        each = [torch.linalg.vector_norm(held, dim=1) for held in self._held.values()]
        together = torch.stack([one.to(each[0].device) for one in each])
        norms: Tensor = torch.linalg.vector_norm(together, dim=0)
        return norms

    def add_weighted(self, weights: Tensor) -> None:
        """Add the units' gradients, each times its weight (units,), to `.grad`."""
        # In half precision the sum would be of other gradients than the norms are.
        with torch.autocast(weights.device.type, enabled=False):
            for parameter, held in self._held.items():
                assert parameter.grad is not None
                parameter.grad.add_((weights.to(held) @ held).view_as(parameter))


Deliver = Callable[[Tensor, Tensor], None]
"""Told what went into a layer and what came back to its output, (rows, tokens, .) each."""


class _Gathering(torch.autograd.Function):
    """x W^T whose backward pass hands on what the weight's gradient is made of."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, deliver: Deliver) -> Tensor:
        product = functional.linear(given, weight)
        # Autocast multiplies in half precision; the backward pass then does, too.
        ctx.save_for_backward(given.to(product.dtype), weight)
        ctx.deliver = deliver
        return product

    @staticmethod
    def backward(ctx: Any, *back: Tensor) -> tuple[Tensor | None, None, None]:
        given, weight = ctx.saved_tensors
        (gradient,) = back
        ctx.deliver(given, gradient)
        wanted = ctx.needs_input_grad[0]
        return gradient @ weight.to(gradient.dtype) if wanted else None, None, None


@contextmanager
def gathered(
    model: nn.Module, found: ExampleGradients, rows: int, units: Tensor | None = None
) -> Iterator[None]:
    """Add the gradients of a forward and backward pass to those of units, in place of `.grad`.

    Args:
        model: `suits` it.
        found: what they are added to.
        rows: of the batch.
        units: int64 (rows,) the unit of each row, from 0; None: each row is one.

    Raises:
        TrainingError: a layer sees other rows than those of the batch, so that one row's gradient
            cannot be told from another's; or a weight is used outside its layer.
    """
    learning = _learning(model)
    before = [layer.weight.grad for _, layer in learning]
    for name, layer in learning:
        layer.__dict__["forward"] = _forward(name, layer, found, rows, units)
        layer.weight.grad = None
    try:
        yield
        if any(layer.weight.grad is not None for _, layer in learning):
            raise TrainingError(
                "a trainable weight was used outside its layer, where the gradients of single "
                "sequences cannot be told apart",
                remedy="Train a plain LoRA adapter.",
            )
    finally:
        for (_, layer), gradient in zip(learning, before, strict=True):
            del layer.__dict__["forward"]
            layer.weight.grad = gradient


def _forward(
    name: str, layer: nn.Linear, found: ExampleGradients, rows: int, units: Tensor | None
) -> Callable[[Tensor], Tensor]:
    def deliver(given: Tensor, gradient: Tensor) -> None:
        found.add(layer.weight, torch.bmm(gradient.transpose(1, 2), given), units)

    def forward(given: Tensor) -> Tensor:
        if given.dim() != 3 or len(given) != rows:
            raise TrainingError(
                f"{name} sees an input of shape {tuple(given.shape)} for {rows} sequences, so that "
                "their gradients cannot be told apart",
                remedy="Leave this layer out of the adapter's target_modules.",
            )
        product: Tensor = _Gathering.apply(given, layer.weight, deliver)  # type: ignore[no-untyped-call]
        return product

    return forward


def suits(model: nn.Module) -> bool:
    """Whether all that learns are thin linear layers without bias, as in a LoRA adapter."""
    weights = {id(layer.weight) for _, layer in _learning(model)}
    return bool(weights) and all(id(parameter) in weights for parameter in trainable(model))


def _learning(model: nn.Module) -> list[tuple[str, nn.Linear]]:
    """Thin linear layers that learn, and their names."""
    return [
        (name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
        and _multiplies_alone(layer)
        and layer._parameters["bias"] is None
        and layer.weight.requires_grad
        and min(layer.weight.shape) <= WIDEST
    ]


def _multiplies_alone(layer: nn.Module) -> bool:
    """Whether a layer's `forward` is that of `nn.Linear`, and not of what is built on it."""
    return getattr(type(layer), "forward", None) is nn.Linear.forward


def clip_examples(model: LanguageModel, batch: Batch, rule: Rule) -> Clipped:
    """A `ClipFn` whose units are sequences, for LoRA adapters: see `suits`.

    Raises:
        TrainingError: see `gathered`.
    """
    rows = torch.arange(len(batch.inputs), device=batch.inputs.device)
    return _clip(model, batch, [(rows, rows)], None, rule)


def clip_users_examples(rows_at_once: int | None) -> ClipFn:
    """A `ClipFn` whose units are users, for LoRA adapters.

    Users that have room together are read in one pass, one with more rows in several.

    Args:
        rows_at_once: sequences that are computed together; None: all.
    """

    def clip(model: LanguageModel, batch: Batch, rule: Rule) -> Clipped:
        if batch.users is None:
            raise ValueError("batch must say whose each row is, got users=None")
        return _clip(model, batch, groups(batch.users, rows_at_once), rows_at_once, rule)

    return clip


Losses = Callable[[Tensor], Tensor]
"""The losses (k,) of the chosen rows, int64 (k,), in the graph."""


def clip_groups(
    model: nn.Module,
    together: Iterable[tuple[Tensor, Tensor]],
    rows_at_once: int | None,
    losses: Losses,
    rule: Rule,
) -> Clipped:
    """Add the clipped gradients of groups of units to `.grad`.

    Args:
        model: `suits` it.
        together: rows that are read together and the unit of each, from 0, ascending.
        rows_at_once: rows of a group that are computed at once; None: all.
        losses: of rows. One row's must not depend on the others.
        rule: how each unit is clipped; the losses are taken as they are.

    Returns:
        norms in the order of groups and their units; the loss is the sum of the losses.

    Raises:
        TrainingError: see `gathered`.
    """
    norms, loss = [], torch.zeros(())
    for rows, units in together:
        found = ExampleGradients(int(units[-1]) + 1)
        alone = found.number == len(rows)
        size = rows_at_once or len(rows)
        for some, of in zip(torch.split(rows, size), torch.split(units, size), strict=True):
            with gathered(model, found, len(some), None if alone else of):
                each = losses(some)
                each.sum().backward()  # type: ignore[no-untyped-call]
            loss = loss.to(each.device) + each.detach().sum()
        norms.append(found.norms())
        found.add_weighted(rule.weights(norms[-1]))
    return Clipped(torch.cat(norms) if norms else torch.empty(0), loss)


def groups(users: Tensor, rows_at_once: int | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of users who are read together, and which of these users each row is of, ascending.

    Args:
        users: int64 (rows,) whose each row is.
        rows_at_once: rows of a group at most, unless it is one user; None: any number.
    """
    order = users.argsort(stable=True)
    _, unit, counts = torch.unique(users, return_inverse=True, return_counts=True)
    begin = first = end = 0
    for user, count in enumerate([*counts.tolist(), None]):
        if end > begin and (count is None or end + count - begin > (rows_at_once or len(order))):
            rows = order[begin:end]
            yield rows, unit[rows] - first
            begin, first = end, user
        end += count or 0


def _clip(
    model: LanguageModel,
    batch: Batch,
    together: Iterable[tuple[Tensor, Tensor]],
    rows_at_once: int | None,
    rule: Rule,
) -> Clipped:
    def losses(rows: Tensor) -> Tensor:
        return summed_losses(model, batch.select(rows)) / rule.tokens_per_sequence

    found = clip_groups(model, together, rows_at_once, losses, rule)
    return replace(found, loss=found.loss * rule.tokens_per_sequence)
