"""DP-SGD: differential privacy of a sequence, or of a user, from clipped, noised gradients.

Abadi et al. (2016), "Deep Learning with Differential Privacy", Algorithm 1: each unit's gradient is
clipped to norm C, the sum gets noise of standard deviation sigma C, and is divided by the expected
number of units in a batch. What this proves follows from the chance with which a unit comes into a
batch, sigma, and the number of steps (`accounting`).

Differs from the paper: any optimizer moves on the noised gradient; a sequence's loss is divided by
a fixed number of tokens rather than by its own, so that long and short ones count by the token.

The noise follows from a secret (`training.secret`, `noise`): the training's own, which the loop
hands to the step, or a fresh one that is kept nowhere.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from vestige import _validate
from vestige.defences.clipping import ClipFn, Rule, measured_norms, trainable
from vestige.defences.noise import GaussianNoise
from vestige.models.lstm import LSTMLanguageModel
from vestige.models.protocols import LanguageModel
from vestige.training.batches import Batch
from vestige.training.secret import Secret

Unit = Literal["sequence", "user"]


class DPSGDStep:
    """A StepFn; give it Poisson-sampled batches, such as `TrainingConfig(batching="poisson")`.

    Args:
        noise_multiplier: sigma, the noise's standard deviation over C; 0 proves nothing.
        max_grad_norm: C, the norm that a unit's gradient is cut to.
        expected_units: sequences, or users, that a batch holds on average: its `batch_size`.
        sequence_length: tokens that a sequence's summed loss is divided by.
        unit: what is clipped as one: a sequence, or all sequences of a user.
        physical_batch_size: rows at most that are computed at once; None: a batch at once.

    Raises:
        ValueError: a value is out of range.
    """

    identity: ClassVar[str] = "DPSGD"

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
        _validate.at_least(0, noise_multiplier=noise_multiplier)
        _validate.positive(max_grad_norm=max_grad_norm)
        _validate.at_least(1, expected_units=expected_units, sequence_length=sequence_length)
        _validate.one_of(("sequence", "user"), unit=unit)
        if physical_batch_size is not None:
            _validate.at_least(1, physical_batch_size=physical_batch_size)
        self.noise_multiplier, self.max_grad_norm = noise_multiplier, max_grad_norm
        self.expected_units, self.sequence_length = expected_units, sequence_length
        self.unit, self.physical_batch_size = unit, physical_batch_size
        self._norms: list[Tensor] = []
        self.draw_from(Secret.fresh(), 0)

    def draw_from(self, secret: Secret, step: int) -> None:
        """Take the noise of the next call, and of those after it, from a secret."""
        self._noise, self._step = GaussianNoise(secret.key("noise")), step

    @property
    def settings(self) -> dict[str, object]:
        """What the step depends on; how it is computed is left out."""
        return {
            "noise_multiplier": self.noise_multiplier,
            "max_grad_norm": self.max_grad_norm,
            "expected_units": self.expected_units,
            "sequence_length": self.sequence_length,
            "unit": self.unit,
        }

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Put the clipped, noised mean gradient into `.grad`; a batch may be empty.

        Raises:
            FloatingPointError: a unit's gradient is not finite, and cannot be clipped.
        """
        if state is not None:
            raise ValueError("state must be None: what is carried on is not protected")
        deviation = self.noise_multiplier * self.max_grad_norm / self.expected_units
        begin_with_noise(model, self._noise, step=self._step, deviation=deviation)
        self._step += 1
        clip = self._clip(model)
        rule = Rule(
            max_grad_norm=self.max_grad_norm,
            tokens_per_sequence=self.sequence_length,
            expected_units=self.expected_units,
        )
        loss = torch.zeros((), device=batch.inputs.device)
        for part in self._parts(batch):
            clipped = clip(model, part, rule)
            loss += clipped.loss
            self._norms.append(clipped.norms)
        return loss / max(batch.tokens, 1), None

    def measured(self) -> dict[str, float]:
        """Median norm and share of units clipped since last asked; not private, for the log."""
        norms, self._norms = self._norms, []
        return measured_norms(norms, self.max_grad_norm)

    def _clip(self, model: LanguageModel) -> ClipFn:
        if self.unit == "user":
            from vestige.defences.user_clipping import clip_users

            return clip_users(self.physical_batch_size)
        if isinstance(model, LSTMLanguageModel):
            from vestige.defences.ghost_lstm import clip_lstm

            return clip_lstm
        from vestige.defences.ghost_opacus import clip_opacus

        return clip_opacus

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        """The batch in physical ones; a user is never cut in two."""
        rows = len(batch.inputs)
        size = self.physical_batch_size
        if not rows:
            return
        if size is None or rows <= size or self.unit == "user":
            yield batch
            return
        # Rows of like length together waste little on padding.
        order = torch.arange(rows) if batch.lengths is None else batch.lengths.argsort().cpu()
        for begin in range(0, rows, size):
            yield batch.select(order[begin : begin + size].to(batch.inputs.device))


@torch.no_grad()
def begin_with_noise(
    model: LanguageModel, noise: GaussianNoise, *, step: int, deviation: float
) -> None:
    """Fill every trainable parameter's gradient with noise, to which the sum is then added.

    One pass less over memory than adding the noise at the end.
    """
    learning = trainable(model)
    for parameter in learning:
        if parameter.grad is None or not parameter.grad.is_contiguous():
            parameter.grad = torch.empty_like(parameter, memory_format=torch.contiguous_format)
    gradients = [parameter.grad for parameter in learning]
    if deviation:
        noise.fill(gradients, step=step, deviation=deviation)
    else:
        torch._foreach_zero_(gradients)
