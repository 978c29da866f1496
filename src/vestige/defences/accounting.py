r"""Privacy accounting: epsilon of a private training, and the noise that keeps within a budget.

One step of DP-SGD is a Poisson-subsampled Gaussian mechanism: every unit joins a batch with
probability q, each contribution is clipped to norm C, and noise of standard deviation
:math:`\sigma C` is added to the sum. Neighbours differ by one unit added or removed. Accountants
are those of Opacus and dp-accounting:

- "prv": Gopi, Lee and Wutschitz (2021), "Numerical Composition of Differential Privacy";
- "pld": Doroshenko et al. (2022), "Connect the Dots: Tighter Discrete Approximations of Privacy
  Loss Distributions";
- "rdp": Mironov, Talwar and Zhang (2019), "Rényi Differential Privacy of the Sampled Gaussian
  Mechanism", over Opacus' orders and some larger ones.

All are upper bounds. Where Rényi's is already above 500, "prv" and "pld" give that bound: nothing
is protected there, and exact figures take gigabytes.

Differs from Mireshghallah et al. (2021), who state epsilon by Gaussian differential privacy: it is
a limit for many steps at small rates and no bound (2 where "pld" gives 3.06), so that no budget is
counted by it. `mu` stands beside a bound, to be compared with theirs (`gaussian_dp`).

A noise multiplier may be a `NoiseSchedule`: each accountant then composes its stages.

Every accountant counts on Poisson sampling: batches that are shuffled spend another epsilon, which
none of them knows.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.defences.gaussian_dp import check_steps, gdp_mu
from vestige.defences.noise_schedule import Noise, NoiseSchedule, falling, noise_at, stages_of
from vestige.errors import TrainingError

Accountant = Literal["prv", "rdp", "pld"]
Unit = Literal["sequence", "user"]

SMALLEST_DELTA = 1e-12
"""Below it the rounding errors of "prv" and "pld" are as large as delta: at 1e-13 they differ by
0.07 where they agree within 0.01 here, at 1e-14 "prv" gives up."""

LARGE_ORDERS = (80, 96, 128, 192, 256, 512, 1024)
"""Beyond Opacus' own, which end at 63: without them no epsilon can be below log(1 / delta) / 62."""

HOPELESS = 500.0
"""Epsilon above which nothing is protected, and Rényi's bound is exact enough."""
_NOISE_LIMITS = (0.01, 1e4)
_PRECISION = 1e-3
"""Of `noise_for`, relative."""


@dataclass(frozen=True, kw_only=True)
class PrivacySpent:
    """The budget that a private training has spent.

    Attributes:
        epsilon: at most this much privacy loss, but for probability delta; 0 before the first step.
        delta: that probability.
        accountant: who counted.
        unit: what is protected: one sequence, or a user with all their sequences.
        noise_multiplier: standard deviation of the noise over the clipping norm; where it falls,
            that of the first stage.
        sample_rate: how likely a unit is to be in a batch.
        steps: updates so far.
        max_grad_norm: the clipping norm.
        mu: of Gaussian differential privacy, in the limit, which is no bound: to be compared with
            papers that state it; None where it is not finite.
        noise_decay: noise multiplier of the last stage planned over that of the first; 1: it is
            constant (`noise_schedule`).
    """

    epsilon: float
    delta: float
    accountant: Accountant
    unit: Unit
    noise_multiplier: float
    sample_rate: float
    steps: int
    max_grad_norm: float
    mu: float | None
    noise_decay: float = 1.0

    def summary(self) -> dict[str, object]:
        """One row of a results table; an epsilon without bound is None."""
        row = asdict(self) | {"epsilon": self.epsilon if math.isfinite(self.epsilon) else None}
        if self.noise_decay == 1:
            del row["noise_decay"]
        return row


def privacy_spent(
    *,
    noise_multiplier: Noise,
    sample_rate: float,
    steps: int,
    delta: float,
    max_grad_norm: float,
    unit: Unit = "sequence",
    accountant: Accountant = "prv",
) -> PrivacySpent:
    """The whole budget in one record; arguments as for `epsilon_spent`.

    Example:
        >>> privacy_spent(noise_multiplier=1.1, sample_rate=0.01, steps=1000, delta=1e-5,
        ...               max_grad_norm=1.0, accountant="rdp").summary()["mu"]
        0.358...
    """
    _validate.positive(max_grad_norm=max_grad_norm)
    _validate.one_of(get_args(Unit), unit=unit)
    epsilon = epsilon_spent(
        noise_multiplier=noise_multiplier,
        sample_rate=sample_rate,
        steps=steps,
        delta=delta,
        accountant=accountant,
    )
    mu = gdp_mu(noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=steps)
    return PrivacySpent(
        epsilon=epsilon,
        delta=delta,
        accountant=accountant,
        unit=unit,
        noise_multiplier=noise_at(noise_multiplier, 0),
        sample_rate=sample_rate,
        steps=steps,
        max_grad_norm=max_grad_norm,
        mu=mu if math.isfinite(mu) else None,
        noise_decay=noise_multiplier.decay if isinstance(noise_multiplier, NoiseSchedule) else 1.0,
    )


def epsilon_spent(
    *,
    noise_multiplier: Noise,
    sample_rate: float,
    steps: int,
    delta: float,
    accountant: Accountant = "prv",
) -> float:
    """Epsilon after some steps of the Poisson-subsampled Gaussian mechanism, at delta.

    Args:
        noise_multiplier: standard deviation of the noise over the clipping norm, or how it falls; 0
            is no privacy.
        sample_rate: how likely a unit is to be in a batch, in (0, 1].
        steps: updates, at least 0.
        delta: probability, at least SMALLEST_DELTA and below 1. Only below 1 / units does it keep
            a training from publishing one unit whole (`check_delta`).
        accountant: see the module.

    Returns:
        at least 0; infinite without noise.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> round(epsilon_spent(noise_multiplier=1.1, sample_rate=0.01, steps=1000, delta=1e-5), 4)
        1.5255
    """
    check_mechanism(noise_multiplier, sample_rate, steps, delta, accountant)
    if steps == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    return _epsilon(noise_multiplier, sample_rate, steps, delta, accountant)


@lru_cache(maxsize=4096)
def _epsilon(noise: Noise, rate: float, steps: int, delta: float, accountant: Accountant) -> float:
    """Kept, since one takes up to a second and a training asks for the same ones several times."""
    epsilon = _rdp(noise, rate, steps, delta)
    if accountant == "rdp" or not epsilon <= HOPELESS:
        return epsilon
    count = _prv if accountant == "prv" else _pld
    finer = count(noise, rate, steps, delta, epsilon)
    # Both are upper bounds, so the smaller one is; a figure lost to overflow is none.
    return max(0.0, min(epsilon, finer if math.isfinite(finer) else epsilon))


def noise_for(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float,
    steps: int,
    accountant: Accountant = "prv",
    progress: Callable[[int], None] | None = None,
    decay: float = 1.0,
) -> float:
    """The least noise multiplier, to a thousandth, that spends at most epsilon.

    Args:
        epsilon: the budget, above 0.
        delta: as for `epsilon_spent`.
        sample_rate: in (0, 1].
        steps: all updates of the training, at least 1.
        accountant: see the module.
        progress: called with how many noises have been tried: about 12 in all, 22 if it falls.
        decay: of the noise over the steps (`noise_schedule`); 1: it is constant.

    Returns:
        at least 0.01; of the first stage, where the noise falls.

    Raises:
        ValueError: an argument is out of range.
        TrainingError: no noise up to 10,000 is enough.

    Example:
        >>> noise = noise_for(
        ...     epsilon=2.0, delta=1e-5, sample_rate=0.01, steps=1000, accountant="rdp")
        >>> round(noise, 2)
        1.02
    """
    _validate.positive(epsilon=epsilon)
    _validate.at_least(1, steps=steps)

    tried = itertools.count(1)

    def spent(noise: float, accountant: Accountant = accountant) -> float:
        epsilon = epsilon_spent(
            noise_multiplier=falling(noise, decay, steps),
            sample_rate=sample_rate,
            steps=steps,
            delta=delta,
            accountant=accountant,
        )
        if progress is not None:
            progress(next(tried))
        return epsilon

    try:
        if decay == 1 or accountant == "rdp":
            return _least_noise(spent, epsilon)
        # Rényi's bound is quick, and close from above: losses of little noise take minutes.
        return _at_most(spent, epsilon, _least_noise(partial(spent, accountant="rdp"), epsilon))
    except OverflowError as error:
        raise TrainingError(
            f"epsilon {epsilon:g} at delta {delta:g} is out of reach in {steps} steps at sample "
            f"rate {sample_rate:g}: {error}",
            remedy=(
                "Raise epsilon or delta, train for fewer epochs, or use smaller batches or more "
                "data."
            ),
        ) from None


def _least_noise(spent: Callable[[float], float], epsilon: float) -> float:
    """The least noise that spends at most epsilon, by bisection; OverflowError beyond limits."""
    low, high = 0.5, 1.0
    while spent(high) > epsilon:
        low, high = high, 2 * high
        if high > _NOISE_LIMITS[1]:
            raise OverflowError(f"noise of {low:g} still spends {spent(low):.3g}")
    while high <= 1 and low >= _NOISE_LIMITS[0] and spent(low) <= epsilon:
        low, high = low / 2, low
    return _bisected(spent, epsilon, low, high)


def _at_most(spent: Callable[[float], float], epsilon: float, high: float) -> float:
    """The least noise that spends at most epsilon, as `high` does; it is not far below."""
    low = 0.9 * high
    while low >= _NOISE_LIMITS[0] and spent(low) <= epsilon:
        low, high = 0.9 * low, low
    return _bisected(spent, epsilon, low, high)


def _bisected(spent: Callable[[float], float], epsilon: float, low: float, high: float) -> float:
    while high > (1 + _PRECISION) * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high


def renyi_curve(
    noise_multiplier: Noise, sample_rate: float, steps: int
) -> tuple[list[float], NDArray[np.float64]]:
    """The orders, and the Rényi divergence that the steps spend at each.

    That of stages adds up: Mironov (2017), "Rényi Differential Privacy", Proposition 1.
    """
    with _quiet():
        from opacus.accountants import RDPAccountant

        orders = (*RDPAccountant.DEFAULT_ALPHAS, *LARGE_ORDERS)
        spent = np.zeros(len(orders))
        for noise, some in stages_of(noise_multiplier, steps):
            spent = spent + some * _renyi_step(noise, sample_rate, orders)
    return list(orders), spent


@lru_cache(maxsize=1024)
def _renyi_step(noise: float, rate: float, orders: tuple[float, ...]) -> NDArray[np.float64]:
    """What one step spends at each order: steps with the same noise spend it again and again."""
    from opacus.accountants.analysis import rdp

    spent = rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=orders)
    return np.asarray(spent, dtype=np.float64)


def renyi_epsilon(orders: list[float], spent: NDArray[np.float64], delta: float) -> float:
    """The smallest epsilon at delta over all orders; infinite where none gives any."""
    from opacus.accountants.analysis import rdp

    with _quiet():
        epsilon, _ = rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)
    return max(0.0, float(epsilon))


def check_mechanism(
    noise_multiplier: Noise, sample_rate: float, steps: int, delta: float, accountant: str
) -> None:
    """Raise ValueError unless the numbers describe a training that can be accounted for."""
    check_steps(noise_multiplier, sample_rate, steps)
    check_accountant(accountant)
    check_delta(delta)


def check_accountant(accountant: str) -> None:
    """Raise ValueError unless a bound is counted by this name."""
    if accountant == "gdp":
        raise ValueError(
            f"accountant must be one of {get_args(Accountant)}, got 'gdp': Gaussian differential "
            "privacy is a limit for many steps and no bound, it can say 2 where 3.06 is spent"
        )
    _validate.one_of(get_args(Accountant), accountant=accountant)


def check_delta(delta: float, units: int | None = None) -> None:
    """Raise ValueError unless delta is one that an accountant can carry and that protects.

    Args:
        delta: probability with which the guarantee may fail.
        units: how many sequences, or users, are protected. A training that publishes one of n,
            sampled at random, is (0, 1 / n)-private: from 1 / n on, delta promises no one anything.
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


def _rdp(noise: Noise, rate: float, steps: int, delta: float) -> float:
    orders, spent = renyi_curve(noise, rate, steps)
    return renyi_epsilon(orders, spent, delta)


def _prv(noise: Noise, rate: float, steps: int, delta: float, above: float) -> float:
    from opacus.accountants import PRVAccountant

    accountant: Any = PRVAccountant()
    accountant.history = [(one, rate, some) for one, some in stages_of(noise, steps)]
    with _quiet():
        # Opacus' own error up to epsilon 20; a fixed one takes gigabytes at hundreds.
        return float(accountant.get_epsilon(delta, eps_error=max(0.01, above / 2000)))


def _pld(noise: Noise, rate: float, steps: int, delta: float, _above: float) -> float:
    from dp_accounting import dp_event, pld

    accountant = pld.PLDAccountant()
    for one, some in stages_of(noise, steps):
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(one))
        accountant.compose(step, some)
    return float(accountant.get_epsilon(delta))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Opacus' warnings about orders at the end of its list and about overflows."""
    with warnings.catch_warnings(), np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        warnings.filterwarnings("ignore", message="Optimal order is the")
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"opacus\.accountants")
        yield
