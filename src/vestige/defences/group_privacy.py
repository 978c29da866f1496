r"""Group privacy: the guarantee for a record that stands in the data k times.

The promise for one record says nothing about k copies of it until it is converted:

- with "prv" and "pld", by the mixture of Gaussians: a batch holds j copies with probability
  :math:`\binom{k}{j} q^j (1-q)^{k-j}`, and j clipped copies move the sum by at most jC. The pair
  :math:`\sum_j p_j N(j, \sigma^2)` against :math:`N(0, \sigma^2)` dominates a step; Ganesh (2024),
  "Tight Group-Level DP Guarantees for DP-SGD with Sampling via Mixture of Gaussians Mechanisms",
  arXiv:2401.10294, after Choquette-Choo et al. (2023), "Privacy Amplification for Matrix
  Mechanisms", Corollary 4.7. dp-accounting composes it, rounding upwards;
- with "rdp", by the standard conversion: (e, d) for one record is
  :math:`(ke, d \sum_{i<k} e^{ie})` for k; Vadhan (2017), "The Complexity of Differential Privacy",
  Lemma 2.2, with the best e on Rényi's curve.

Where one copy alone may already spend 100, the step is bounded without its sampling: k copies under
Gaussian noise are exactly :math:`\mu`-GDP with :math:`\mu = k \sqrt{T} / \sigma`; Dong, Roth and Su
(2022), Corollary 2.13, which is a bound where nothing is sampled. Of stages with different noise
(`noise_schedule`) squares of :math:`\mu` add up, and the mixtures compose.
"""

import math

import numpy as np

from vestige import _validate
from vestige.defences.accounting import (
    Accountant,
    check_mechanism,
    epsilon_spent,
    renyi_curve,
    renyi_epsilon,
)
from vestige.defences.gaussian_dp import epsilon_of_mu
from vestige.defences.noise_schedule import Noise, stages_of

_COARSE, _FINE = 1e-2, 1e-3
"""Steps of the privacy loss: the coarse one costs at most 0.1 too much, and a tenth of the time."""

_LARGE = 10.0
_HOPELESS = 100.0
_SMALLEST = -690.0
"""Of log delta: floats end at -708."""


def group_epsilon(
    *,
    noise_multiplier: Noise,
    sample_rate: float,
    steps: int,
    delta: float,
    copies: int,
    accountant: Accountant = "prv",
) -> float:
    """Epsilon at delta for k copies of one record, all added or all removed.

    Args:
        noise_multiplier: as for `epsilon_spent`.
        sample_rate: each copy joins a batch with this probability, apart from the others.
        steps: as for `epsilon_spent`.
        delta: of the group, not of one record.
        copies: k, at least 1; 1 gives `epsilon_spent`.
        accountant: decides the conversion; see the module.

    Returns:
        at least 0; infinite where nothing is promised.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> training = dict(noise_multiplier=1.1, sample_rate=0.01, steps=1000, delta=1e-5)
        >>> round(group_epsilon(**training, copies=2, accountant="rdp"), 2)
        3.9
    """
    check_mechanism(noise_multiplier, sample_rate, steps, delta, accountant)
    _validate.at_least(1, copies=copies)
    one = epsilon_spent(
        noise_multiplier=noise_multiplier,
        sample_rate=sample_rate,
        steps=steps,
        delta=delta,
        accountant=accountant,
    )
    stages = stages_of(noise_multiplier, steps)
    if copies == 1 or steps == 0 or not all(0 < noise < math.inf for noise, _ in stages):
        return one
    mu = math.hypot(*(copies * math.sqrt(some) / noise for noise, some in stages))
    unsampled = epsilon_of_mu(mu, delta)
    if sample_rate == 1:
        return unsampled
    if accountant == "rdp":
        return min(unsampled, _converted(noise_multiplier, sample_rate, steps, delta, copies))
    if one > _HOPELESS:
        return unsampled
    coarse = _mixture(noise_multiplier, sample_rate, steps, delta, copies, _COARSE)
    if coarse > _LARGE:
        return min(unsampled, coarse)
    fine = _mixture(noise_multiplier, sample_rate, steps, delta, copies, _FINE)
    return min(unsampled, coarse, fine)


def _mixture(
    noise: Noise, rate: float, steps: int, delta: float, copies: int, interval: float
) -> float:
    from dp_accounting import dp_event, pld
    from scipy.stats import binom

    sums = np.arange(copies + 1)
    chances = binom.pmf(sums, copies, rate)
    accountant = pld.PLDAccountant(value_discretization_interval=interval)
    for one, some in stages_of(noise, steps):
        step = dp_event.MixtureOfGaussiansDpEvent(one, sums.tolist(), chances.tolist())
        accountant.compose(step, some)
    return float(accountant.get_epsilon(delta))


def _converted(noise: Noise, rate: float, steps: int, delta: float, copies: int) -> float:
    """k e for the largest delta of one record that k of them turn into at most `delta`."""
    orders, spent = renyi_curve(noise, rate, steps)

    def at(log_delta: float) -> float:
        return renyi_epsilon(orders, spent, math.exp(log_delta))

    def group_delta(log_delta: float) -> float:
        """The logarithm of d times the sum of e^(i e) over i < k."""
        return log_delta + float(np.logaddexp.reduce(at(log_delta) * np.arange(copies)))

    # Any that converts is a proof, so a search that is only good still gives a bound.
    grid = np.linspace(math.log(delta), _SMALLEST, 200)
    first = next((i for i, point in enumerate(grid) if group_delta(point) <= math.log(delta)), None)
    if first is None:
        return math.inf
    good = float(grid[first])
    bad = float(grid[max(first - 1, 0)])
    for _ in range(30):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if group_delta(middle) <= math.log(delta) else (good, middle)
    return copies * at(good)
