"""Gradients of single examples, gathered where a backward pass forms their sum.

The gradient of a linear layer's weight is a product of what went in with what came back, summed
over the tokens of a batch. Summed over the tokens of each example by themselves, it costs the same
multiplications. So one forward and one backward pass tell every unit's norm and the clipped sum:
layers hand on what gradients are made of (`example_layers`), and `ghost_norms` forms those that are
small, such as a LoRA adapter's, and takes the norms of the others without forming them. Goodfellow
(2015), "Efficient Per-Example Gradient Computations", arXiv:1510.01799; Lee and Kifer (2021),
"Scaling up Differentially Private Deep Learning with Fast Per-Example Gradient Clipping"; Bu et al.
(2023), "Differentially Private Optimization on Large Model at Small Cost".
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from vestige.defences.clipping import (
    ClipFn,
    Clipped,
    Rule,
    numbers_of,
    summed_losses,
    trainable,
)
from vestige.defences.example_layers import gathering_forward, learning_layers, unknown_layers
from vestige.defences.ghost_norms import ExampleGradients
from vestige.errors import TrainingError
from vestige.models.protocols import LanguageModel
from vestige.training.batches import Batch


@contextmanager
def gathered(model: nn.Module, found: ExampleGradients) -> Iterator[None]:
    """Add the gradients of a forward and backward pass to those of units, in place of `.grad`.

    Args:
        model: `suits` it.
        found: what they are added to.

    Raises:
        TrainingError: a layer sees other rows than those of the batch, so that one row's gradient
            cannot be told from another's; or a weight is used outside its layer.
    """
    learning, layers = trainable(model), learning_layers(model)
    with _without_gradients(learning):
        for name, layer in layers:
            layer.__dict__["forward"] = gathering_forward(name, layer, found)
        try:
            yield
        finally:
            for _, layer in layers:
                del layer.__dict__["forward"]
        if any(parameter.grad is not None for parameter in learning):
            raise TrainingError(
                "a trainable weight is used outside its layer, so gradients per sequence are "
                "unknown",
                remedy="Freeze it, or train a plain LoRA adapter.",
            )


@contextmanager
def _without_gradients(learning: list[Tensor]) -> Iterator[None]:
    """None in place of every `.grad`, which is put back."""
    before = [parameter.grad for parameter in learning]
    for parameter in learning:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(learning, before, strict=True):
            parameter.grad = gradient


def suits(model: nn.Module) -> bool:
    """Whether something learns, and all of it in layers whose rows' gradients can be told apart."""
    return bool(trainable(model)) and not unknown_layers(model)


def clip_examples(model: LanguageModel, batch: Batch, rule: Rule) -> Clipped:
    """A `ClipFn` whose units are sequences, for models that it `suits`.

    Raises:
        TrainingError: see `gathered`.
    """
    rows = torch.arange(len(batch.inputs), device=batch.inputs.device)
    return _clip(model, batch, [(rows, rows)], None, rule)


def clip_users_examples(rows_at_once: int | None) -> ClipFn:
    """A `ClipFn` whose units are users, for models that it `suits`.

    Users that have room together are read in one pass; one with more rows by plain passes.

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
    numbers: Tensor,
) -> Clipped:
    """Add the clipped gradients of groups of units to `.grad`.

    Args:
        model: `suits` it.
        together: rows that are read together and the unit of each, from 0, ascending.
        rows_at_once: rows that are computed at once; only a unit by itself has more. None: all.
        losses: of rows. One row's must not depend on the others.
        rule: how each unit is clipped; the losses are taken as they are.
        numbers: int64 (rows,) of all rows in the training set, by which dropout draws.

    Returns:
        norms in the order of groups and their units; the loss is the sum of the losses.

    Raises:
        TrainingError: see `gathered`.
    """
    found = []
    for rows, units in together:
        own = numbers[rows.to(numbers.device)]
        if rows_at_once is not None and len(rows) > rows_at_once:
            with rule.alone(own):
                parts = torch.split(rows, rows_at_once)
                found.append(_clip_in_parts(model, parts, losses, rule))
        else:
            with rule.by_row(own):
                found.append(_clip_together(model, rows, units, losses, rule))
    if not found:
        device = trainable(model)[0].device
        return Clipped(torch.empty(0, device=device), torch.zeros((), device=device))
    return Clipped(
        torch.cat([one.norms for one in found]), torch.stack([one.loss for one in found]).sum()
    )


def _clip_together(
    model: nn.Module, rows: Tensor, units: Tensor, losses: Losses, rule: Rule
) -> Clipped:
    """Units whose rows are read in one pass."""
    alone = int(units[-1]) + 1 == len(rows)
    found = ExampleGradients(len(rows), None if alone else units)
    with gathered(model, found):
        each = losses(rows)
        each.sum().backward()  # type: ignore[no-untyped-call]
    norms = found.norms()
    found.add_weighted(rule.weights(norms))
    return Clipped(norms, each.detach().sum())


def _clip_in_parts(
    model: nn.Module, parts: Iterable[Tensor], losses: Losses, rule: Rule
) -> Clipped:
    """One unit, whose gradient is that of plain backward passes."""
    learning, loss = trainable(model), []
    with _without_gradients(learning):
        for rows in parts:
            each = losses(rows)
            each.sum().backward()  # type: ignore[no-untyped-call]
            loss.append(each.detach().sum())
        own = [parameter.grad for parameter in learning]
    norm = torch.nn.utils.get_total_norm([one for one in own if one is not None])[None]
    weight = rule.weights(norm).item()
    for parameter, gradient in zip(learning, own, strict=True):
        if gradient is not None:
            parameter.grad.add_(gradient, alpha=weight)
    return Clipped(norm, torch.stack(loss).sum())


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

    found = clip_groups(model, together, rows_at_once, losses, rule, numbers_of(batch))
    return replace(found, loss=found.loss * rule.tokens_per_sequence)
