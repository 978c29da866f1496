"""Steps whose gradient is a sum of clipped contributions and Gaussian noise over expected units."""

import torch
from torch import Tensor

from vestige import _validate
from vestige.defences.clipping import measured_norms, trainable
from vestige.defences.noise import GaussianNoise
from vestige.models.protocols import LanguageModel
from vestige.training.secret import Secret


class NoisyStep:
    """What DP-SGD and DP-FedAvg share: noise from a secret, and norms for the log.

    Args:
        noise_multiplier: standard deviation of the noise over the clipping norm; 0 proves nothing.
        max_grad_norm: the clipping norm.
        expected_units: how many a batch samples on average.

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
        self.draw_from(Secret.fresh(), 0)

    def draw_from(self, secret: Secret, step: int) -> None:
        """Take the noise of the next call, and of those after it, from a secret."""
        self._noise, self._step = GaussianNoise(secret.key("noise")), step

    @property
    def mechanism(self) -> dict[str, object]:
        """The settings of the noise."""
        return {
            "noise_multiplier": self.noise_multiplier,
            "max_grad_norm": self.max_grad_norm,
            "expected_units": self.expected_units,
        }

    def measured(self) -> dict[str, float]:
        """Median norm and share of units clipped since last asked; not private, for the log."""
        norms, self.norms = self.norms, []
        return measured_norms(norms, self.max_grad_norm)

    def begin(self, model: LanguageModel, state: object) -> None:
        """Fill the gradients with the noise of this call.

        Raises:
            ValueError: a state is carried on.
        """
        if state is not None:
            raise ValueError("state must be None: what is carried on is not protected")
        deviation = self.noise_multiplier * self.max_grad_norm / self.expected_units
        begin_with_noise(model, self._noise, step=self._step, deviation=deviation)
        self._step += 1


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
