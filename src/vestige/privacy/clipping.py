"""Clipped sums of units' gradients, from one forward and one backward pass.

Abadi et al. (2016), "Deep Learning with Differential Privacy", Algorithm 1:

    sum over units i of  g_i * min(1, C / ||g_i||_2)

divided by how many units are expected. A unit is a row, or a user with all of theirs: one index
tensor says which. Lee and Kifer (2021), "Scaling up Differentially Private Deep Learning with Fast
Per-Example Gradient Clipping", and Bu et al. (2023), "Differentially Private Optimization on Large
Model at Small Cost": norms and clipped sum follow from what one backward pass computes (`taps`,
`unit_gradients`). Units of a model with a layer that cannot be tapped, such as a GRU, and units
with more rows than fit take plain passes of their own.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vestige.models.protocols import LanguageModel, TwoParts
from vestige.privacy.masks import StepChance
from vestige.privacy.taps import tapped, trainable, untappable_layers
from vestige.privacy.unit_gradients import UnitGradients
from vestige.training.batches import IGNORED, Batch

Losses = Callable[[Tensor], Tensor]
"""Losses (k,) of the chosen rows, int64 (k,), in the graph; a row's depends on that row alone."""

_IN_CACHE = 1 << 17
"""Logits that are turned into probabilities together."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How units are clipped and averaged.

    Attributes:
        max_grad_norm: C.
        expected_units: what the clipped sum is divided by.
        chance: that dropout masks follow from; None: torch's generators, as they are.
        rows_at_once: rows of a pass; None: any number.
    """

    max_grad_norm: float
    expected_units: float
    chance: StepChance | None = None
    rows_at_once: int | None = None

    def by_row(self, numbers: Tensor) -> AbstractContextManager[None]:
        """Dropout masks of rows that are read together, by their numbers."""
        return nullcontext() if self.chance is None else self.chance.by_row(numbers)

    def alone(self, numbers: Tensor) -> AbstractContextManager[None]:
        """Randomness of a unit that is read by itself, by the number of its first row."""
        return nullcontext() if self.chance is None else self.chance.alone(int(numbers[0]))

    def weights(self, norms: Tensor) -> Tensor:
        """min(1, C / norm) / expected_units; see `coefficients`."""
        return coefficients(norms, self.max_grad_norm) / self.expected_units


@dataclass(frozen=True)
class Clipped:
    """Norms (units,) before clipping, by ascending unit, and the sum of all losses."""

    norms: Tensor
    loss: Tensor


def clip_gradients(
    model: nn.Module, losses: Losses, units: Tensor, numbers: Tensor, rule: Rule
) -> Clipped:
    """Add the clipped, averaged gradients of units to `.grad`.

    Args:
        model: `.grad` of each trainable parameter is allocated (and may hold the noise).
        losses: of rows; it is called once for each row or more rows.
        units: int64 (rows,) the unit of each row.
        numbers: int64 (rows,) of the rows in the training set, which dropout masks follow from.
        rule: how each unit is clipped.

    Raises:
        TrainingError: see `tapped`.
        FloatingPointError: a gradient is not finite, and cannot be clipped.
    """
    learning, one_by_one = trainable(model), bool(untappable_layers(model))
    norms, loss = [torch.empty(0, device=units.device)], torch.zeros((), device=units.device)
    for rows, owners in chunks(units, 1 if one_by_one else rule.rows_at_once):
        own = numbers[rows.to(numbers.device)]
        if one_by_one or len(rows) > (rule.rows_at_once or len(rows)):
            with rule.alone(own):
                norm, lost = _plain_passes(learning, losses, rows, rule)
        else:
            with rule.by_row(own):
                norm, lost = _one_pass(model, learning, losses, rows, owners, rule)
        norms.append(norm.to(norms[0].device))
        loss = loss + lost.to(loss)
    return Clipped(torch.cat(norms[1:] or norms), loss)


def chunks(units: Tensor, rows_at_once: int | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows that are read together, whole units alone, and the unit of each, from 0, ascending.

    Args:
        units: int64 (rows,) the unit of each row.
        rows_at_once: rows at most, unless they are of one unit; None: any number.
    """
    order, most = units.argsort(stable=True), rows_at_once or len(units)
    counts, begin = torch.unique(units, return_counts=True)[1].tolist(), 0
    while counts:
        ends = list(accumulate(counts))
        taken = max(1, sum(end <= most for end in ends))
        owners = torch.arange(taken).repeat_interleave(torch.tensor(counts[:taken]))
        yield order[begin : begin + ends[taken - 1]], owners.to(units.device)
        begin, counts = begin + ends[taken - 1], counts[taken:]


def coefficients(norms: Tensor, max_grad_norm: float) -> Tensor:
    """min(1, C / norm); a gradient of zero stays zero.

    Raises:
        FloatingPointError: a norm is not finite: 0 times infinity would be no bound.
    """
    if not bool(norms.isfinite().all()):
        raise FloatingPointError("norms must be finite, got a gradient that is not")
    return (max_grad_norm / norms.clamp_min(1e-12)).clamp(max=1.0)


def _one_pass(
    model: nn.Module,
    learning: list[Any],
    losses: Losses,
    rows: Tensor,
    owners: Tensor,
    rule: Rule,
) -> tuple[Tensor, Tensor]:
    """Units whose rows are read together."""
    gradients = UnitGradients(owners)
    with _without_gradients(learning), tapped(model, gradients):
        loss = _backward(losses(rows))
    # In half precision the sum would be of other gradients than the norms are.
    with torch.autocast(rows.device.type, enabled=False):
        norms = gradients.norms()
        gradients.add_weighted(rule.weights(norms))
    return norms, loss


def _plain_passes(
    learning: list[Any], losses: Losses, rows: Tensor, rule: Rule
) -> tuple[Tensor, Tensor]:
    """One unit, whose gradient is that of ordinary backward passes."""
    with _without_gradients(learning):
        parts = torch.split(rows, rule.rows_at_once or len(rows))
        loss = torch.stack([_backward(losses(part)) for part in parts]).sum()
        own = [parameter.grad for parameter in learning]
    norm = nn.utils.get_total_norm([one for one in own if one is not None])[None]
    weight = rule.weights(norm).item()
    for parameter, gradient in zip(learning, own, strict=True):
        if gradient is not None:
            parameter.grad.add_(gradient, alpha=weight)
    return norm, loss


def _backward(each: Tensor) -> Tensor:
    each.sum().backward()  # type: ignore[no-untyped-call]
    return each.detach().sum()


@contextmanager
def _without_gradients(learning: list[Any]) -> Iterator[None]:
    """None in place of every `.grad`, which is put back."""
    before = [parameter.grad for parameter in learning]
    for parameter in learning:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(learning, before, strict=True):
            parameter.grad = gradient


def summed_losses(model: LanguageModel, batch: Batch) -> Tensor:
    """(b,) each sequence's summed cross-entropy in nats, in the graph.

    Where rows are padded, a head that does not learn reads the targets that count alone.
    """
    if not (batch.padding and isinstance(model, TwoParts) and _reads_alone(model)):
        logits = model(batch.inputs, None)[0].flatten(0, 1).float()
        return cross_entropies(logits, batch.targets.flatten()).view(batch.targets.shape).sum(1)
    counts = batch.targets != IGNORED
    hidden, _ = model.body(batch.inputs, None)
    logits = model.predict(hidden[counts]).float()
    each = cross_entropy(logits, batch.targets[counts], reduction="none")
    return each.new_zeros(counts.shape).masked_scatter(counts, each).sum(1)


def _reads_alone(model: TwoParts) -> bool:
    """Whether the head is apart and does not learn: one that learns has to read the rows."""
    head = getattr(model, "head", None)
    if not (model.separate_head and isinstance(head, nn.Module)):
        return False
    return not any(parameter.requires_grad for parameter in head.parameters())


def cross_entropies(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropies (n,) of logits (n, v), which are overwritten; 0 where a target is IGNORED.

    The memory of the logits becomes that of their gradient: nothing else as large is needed.
    """
    found: Tensor = _CrossEntropies.apply(logits, targets)  # type: ignore[no-untyped-call]
    return found


class _CrossEntropies(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        counts = targets != IGNORED
        places = targets.masked_fill(~counts, 0)[:, None]
        picked = logits.gather(1, places)[:, 0]
        top, total = torch.empty_like(picked), torch.empty_like(picked)
        at_once = max(1, _IN_CACHE // logits.shape[1])
        slices = (torch.split(whole, at_once) for whole in (logits, top, total))
        for part, largest, sums in zip(*slices, strict=True):
            torch.amax(part, 1, out=largest)
            torch.sum(part.sub_(largest[:, None]).exp_(), 1, out=sums)
        logits.scatter_add_(1, places, -total[:, None])  # (softmax - one-hot) * total
        ctx.gradient, ctx.rates = logits, counts / total
        return (total.log() + top - picked).masked_fill(~counts, 0)

    @staticmethod
    def backward(ctx: Any, *back: Tensor) -> tuple[Tensor, None]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_((back[0] * ctx.rates)[:, None]), None
