r"""Gaussian differential privacy of a private training.

Bu, Dong, Long and Su (2019), "Deep Learning with Gaussian Differential Privacy",
arXiv:1911.11607, and Dong, Roth and Su (2022), "Gaussian Differential Privacy". Mireshghallah et
al. (2021), "Privacy Regularization", state their trainings by its mu.
"""

import math

from vestige import _validate
from vestige.defences.noise_schedule import Noise, NoiseSchedule, stages_of


def gdp_mu(*, noise_multiplier: Noise, sample_rate: float, steps: int) -> float:
    r"""The :math:`\mu` of Gaussian differential privacy that many steps tend to.

    .. math:: \mu = q \sqrt{T (e^{1 / \sigma^2} - 1)}

    Bu et al. (2019), section 3, for Poisson batches. It is a limit, not a bound. Of stages with
    different noise, squares add up: Dong, Roth and Su (2022), Corollary 3.3.

    Returns:
        at least 0; infinite without noise.

    Example:
        >>> round(gdp_mu(noise_multiplier=1.1, sample_rate=0.01, steps=1000), 4)
        0.3585
    """
    check_steps(noise_multiplier, sample_rate, steps)
    if steps == 0:
        return 0.0
    stages = stages_of(noise_multiplier, steps)
    try:
        return sample_rate * math.sqrt(sum(n * math.expm1(noise**-2) for noise, n in stages))
    except (OverflowError, ZeroDivisionError):
        return math.inf


def epsilon_of_mu(mu: float, delta: float) -> float:
    r"""Epsilon at delta of :math:`\mu`-Gaussian differential privacy.

    Dong, Roth and Su (2022), "Gaussian Differential Privacy", Corollary 2.13:

    .. math:: \delta = \Phi(-\epsilon / \mu + \mu / 2) - e^\epsilon \Phi(-\epsilon / \mu - \mu / 2)

    Example:
        >>> round(epsilon_of_mu(1.0, 1e-5), 4)
        4.3772
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    if mu == 0 or math.isinf(mu):
        return mu
    # The second term left out: an upper bound, and exact enough where floats end.
    above = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    if mu > 1e4:
        return above

    def excess(epsilon: float) -> float:
        first = log_ndtr(-epsilon / mu + mu / 2)
        second = epsilon + log_ndtr(-epsilon / mu - mu / 2)
        # Rounding can put the smaller term a hair above the larger one.
        return float(first + math.log(max(-math.expm1(second - first), 1e-300)) - math.log(delta))

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, above, xtol=1e-10))


def check_steps(noise_multiplier: Noise, sample_rate: float, steps: int) -> None:
    """Raise ValueError unless noise, rate and number of steps are those of some training."""
    _validate.at_least(0, steps=steps)
    if isinstance(noise_multiplier, NoiseSchedule):
        noise_multiplier.stages(steps)
    else:
        _validate.at_least(0, noise_multiplier=noise_multiplier)
    if not 0 < sample_rate <= 1:
        raise ValueError(f"sample_rate must lie in (0, 1], got {sample_rate}")
