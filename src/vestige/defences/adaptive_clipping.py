r"""Adaptive clipping: a clipping norm that follows a quantile of the units' norms.

Andrew, Thakkar, McMahan and Ramaswamy (2021), "Differentially Private Learning with Adaptive
Clipping", Algorithm 1. Each step counts how many units have a norm of at most C, adds noise to the
count, and moves C towards the norm that a share :math:`\gamma` of them is below:

.. math:: C \leftarrow C \exp(-0.2 (\tilde b - \gamma))

A unit adds 1/2 or -1/2 to the count, so that gradients and count together are as private as noise
of multiplier z on the gradients alone if theirs is :math:`(z^{-2} - (2 \sigma_b)^{-2})^{-1/2}`
(Theorem 1).

Differs from the paper: the noise of the count is m / 20 for m expected units there; here it is at
least 5 z, so that the gradients never pay more than half a percent for it. A count of few units is
noisier, and C then wanders by some percent a step.
"""

import math

from torch import Tensor

from vestige import _validate
from vestige.defences.noise import GaussianNoise

RATE = 0.2
"""Of the geometric update; the paper's."""
_LEAST = 5.0


class AdaptiveClipping:
    """A clipping norm that learns from a noisy count.

    Args:
        quantile: share of norms that C is to be above, in (0, 1).
        noise_multiplier: z, of gradients and count together.
        expected_units: m, in a batch on average.

    Attributes:
        of_count: deviation of the noise on the count.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(self, quantile: float, noise_multiplier: float, expected_units: int) -> None:
        check_quantile(quantile)
        _validate.at_least(1, expected_units=expected_units)
        self.quantile, self.expected_units = quantile, expected_units
        self.of_count = max(expected_units / 20, _LEAST * noise_multiplier)
        self._both = noise_multiplier

    @property
    def of_gradients(self) -> float:
        """The noise multiplier of the gradients, above that of both together.

        Example:
            >>> round(AdaptiveClipping(0.5, 1.0, 1_000).of_gradients, 5)
            1.00005
        """
        if not self._both:
            return 0.0
        return 1 / math.sqrt(self._both**-2 - (2 * self.of_count) ** -2)

    def count(self, norms: Tensor, max_grad_norm: float) -> Tensor:
        """Scalar: units with a norm of at most C, less half of all units."""
        return (norms <= max_grad_norm).double().sum() - len(norms) / 2

    def moved(
        self, max_grad_norm: float, count: Tensor, noise: GaussianNoise, *, step: int
    ) -> float:
        """The clipping norm after a step.

        Args:
            max_grad_norm: C of the step.
            count: of its units, without noise.
            noise: that is added to it.
            step: whose noise.
        """
        drawn = count.new_zeros(1).float().cpu()
        if self._both:
            noise.fill([drawn], step=step, deviation=self.of_count)
        share = (count.item() + drawn.double().item()) / self.expected_units + 0.5
        return max_grad_norm * math.exp(-RATE * (share - self.quantile))


def check_quantile(quantile: float) -> None:
    """Raise ValueError unless it is a share of norms that can be above and below."""
    if not 0 < quantile < 1:
        raise ValueError(f"clip_quantile must lie in (0, 1), got {quantile}")
