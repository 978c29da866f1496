r"""Epsilon of private trainings, and the noise that keeps within a budget, by dp-accounting.

One step of DP-SGD is a Poisson-subsampled Gaussian mechanism: every unit joins a batch with
probability q, each contribution is clipped to norm C, and noise of standard deviation
:math:`\sigma C` is added to the sum. Neighbours differ by one unit added or removed. Mechanisms
compose, also adaptively (Dwork, Rothblum and Vadhan 2010). Accountants, all upper bounds:

- "pld": privacy loss distributions, rounded upwards; Doroshenko et al. (2022), "Connect the Dots";
- "rdp": Mironov, Talwar and Zhang (2019), "Rényi Differential Privacy of the Sampled Gaussian
  Mechanism".

Above 500, "pld" returns the Rényi bound: there is no protection, and exact figures take gigabytes.

k copies of a record are a mixture of Gaussians: a batch holds j of them with probability
:math:`\binom{k}{j} q^j (1-q)^{k-j}`, and they move the sum by at most jC. Ganesh (2024), "Tight
Group-Level DP Guarantees for DP-SGD with Sampling via Mixture of Gaussians Mechanisms". Where one
copy may already spend 100, sampling is ignored: k copies are then :math:`\mu`-GDP with
:math:`\mu = k \sqrt{T} / \sigma` (Dong, Roth and Su 2022, Corollary 2.13).
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, get_args

from vestige import _validate
from vestige.errors import TrainingError

Accountant = Literal["pld", "rdp"]
Unit = Literal["sequence", "user"]

SMALLEST_DELTA = 1e-12
"""Below it the rounding errors of "pld" are as large as delta."""

HOPELESS, GROUP_HOPELESS = 500.0, 100.0
"""Epsilon above which a coarser bound is returned, for one record and for a group."""

_FINEST = 1e-4
_INTERVALS = (1e-2, 1e-3)
"""Steps of the discretized privacy loss: `_FINEST` for one record, the others for a group, where
the coarse one costs at most 0.1, and a tenth of the time."""

_LEAST_NOISE, _MOST_NOISE, _PRECISION = 0.01, 1e4, 1e-3


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Steps of the Poisson-subsampled Gaussian mechanism.

    Attributes:
        noise_multiplier: standard deviation of the noise over the clipping norm; 0: no privacy.
        sample_rate: probability that a unit is in a batch, in (0, 1].
        steps: updates.
        copies: of a record; epsilon covers all of them together.

    Raises:
        ValueError: a value is out of range.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int
    copies: int = 1

    def __post_init__(self) -> None:
        _validate.at_least(0, noise_multiplier=self.noise_multiplier, steps=self.steps)
        _validate.at_least(1, copies=self.copies)
        if not 0 < self.sample_rate <= 1:
            raise ValueError(f"sample_rate must lie in (0, 1], got {self.sample_rate}")

    def epsilon(self, delta: float, accountant: Accountant = "pld") -> float:
        """Epsilon of these steps alone; see `composed_epsilon`.

        Example:
            >>> one = Mechanism(noise_multiplier=1.1, sample_rate=0.01, steps=1000)
            >>> round(one.epsilon(1e-5), 3), round(replace(one, copies=2).epsilon(1e-5), 2)
            (1.515, 3.29)
        """
        return composed_epsilon([self], delta=delta, accountant=accountant)

    @property
    def event(self) -> Any:
        """The mechanism as dp-accounting names it."""
        import dp_accounting as dp
        from scipy.stats import binom

        if self.copies == 1:
            noised = dp.GaussianDpEvent(self.noise_multiplier)
            step: Any = dp.PoissonSampledDpEvent(self.sample_rate, noised)
        else:
            counts = list(range(self.copies + 1))
            probabilities = binom.pmf(counts, self.copies, self.sample_rate).tolist()
            step = dp.dp_event.MixtureOfGaussiansDpEvent(
                self.noise_multiplier, counts, probabilities
            )
        return dp.SelfComposedDpEvent(step, self.steps)


@dataclass(frozen=True, kw_only=True)
class PrivacySpent:
    """The budget of a private training.

    Attributes:
        epsilon: bound on the privacy loss, except with probability delta.
        delta: probability that the bound fails.
        accountant: method that computed epsilon.
        unit: protected unit: a sequence, or a user with all their sequences.
        noise_multiplier: standard deviation of the noise over the clipping norm.
        sample_rate: probability that a unit is in a batch.
        steps: updates.
        max_grad_norm: the clipping norm.
    """

    epsilon: float
    delta: float
    accountant: Accountant
    unit: Unit
    noise_multiplier: float
    sample_rate: float
    steps: int
    max_grad_norm: float

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        *,
        delta: float,
        max_grad_norm: float,
        unit: Unit = "sequence",
        accountant: Accountant = "pld",
    ) -> "PrivacySpent":
        """The budget of a mechanism without copies."""
        _validate.positive(max_grad_norm=max_grad_norm)
        _validate.one_of(get_args(Unit), unit=unit)
        numbers = asdict(mechanism)
        del numbers["copies"]
        epsilon = mechanism.epsilon(delta, accountant)
        named: Any = {"accountant": accountant, "unit": unit, "max_grad_norm": max_grad_norm}
        return cls(epsilon=epsilon, delta=delta, **named, **numbers)

    def summary(self) -> dict[str, object]:
        """One row of a results table; an infinite epsilon is None."""
        return asdict(self) | {"epsilon": self.epsilon if math.isfinite(self.epsilon) else None}


def composed_epsilon(
    mechanisms: Sequence[Mechanism], *, delta: float, accountant: Accountant = "pld"
) -> float:
    """Epsilon at delta of a record that all mechanisms use.

    Noise and steps of each must not depend on the output of an earlier one
    (Rogers et al. 2016, "Privacy Odometers and Filters").

    Args:
        mechanisms: in any order. If one has copies, "pld" is used in any case.
        delta: at least SMALLEST_DELTA, below 1; see `check_delta`.
        accountant: see the module.

    Returns:
        at least 0; infinite if a mechanism has no noise.

    Raises:
        ValueError: there is no mechanism, or delta or accountant is invalid.

    Example:
        >>> one = Mechanism(noise_multiplier=1.1, sample_rate=0.01, steps=1000)
        >>> both = composed_epsilon([one, one], delta=1e-5)
        >>> both == replace(one, steps=2000).epsilon(1e-5), both < 2 * one.epsilon(1e-5)
        (True, True)
    """
    _validate.one_of(get_args(Accountant), accountant=accountant)
    check_delta(delta)
    if not mechanisms:
        raise ValueError("mechanisms must be at least one, got none")
    steps: Counter[Mechanism] = Counter()
    for mechanism in mechanisms:
        steps[replace(mechanism, steps=0)] += mechanism.steps
    combined = tuple(
        replace(mechanism, steps=number) for mechanism, number in steps.items() if number
    )
    if any(mechanism.noise_multiplier == 0 for mechanism in combined):
        return math.inf
    if all(math.isinf(mechanism.noise_multiplier) for mechanism in combined):
        return 0.0
    if any(mechanism.copies > 1 for mechanism in combined):
        return _group_epsilon(combined, delta)
    return _epsilon(combined, delta, accountant)


@lru_cache(maxsize=4096)
def _epsilon(
    mechanisms: tuple[Mechanism, ...],
    delta: float,
    accountant: Accountant,
    interval: float = _FINEST,
) -> float:
    from dp_accounting.rdp import RdpAccountant

    bound = _accounted(RdpAccountant(), mechanisms, delta)
    if accountant == "pld" and bound <= HOPELESS:
        bound = min(bound, _by_losses(mechanisms, delta, interval))
    return max(0.0, bound)


@lru_cache(maxsize=256)
def _group_epsilon(mechanisms: tuple[Mechanism, ...], delta: float) -> float:
    from vestige.metrics.f_dp_epsilon import GAUSSIAN

    mus = (
        mechanism.copies * math.sqrt(mechanism.steps) / mechanism.noise_multiplier
        for mechanism in mechanisms
    )
    unsampled = GAUSSIAN.epsilon(math.hypot(*mus), delta)
    single = tuple(replace(mechanism, copies=1) for mechanism in mechanisms)
    unsampled_batches = all(mechanism.sample_rate == 1 for mechanism in mechanisms)
    if unsampled_batches or _epsilon(single, delta, "pld") > GROUP_HOPELESS:
        return unsampled
    coarse, fine = _INTERVALS
    bound = min(unsampled, _by_losses(mechanisms, delta, coarse))
    return bound if bound > 10 else min(bound, _by_losses(mechanisms, delta, fine))


def _by_losses(mechanisms: tuple[Mechanism, ...], delta: float, interval: float) -> float:
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=interval)
    bound = _accounted(accountant, mechanisms, delta)
    return bound if math.isfinite(bound) else math.inf


def _accounted(accountant: Any, mechanisms: tuple[Mechanism, ...], delta: float) -> float:
    """Epsilon by an accountant, without its warnings about skipped orders."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        for mechanism in mechanisms:
            accountant.compose(mechanism.event)
        return float(accountant.get_epsilon(delta))
    finally:
        logger.setLevel(level)


def noise_for(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float,
    steps: int,
    accountant: Accountant = "pld",
    progress: Callable[[int], None] | None = None,
) -> float:
    """The least noise multiplier, to a thousandth and at least 0.01, that spends at most epsilon.

    Args:
        epsilon: the budget, above 0.
        delta: as for `composed_epsilon`.
        sample_rate: in (0, 1].
        steps: all updates of the training, at least 1.
        accountant: see the module.
        progress: called with the number of noises tried, about 20 in all.

    Raises:
        ValueError: an argument is out of range.
        TrainingError: no noise up to 10,000 is enough.

    Example:
        >>> round(noise_for(epsilon=2.0, delta=1e-5, sample_rate=0.01, steps=1000), 2)
        0.96
    """
    _validate.positive(epsilon=epsilon)
    _validate.at_least(1, steps=steps)
    _validate.one_of(get_args(Accountant), accountant=accountant)
    check_delta(delta)
    evaluations = 0

    def spent(noise: float, using: Accountant, interval: float = _FINEST) -> float:
        nonlocal evaluations
        evaluations += 1
        mechanism = Mechanism(noise_multiplier=noise, sample_rate=sample_rate, steps=steps)
        epsilon_spent = _epsilon((mechanism,), delta, using, interval)
        if progress is not None:
            progress(evaluations)
        return epsilon_spent

    noise = 1.0
    while spent(noise, "rdp") > epsilon:
        noise *= 2
        if noise > _MOST_NOISE:
            raise TrainingError(
                f"epsilon {epsilon:g} at delta {delta:g} is out of reach in {steps} steps at "
                f"sample rate {sample_rate:g}: noise of {noise / 2:g} still spends more",
                remedy=(
                    "Raise epsilon or delta, train for fewer epochs, or use smaller batches or "
                    "more data."
                ),
            )
    noise = _least(partial(spent, using="rdp"), epsilon, noise)
    if accountant == "pld":  # quick bounds first: each is close to the next
        for interval in (_INTERVALS[1], _FINEST):
            noise = _least(partial(spent, using="pld", interval=interval), epsilon, noise)
    return noise


def _least(spent: Callable[[float], float], epsilon: float, high: float) -> float:
    """The least noise within a budget, to a thousandth; `high` is enough or nearly so."""
    from scipy.optimize import brentq

    def excess(log_noise: float) -> float:
        return math.log(min(max(spent(math.exp(log_noise)), 1e-300), 1e300) / epsilon)

    if spent(high) > epsilon or spent(high / (1 + _PRECISION)) > epsilon:
        return _raised(spent, epsilon, high)
    while spent(low := 0.95 * high) <= epsilon:  # losses of little noise take minutes: small steps
        if low < _LEAST_NOISE:
            return high
        high = low
    noise = math.exp(brentq(excess, math.log(low), math.log(high), xtol=_PRECISION / 4))
    return min(high, _raised(spent, epsilon, (1 + _PRECISION / 2) * noise))


def _raised(spent: Callable[[float], float], epsilon: float, noise: float) -> float:
    """The noise, raised until it keeps the budget."""
    while spent(noise) > epsilon:
        noise *= 1 + _PRECISION / 2
    return noise


def check_delta(delta: float, units: int | None = None) -> None:
    """Raise ValueError unless delta can be accounted for and protects.

    Args:
        delta: probability with which the guarantee may fail.
        units: number of protected sequences or users. A training that publishes one of n,
            sampled at random, is (0, 1 / n)-private, so a delta of 1 / n or more protects nobody.
    """
    if not SMALLEST_DELTA <= delta < 1:
        reason = ": the accountants' own rounding errors are larger" if 0 < delta < 1 else ""
        raise ValueError(f"delta must lie in [{SMALLEST_DELTA:g}, 1), got {delta}{reason}")
    if units is not None and delta >= 1 / units:
        raise ValueError(
            f"delta must be below 1 / {units:,} = {1 / units:.2g}, got {delta:g}: with 1 / n a "
            "training may publish one of n whole; use a tenth of that or less"
        )


def default_delta(units: int) -> float:
    """The power of ten below a tenth of 1 / units.

    Example:
        >>> default_delta(3_000)
        1e-05
    """
    return float(10.0 ** -math.ceil(math.log10(10 * units)))
