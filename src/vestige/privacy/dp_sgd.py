"""DP-SGD: differential privacy of a sequence, or of a user, from clipped, noised gradients.

Abadi et al. (2016), "Deep Learning with Differential Privacy", Algorithm 1:

    sum over units i of  g_i * min(1, C / ||g_i||_2)  +  noise of standard deviation sigma C

divided by the expected number of units in a batch. A unit is a row, or a user with all rows; an
index tensor gives the unit of each row. The guarantee follows from sigma, the number of steps and
the probability that a unit is in a batch (`accounting`). One backward pass gives norms and clipped
sum (`taps`, `unit_gradients`): Lee and Kifer (2021), "Scaling up Differentially Private Deep
Learning with Fast Per-Example Gradient Clipping", and Bu et al. (2023), "Differentially Private
Optimization on Large Model at Small Cost". Two kinds of units are read one by one: those of a model
with a layer that cannot be tapped, such as a GRU, and those with more rows than fit in memory.

Differs from the paper: any optimizer uses the noised gradient. The loss of a sequence is divided by
a fixed number of tokens, not by its own, so that each token counts alike.

Noise and dropout masks follow from a secret (`training.secret`, `randomness`): the secret of the
training, or a fresh one that is stored nowhere.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vestige import _validate
from vestige.models.protocols import LanguageModel, TwoParts
from vestige.privacy.accounting import Unit
from vestige.privacy.randomness import GaussianNoise, StepRandomness, refuse_other_randomness
from vestige.privacy.taps import tapped, trainable, untappable_layers
from vestige.privacy.unit_gradients import UnitGradients
from vestige.training.batches import IGNORED, Batch
from vestige.training.secret import Secret

Losses = Callable[[Tensor], Tensor]
"""Losses (k,) of chosen rows, int64 (k,), in the graph. Each depends on its own row alone."""

_IN_CACHE = 1 << 17
"""Logits that fit in the cache; their softmax is computed together."""


def chunks(units: Tensor, rows_at_once: int | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows to read together, and the unit of each, ascending from 0.

    A chunk has whole units with at most `rows_at_once` rows (None: any number), or one larger unit.
    """
    order, limit = units.argsort(stable=True), rows_at_once or len(units)
    counts, begin = torch.unique(units, return_counts=True)[1].tolist(), 0
    while counts:
        ends = list(accumulate(counts))
        whole_units = max(1, sum(end <= limit for end in ends))
        owners = torch.arange(whole_units).repeat_interleave(torch.tensor(counts[:whole_units]))
        yield order[begin : begin + ends[whole_units - 1]], owners.to(units.device)
        begin, counts = begin + ends[whole_units - 1], counts[whole_units:]


def coefficients(norms: Tensor, max_grad_norm: float) -> Tensor:
    """min(1, C / norm); a gradient of zero stays zero.

    Raises:
        FloatingPointError: a norm is not finite: 0 times infinity would be no bound.
    """
    if not bool(norms.isfinite().all()):
        raise FloatingPointError("norms must be finite, got a gradient that is not")
    return (max_grad_norm / norms.clamp_min(1e-12)).clamp(max=1.0)


def _backward(losses: Tensor) -> Tensor:
    losses.sum().backward()  # type: ignore[no-untyped-call]
    return losses.detach().sum()


@contextmanager
def _without_gradients(parameters: list[Any]) -> Iterator[None]:
    """Set every `.grad` to None, and restore it afterwards."""
    saved = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, saved, strict=True):
            parameter.grad = gradient


class NoisyStep:
    """Base of DP-SGD and DP-FedAvg: noise from a secret, and norms for the log.

    Args:
        noise_multiplier: sigma, the noise's standard deviation over C; 0 proves nothing.
        max_grad_norm: C, the clipping norm of a unit's gradient or update.
        expected_units: average number of sequences or users in a batch: its `batch_size`.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(self, noise_multiplier: float, max_grad_norm: float, expected_units: int) -> None:
        _validate.at_least(0, noise_multiplier=noise_multiplier)
        _validate.finite(noise_multiplier=noise_multiplier)
        _validate.positive(max_grad_norm=max_grad_norm)
        _validate.at_least(1, expected_units=expected_units)
        self.noise_multiplier, self.max_grad_norm = noise_multiplier, max_grad_norm
        self.expected_units = expected_units
        self.norms: list[Tensor] = []
        self._secret: Secret | None = None
        self.draw_from(Secret.fresh(), 0)

    def draw_from(self, secret: Secret, step: int) -> None:
        """Use the randomness of a secret from this step on."""
        if secret != self._secret:
            self._secret = secret
            self._noise = GaussianNoise(secret.key("noise"))
        self._step = step

    def randomness(self, device: torch.device) -> StepRandomness:
        """Randomness of the next call besides noise and batches."""
        assert self._secret is not None
        return StepRandomness(self._secret.key("masks", self._step), device)

    @property
    def mechanism(self) -> dict[str, object]:
        """The settings of the noise."""
        names = ("noise_multiplier", "max_grad_norm", "expected_units")
        return {name: getattr(self, name) for name in names}

    def measured(self) -> dict[str, float]:
        """Median norm and share of clipped units since the last call. Not private; for the log."""
        norms, self.norms = self.norms, []
        all_norms = torch.cat(norms) if norms else torch.empty(0)
        if not len(all_norms):
            return {}
        clipped = (all_norms > self.max_grad_norm).float().mean().item()
        return {"median_norm": all_norms.median().item(), "clipped": clipped}

    @torch.no_grad()
    def begin(self, model: LanguageModel, state: object, *, noised: bool = True) -> None:
        """Fill the gradients with the noise of this step. The clipped sum is then added.

        Args:
            model: its gradients are overwritten.
            state: must be None; otherwise ValueError.
            noised: whether this process adds the noise. Of several that train together, one does.
        """
        if state is not None:
            raise ValueError("state must be None: state between steps is not protected")
        parameters = trainable(model)
        for parameter in parameters:
            if parameter.grad is None or not parameter.grad.is_contiguous():
                parameter.grad = torch.empty_like(parameter, memory_format=torch.contiguous_format)
        gradients = [parameter.grad for parameter in parameters]
        deviation = self.noise_multiplier * self.max_grad_norm / self.expected_units
        if noised and deviation:
            self._noise.fill(gradients, step=self._step, deviation=deviation)
        else:
            torch._foreach_zero_(gradients)

    def add_clipped(
        self,
        model: nn.Module,
        losses: Losses,
        units: Tensor,
        numbers: Tensor,
        *,
        rows_at_once: int | None = None,
    ) -> Tensor:
        """Add the clipped, averaged gradients of units to `.grad`; return the sum of all losses.

        Args:
            model: `.grad` of each trainable parameter is allocated and may contain the noise.
            losses: computes the losses of rows.
            units: int64 (rows,) the unit of each row, on the model's device.
            numbers: int64 (rows,) of the rows in the training set, which determine dropout masks.
            rows_at_once: rows of a pass; None: any number.

        Raises:
            TrainingError: see `tapped`.
            FloatingPointError: a gradient is not finite, and cannot be clipped.
        """
        parameters, one_by_one = trainable(model), bool(untappable_layers(model))
        masks, total = self.randomness(units.device), torch.zeros((), device=units.device)
        norms = [torch.empty(0, device=units.device)]
        for rows, owners in chunks(units, 1 if one_by_one else rows_at_once):
            row_numbers = numbers[rows.to(numbers.device)]
            if one_by_one or len(rows) > (rows_at_once or len(rows)):
                with masks.for_unit(int(row_numbers[0])):
                    norm, loss = self._one_unit(parameters, losses, rows, rows_at_once)
            else:
                with masks.by_row(row_numbers):
                    norm, loss = self._together(model, losses, rows, owners)
            norms.append(norm.to(norms[0].device))
            total = total + loss.to(total)
        self.end(torch.cat(norms[1:] or norms))
        return total

    def _together(
        self, model: nn.Module, losses: Losses, rows: Tensor, owners: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Norms and loss of units read together."""
        gradients = UnitGradients(owners)
        with _without_gradients(trainable(model)), tapped(model, gradients):
            loss = _backward(losses(rows))
        # In half precision the sum would use other gradients than the norms.
        with torch.autocast(rows.device.type, enabled=False):
            norms = gradients.norms()
            gradients.add_weighted(self._weights(norms))
        return norms, loss

    def _one_unit(
        self, parameters: list[Any], losses: Losses, rows: Tensor, rows_at_once: int | None
    ) -> tuple[Tensor, Tensor]:
        """Norm and loss of one unit, by ordinary backward passes."""
        with _without_gradients(parameters):
            parts = torch.split(rows, rows_at_once or len(rows))
            loss = torch.stack([_backward(losses(part)) for part in parts]).sum()
            gradients = [parameter.grad for parameter in parameters]
        norm = nn.utils.get_total_norm(
            [gradient for gradient in gradients if gradient is not None]
        )[None]
        weight = self._weights(norm).item()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.grad.add_(gradient, alpha=weight)
        return norm, loss

    def _weights(self, norms: Tensor) -> Tensor:
        return coefficients(norms, self.max_grad_norm) / self.expected_units

    def end(self, norms: Tensor) -> None:
        """Store the norms (units,) for the log, and advance to the next step."""
        self.norms.append(norms)
        self._step += 1


class DPSGDStep(NoisyStep):
    """DP-SGD step for Poisson-sampled batches, as of `TrainingConfig(batching="poisson")`.

    Args, besides those of `NoisyStep`:
        sequence_length: divisor of a sequence's summed loss, in tokens.
        unit: unit of clipping: a sequence, or all sequences of a user.
        physical_batch_size: maximum rows computed at once; None: the whole batch.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self,
        *,
        noise_multiplier: float,
        max_grad_norm: float,
        expected_units: int,
        sequence_length: int,
        unit: Unit = "sequence",
        physical_batch_size: int | None = None,
    ) -> None:
        super().__init__(noise_multiplier, max_grad_norm, expected_units)
        _validate.at_least(1, sequence_length=sequence_length)
        _validate.one_of(("sequence", "user"), unit=unit)
        if physical_batch_size is not None:
            _validate.at_least(1, physical_batch_size=physical_batch_size)
        self.sequence_length, self.unit = sequence_length, unit
        self.physical_batch_size = physical_batch_size
        self._checked = False

    @property
    def settings(self) -> dict[str, object]:
        """Settings that affect the result."""
        return {**self.mechanism, "sequence_length": self.sequence_length, "unit": self.unit}

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Put the clipped, noised mean gradient into `.grad`; a batch may be empty.

        Raises:
            FloatingPointError: a unit's gradient is not finite, and cannot be clipped.
            TrainingError: per-row gradients are unknown; see `taps.tapped`.
        """
        self.begin(model, state)
        batch = numbered(batch)

        def losses(rows: Tensor) -> Tensor:
            return summed_losses(model, batch.select(rows)) / self.sequence_length

        if not self._checked and len(batch.inputs) and model.training:
            self._checked = True
            if not untappable_layers(model):  # else units are read one by one
                refuse_other_randomness(self.randomness(batch.inputs.device), losses)
        assert batch.numbers is not None
        units, rows_at_once = self._units(batch), self.physical_batch_size
        loss = self.add_clipped(model, losses, units, batch.numbers, rows_at_once=rows_at_once)
        return loss * (self.sequence_length / max(batch.tokens, 1)), None

    def _units(self, batch: Batch) -> Tensor:
        """int64 (rows,) the unit of each row."""
        if self.unit == "user":
            return users_of(batch)
        rows = torch.arange(len(batch.inputs), device=batch.inputs.device)
        if batch.lengths is None or len(rows) <= (self.physical_batch_size or len(rows)):
            return rows
        return batch.lengths.argsort().argsort()  # rows of like length waste little on padding


def numbered(batch: Batch) -> Batch:
    """The batch with row numbers: positions in the batch if the training set gives none."""
    if batch.numbers is not None:
        return batch
    return replace(batch, numbers=torch.arange(len(batch.inputs), device=batch.inputs.device))


def users_of(batch: Batch) -> Tensor:
    """int64 (b,) the user of each row; ValueError if the batch has none."""
    if batch.users is None:
        raise ValueError("batch must have a user for each row, got users=None")
    return batch.users


def summed_losses(model: LanguageModel, batch: Batch) -> Tensor:
    """(b,) each sequence's summed cross-entropy in nats, in the graph.

    A frozen head skips padding.
    """
    if not (batch.padding and isinstance(model, TwoParts) and _has_frozen_head(model)):
        logits = model(batch.inputs, None)[0].flatten(0, 1).float()
        return cross_entropies(logits, batch.targets.flatten()).view(batch.targets.shape).sum(1)
    counts = batch.targets != IGNORED
    hidden, _ = model.body(batch.inputs, None)
    logits = model.predict(hidden[counts]).float()
    losses = cross_entropy(logits, batch.targets[counts], reduction="none")
    return losses.new_zeros(counts.shape).masked_scatter(counts, losses).sum(1)


def _has_frozen_head(model: TwoParts) -> bool:
    """Whether the head is separate and frozen. A trainable head must read whole rows."""
    head = getattr(model, "head", None)
    if not (model.separate_head and isinstance(head, nn.Module)):
        return False
    return not any(parameter.requires_grad for parameter in head.parameters())


def cross_entropies(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropies (n,) of logits (n, v); 0 if the target is IGNORED.

    Overwrites the logits: their memory is reused for their gradient.
    """
    losses: Tensor = _CrossEntropies.apply(logits, targets)  # type: ignore[no-untyped-call]
    return losses


class _CrossEntropies(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        counts = targets != IGNORED
        classes = targets.masked_fill(~counts, 0)[:, None]
        picked = logits.gather(1, classes)[:, 0]
        top, total = torch.empty_like(picked), torch.empty_like(picked)
        at_once = max(1, _IN_CACHE // logits.shape[1])
        slices = (torch.split(values, at_once) for values in (logits, top, total))
        for part, largest, sums in zip(*slices, strict=True):
            torch.amax(part, 1, out=largest)
            torch.sum(part.sub_(largest[:, None]).exp_(), 1, out=sums)
        logits.scatter_add_(1, classes, -total[:, None])  # (softmax - one-hot) * total
        ctx.gradient, ctx.rates = logits, counts / total
        return (total.log() + top - picked).masked_fill(~counts, 0)

    @staticmethod
    def backward(ctx: Any, *back: Tensor) -> tuple[Tensor, None]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_((back[0] * ctx.rates)[:, None]), None
