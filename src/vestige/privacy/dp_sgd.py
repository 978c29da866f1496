"""DP-SGD: differential privacy of a sequence, or of a user, from clipped, noised gradients.

Abadi et al. (2016), "Deep Learning with Differential Privacy", Algorithm 1: each unit's gradient is
clipped to norm C, the sum gets noise of standard deviation sigma C, and is divided by the expected
number of units in a batch. The guarantee follows from the probability with which a unit comes into
a batch, sigma, and the number of steps (`accounting`).

Differs from the paper: any optimizer moves on the noised gradient; a sequence's loss is divided by
a fixed number of tokens rather than by its own, so that long and short ones count by the token.

Noise and dropout masks follow from a secret (`training.secret`, `noise`, `masks`): the training's
own, or a fresh one that is kept nowhere.
"""

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from vestige import _validate
from vestige.models.protocols import LanguageModel
from vestige.privacy.accounting import Unit
from vestige.privacy.clipping import Rule, clip_gradients, summed_losses
from vestige.privacy.masks import StepChance, refuse_other_chance
from vestige.privacy.noise import GaussianNoise
from vestige.privacy.taps import trainable, untappable_layers
from vestige.training.batches import Batch
from vestige.training.secret import Secret


class NoisyStep:
    """What DP-SGD and DP-FedAvg share: noise from a secret, and norms for the log.

    Args:
        noise_multiplier: standard deviation of the noise over the clipping norm; 0 proves nothing.
        max_grad_norm: C, the clipping norm.
        expected_units: how many units a batch has on average.

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
        """Take the randomness of the next call, and of those after it, from a secret."""
        if secret != self._secret:
            self._secret = secret
            self._noise = GaussianNoise(secret.key("noise"))
        self._step = step

    def chance(self, device: torch.device) -> StepChance:
        """Randomness of the next call besides noise and batches."""
        assert self._secret is not None
        return StepChance(self._secret.key("masks", self._step), device)

    @property
    def mechanism(self) -> dict[str, object]:
        """The settings of the noise."""
        return {
            "noise_multiplier": self.noise_multiplier,
            "max_grad_norm": self.max_grad_norm,
            "expected_units": self.expected_units,
        }

    def measured(self) -> dict[str, float]:
        """Median norm and share of units clipped since the last call; not private, for the log."""
        norms, self.norms = self.norms, []
        every = torch.cat(norms) if norms else torch.empty(0)
        if not len(every):
            return {}
        clipped = (every > self.max_grad_norm).float().mean().item()
        return {"median_norm": every.median().item(), "clipped": clipped}

    @torch.no_grad()
    def begin(self, model: LanguageModel, state: object, *, noised: bool = True) -> None:
        """Fill the gradients with the noise of this call, to which the sum is then added.

        Args:
            model: whose gradients.
            state: None.
            noised: whether this process adds the noise: one of those that train together does.

        Raises:
            ValueError: a state is carried on.
        """
        if state is not None:
            raise ValueError("state must be None: state between steps is not protected")
        learning = trainable(model)
        for parameter in learning:
            if parameter.grad is None or not parameter.grad.is_contiguous():
                parameter.grad = torch.empty_like(parameter, memory_format=torch.contiguous_format)
        gradients = [parameter.grad for parameter in learning]
        deviation = self.noise_multiplier * self.max_grad_norm / self.expected_units
        if noised and deviation:
            self._noise.fill(gradients, step=self._step, deviation=deviation)
        else:
            torch._foreach_zero_(gradients)

    def end(self, norms: Tensor) -> None:
        """Keep the norms (units,) of a call for the log, and go on to the next step."""
        self.norms.append(norms)
        self._step += 1


class DPSGDStep(NoisyStep):
    """A StepFn; give it Poisson-sampled batches, such as `TrainingConfig(batching="poisson")`.

    Args:
        noise_multiplier: sigma, the noise's standard deviation over C; 0 proves nothing.
        max_grad_norm: C, the norm that a unit's gradient is cut to.
        expected_units: sequences, or users, that a batch has on average: its `batch_size`.
        sequence_length: tokens that a sequence's summed loss is divided by.
        unit: what is clipped as one: a sequence, or all sequences of a user.
        physical_batch_size: most rows that are computed at once; None: a batch at once.

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
        """Settings of the step, without those of how it is computed."""
        return {**self.mechanism, "sequence_length": self.sequence_length, "unit": self.unit}

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Put the clipped, noised mean gradient into `.grad`; a batch may be empty.

        Raises:
            FloatingPointError: a unit's gradient is not finite, and cannot be clipped.
            TrainingError: the gradients of rows are unknown; see `taps.tapped`.
        """
        self.begin(model, state)
        batch = replace(batch, numbers=numbers_of(batch))
        rule = Rule(
            max_grad_norm=self.max_grad_norm,
            expected_units=self.expected_units,
            chance=self.chance(batch.inputs.device),
            rows_at_once=self.physical_batch_size,
        )
        self._check_chance(model, batch, rule.chance)

        def losses(rows: Tensor) -> Tensor:
            return summed_losses(model, batch.select(rows)) / self.sequence_length

        clipped = clip_gradients(model, losses, self._units(batch), numbers_of(batch), rule)
        self.end(clipped.norms)
        return clipped.loss * (self.sequence_length / max(batch.tokens, 1)), None

    def _units(self, batch: Batch) -> Tensor:
        """int64 (rows,) the unit of each row."""
        if self.unit == "user":
            return users_of(batch)
        rows = torch.arange(len(batch.inputs), device=batch.inputs.device)
        if batch.lengths is None or len(rows) <= (self.physical_batch_size or len(rows)):
            return rows
        # Rows of like length together waste little on padding.
        return batch.lengths.argsort().argsort()

    def _check_chance(self, model: LanguageModel, batch: Batch, chance: StepChance | None) -> None:
        """Once: whether rows that are read together draw by dropout alone."""
        if self._checked or chance is None or not (len(batch.inputs) and model.training):
            return
        self._checked = True
        if not untappable_layers(model):  # else units are read one by one
            refuse_other_chance(chance, lambda rows: summed_losses(model, batch.select(rows)))


def numbers_of(batch: Batch) -> Tensor:
    """int64 (b,) of the rows in the training set; where a batch has none, places in it."""
    if batch.numbers is not None:
        return batch.numbers
    return torch.arange(len(batch.inputs), device=batch.inputs.device)


def users_of(batch: Batch) -> Tensor:
    """int64 (b,) the user of each row; ValueError where the batch has none."""
    if batch.users is None:
        raise ValueError("batch must say whose each row is, got users=None")
    return batch.users
