"""Composition: the budget of several private trainings that read the same record.

The trainings are adaptive: a later one begins with what an earlier one has learnt. Privacy losses
add up all the same; Dwork, Rothblum and Vadhan (2010), "Boosting and Differential Privacy". They
are convolved by dp-accounting ("pld"; Doroshenko et al. 2022, "Connect the Dots"), which is tighter
than adding epsilons, or added on Rényi's curve ("rdp"; Mironov 2017, "Rényi Differential Privacy",
Proposition 1), where one unit means the same to all of them.

The noise and the number of steps of every training must not depend on what an earlier one showed of
the records: Rogers et al. (2016), "Privacy Odometers and Filters", section 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vestige.defences.accounting import (
    HOPELESS,
    Accountant,
    check_mechanism,
    epsilon_spent,
    renyi_curve,
    renyi_epsilon,
)
from vestige.defences.noise_schedule import Noise, stages_of

if TYPE_CHECKING:
    from vestige.training.sequences import SequenceBatches


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """The Poisson-subsampled Gaussian mechanism, some steps of it.

    Attributes:
        noise_multiplier: standard deviation of the noise over the clipping norm, or how it falls.
        sample_rate: how likely a unit is to be in a batch.
        steps: updates.
    """

    noise_multiplier: Noise
    sample_rate: float
    steps: int

    @classmethod
    def of(cls, batches: "SequenceBatches", *, noise_multiplier: Noise, epochs: int) -> "Mechanism":
        """What a training on these batches is.

        Raises:
            ValueError: they are no Poisson sampling, so that no sample rate describes them.
        """
        return cls(
            noise_multiplier=noise_multiplier,
            sample_rate=batches.sample_rate * batches.groups,
            steps=-(-epochs * len(batches) // batches.groups),
        )

    def epsilon(self, delta: float, accountant: Accountant = "prv") -> float:
        """Spent by this one alone; see `epsilon_spent`."""
        return epsilon_spent(
            noise_multiplier=self.noise_multiplier,
            sample_rate=self.sample_rate,
            steps=self.steps,
            delta=delta,
            accountant=accountant,
        )


def composed_epsilon(
    mechanisms: Sequence[Mechanism], *, delta: float, accountant: Accountant = "pld"
) -> float:
    """Epsilon at delta for a unit that all of the mechanisms read.

    Args:
        mechanisms: at least one; their order makes no difference.
        delta: of all together, as for `epsilon_spent`.
        accountant: "rdp" adds Rényi's curves; "prv" and "pld" convolve privacy losses, both by
            "pld", unless Rényi's bound is already above HOPELESS.

    Returns:
        at least 0; infinite where one has no noise.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> one = Mechanism(noise_multiplier=1.1, sample_rate=0.01, steps=1000)
        >>> twice = Mechanism(noise_multiplier=1.1, sample_rate=0.01, steps=2000)
        >>> both = composed_epsilon([one, one], delta=1e-5)
        >>> abs(both - twice.epsilon(1e-5, "pld")) < 1e-3, both < 2 * one.epsilon(1e-5, "pld")
        (True, True)
    """
    if not mechanisms:
        raise ValueError("mechanisms must be at least one, got none")
    for one in mechanisms:
        check_mechanism(one.noise_multiplier, one.sample_rate, one.steps, delta, accountant)
    taken = [one for one in mechanisms if one.steps]
    if not taken:
        return 0.0
    if any(one.noise_multiplier == 0 for one in taken):
        return math.inf
    if len(taken) == 1:
        return taken[0].epsilon(delta, accountant)
    epsilon = _rdp(taken, delta)
    if accountant == "rdp" or not epsilon <= HOPELESS:
        return epsilon
    return max(0.0, min(epsilon, _pld(taken, delta)))


def _rdp(mechanisms: Sequence[Mechanism], delta: float) -> float:
    curves = [renyi_curve(one.noise_multiplier, one.sample_rate, one.steps) for one in mechanisms]
    return renyi_epsilon(curves[0][0], np.sum([spent for _, spent in curves], axis=0), delta)


def _pld(mechanisms: Sequence[Mechanism], delta: float) -> float:
    from dp_accounting import dp_event, pld

    accountant = pld.PLDAccountant()
    for one in mechanisms:
        for noise, steps in stages_of(one.noise_multiplier, one.steps):
            noised = dp_event.GaussianDpEvent(noise)
            accountant.compose(dp_event.PoissonSampledDpEvent(one.sample_rate, noised), steps)
    return float(accountant.get_epsilon(delta))
