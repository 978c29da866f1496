"""The epsilon that a pair of error rates proves of Poisson-subsampled Gaussian mechanisms.

Nasr et al. (2023), "Tight Auditing of Differentially Private Machine Learning", section 5: error
rates refute every mechanism with more noise than some z; the bound is z's epsilon.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from dp_accounting import dp_event, pld
from numpy.typing import NDArray

from vestige.privacy.accounting import Mechanism as Accounted
from vestige.privacy.accounting import noise_for

DELTA = 1e-2
"""`vestige train`'s own for four records."""
GRID = np.linspace(0, 25, 51)
"""Epsilons at which a pair of error rates may refute a mechanism."""


@cache
def deltas(noise: float, sample_rate: float, steps: int) -> NDArray[np.float64]:
    """The mechanism's privacy curve at GRID, rounded up."""
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    step = dp_event.PoissonSampledDpEvent(sample_rate, dp_event.GaussianDpEvent(noise))
    accountant.compose(step, steps)
    return np.array([accountant.get_delta(epsilon) for epsilon in GRID])


@dataclass(frozen=True)
class Mechanism:
    """Poisson-subsampled Gaussian mechanisms of one rate and number of steps, of any noise."""

    sample_rate: float
    steps: int

    @cache  # noqa: B019 - a handful of them, as long as the process
    def noise(self, epsilon: float) -> float:
        return noise_for(
            epsilon=epsilon,
            delta=DELTA,
            sample_rate=self.sample_rate,
            steps=self.steps,
            accountant="pld",
        )

    def epsilon(self, noise: float) -> float:
        own = Accounted(noise_multiplier=noise, sample_rate=self.sample_rate, steps=self.steps)
        return own.epsilon(DELTA)

    def allows(self, noise: float, false: float, missed: float) -> bool:
        """Whether a test can have both error rates: Wasserman and Zhou (2010), Theorem 2.4."""
        one, other = (a + np.exp(GRID) * b for a, b in ((missed, false), (false, missed)))
        least = 1 - deltas(noise, self.sample_rate, self.steps)
        return bool((np.minimum(one, other) >= least).all())

    def least(self, false: float, missed: float) -> float:
        """The epsilon of the most noise that allows both error rates; 0 where all noise does."""
        low, high = 0.1, 100.0
        if self.allows(high, false, missed):
            return 0.0
        while high > 1.005 * low:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.allows(middle, false, missed) else (low, middle)
        return self.epsilon(high)
