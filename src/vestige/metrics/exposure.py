r"""Exposure of a canary, in bits.

Carlini, Liu, Erlingsson, Kos and Song (2019), "The Secret Sharer: Evaluating and Testing
Unintended Memorization in Neural Networks", USENIX Security, Definitions 1 to 5 and section 5.2:

.. math::
    \mathrm{exposure}(s) = \log_2 |R| - \log_2 \mathrm{rank}(s)
    \qquad \mathrm{exposure}(s) \approx -\log_2 \Pr[X \le \text{log-perplexity of } s]

where the rank of the likeliest sequence is 1 and X is the log-perplexity of a random sequence:
its share is counted in a sample (`sampled_exposure`), counted in the whole space
(`whole_exposure`), or read off a skew-normal distribution fitted to a sample (`SkewNormalFit`).

Differs from the paper: a counted share comes with the interval of Clopper and Pearson. A reference
as likely as the canary counts before it, so that a tie never makes a canary look more exposed, and
rank / (n + 1) is a valid p-value. TensorFlow Privacy's `compute_exposure_extrapolation`, like
SciPy's `skewnorm.logcdf`, is infinite where the distribution underflows.
"""

from dataclasses import dataclass
from math import e, log, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from vestige.metrics.estimates import Floats, binomial_ends

CHANCE = log2(e)
"""Bits that a sequence which was never planted reaches on average, among many references: 1.44."""

_ENOUGH = 1e-4  # where so much of the distribution is left, its logarithm is safe
_REACH = 40.0  # e^-40 of an integrand is nothing
_NODES = 200


@dataclass(frozen=True, kw_only=True)
class RankExposure:
    """Exposure of n canaries by their rank, (n,) each.

    Attributes:
        rank: 1 + the references at least as likely.
        exposure, low, high: bits, with the ends of the interval; infinite where nothing bounds it.
        at_ceiling: whether a sample has no reference as likely: the exposure is a lower bound.
        ceiling: bits; the most that so many references can say.
    """

    rank: NDArray[np.int64]
    exposure: Floats
    low: Floats
    high: Floats
    at_ceiling: NDArray[np.bool_]
    ceiling: float


def sampled_exposure(
    log_perplexities: ArrayLike,
    references: ArrayLike,
    *,
    space_bits: float = np.inf,
    inside: bool = False,
    confidence: float = 0.95,
) -> RankExposure:
    """Exposure by rank among references sampled, with replacement, from the space.

    With k of n references at least as likely, the exposure is log2 n - log2 (k + 1), and the
    interval that of the share k / n. With k = 0 the sample resolves no more than the low end of
    that interval: the only end that can be wrong, so that it holds with confidence
    (1 + confidence) / 2.

    Args:
        log_perplexities: (m,) of the canaries, in any unit that the references share.
        references: (n,) of sequences that were never planted.
        space_bits: log2 of the number of sequences there are, which no exposure exceeds.
        inside: whether the canaries are references, too: each is compared with the n - 1 others.
    """
    ahead, number = _ahead(log_perplexities, references)
    if inside:
        ahead, number = np.maximum(ahead - 1, 0), number - 1
    exposure = np.minimum(log2(number) - np.log2(ahead + 1), space_bits)
    least, most = binomial_ends(ahead, number, confidence=confidence)
    with np.errstate(divide="ignore"):
        low, high = -np.log2(most), -np.log2(least)
    return RankExposure(
        rank=ahead + 1,
        exposure=exposure,
        low=np.minimum(low, exposure),
        high=np.maximum(np.minimum(high, space_bits), exposure),
        at_ceiling=ahead == 0,
        ceiling=log2(number),
    )


def whole_exposure(
    log_perplexities: ArrayLike, space: ArrayLike, *, inside: ArrayLike = True
) -> RankExposure:
    """Exposure by rank in the whole space (n,), which needs no interval.

    `inside`: (m,) which canaries belong to the space; the others are ranked as if added.
    """
    ahead, number = _ahead(log_perplexities, space)
    rank = np.maximum(ahead + 1 - np.asarray(inside, dtype=np.int64), 1)
    exposure = log2(number) - np.log2(rank)
    return RankExposure(
        rank=rank,
        exposure=exposure,
        low=exposure,
        high=exposure,
        at_ceiling=np.zeros(len(rank), dtype=bool),
        ceiling=log2(number),
    )


@dataclass(frozen=True, kw_only=True)
class SkewNormalFit:
    """A skew-normal distribution of the references' log-perplexities, with `scipy.stats.skewnorm`.

    Attributes:
        least: the least of the references; what lies under it is extrapolated.
        distance: the largest difference between the fitted and the counted distribution
            (Kolmogorov-Smirnov), in [0, 1].
    """

    shape: float
    loc: float
    scale: float
    least: float
    distance: float

    def exposure(self, log_perplexities: ArrayLike) -> Floats:
        """-log2 P(X <= x) in bits; it can exceed log2 of the number of sequences."""
        z = (np.asarray(log_perplexities, dtype=np.float64) - self.loc) / self.scale
        bits: Floats = -log_skew_normal_cdf(z, self.shape) / log(2)
        return bits

    def extrapolated(self, log_perplexities: ArrayLike) -> NDArray[np.bool_]:
        """Whether a value lies beyond all references, where nothing checks the fit."""
        return np.asarray(log_perplexities, dtype=np.float64) < self.least


def fit_skew_normal(references: ArrayLike) -> SkewNormalFit:
    """Fit a distribution to three or more finite log-perplexities, by maximum likelihood."""
    values = np.sort(np.asarray(references, dtype=np.float64).reshape(-1))
    if values.size < 3 or not np.isfinite(values).all() or values[0] == values[-1]:
        raise ValueError(
            "references must be at least 3 finite numbers that are not all equal, got "
            f"{values.size} from {values.min(initial=np.inf)} to {values.max(initial=-np.inf)}"
        )
    with np.errstate(all="ignore"):  # the search tries impossible scales on its way
        shape, loc, scale = (float(found) for found in stats.skewnorm.fit(values))
    fitted = stats.skewnorm.cdf(values, shape, loc, scale)
    steps = np.arange(values.size + 1) / values.size
    distance = np.maximum(steps[1:] - fitted, fitted - steps[:-1]).max()
    return SkewNormalFit(
        shape=shape, loc=loc, scale=scale, least=float(values[0]), distance=float(distance)
    )


def log_skew_normal_cdf(z: ArrayLike, shape: float) -> Floats:
    r"""(n,) log P(Z <= z) of the skew-normal distribution with location 0 and scale 1.

    In the left tail it is the logarithm of the density at z plus that of

    .. math:: \int_0^\infty f(z - u) / f(z) \, du

    whose integrand falls at least as fast as e^{-u g} with g the slope of log f at z, since the
    density is log-concave.
    """
    values = np.atleast_1d(np.asarray(z, dtype=np.float64))
    answers = np.full(values.shape, -np.inf)
    # Owen's T: right of 0 nothing cancels, whatever the shape
    share = special.ndtr(values) - 2 * special.owens_t(values, shape)
    safe = (share >= _ENOUGH) | (values >= 0)
    answers[safe] = np.log(np.minimum(share[safe], 1.0))
    tail = ~safe & np.isfinite(values)
    answers[tail] = _log_left_tail(values[tail], shape)
    return answers


def _log_left_tail(z: Floats, shape: float) -> Floats:
    points, weights = special.roots_legendre(_NODES)
    u = (points + 1) / 2 * _REACH  # in units of 1 / slope
    at_z = _log_density(z, shape)
    # d/dz log f = -z + shape * phi(shape z) / Phi(shape z)
    hazard = np.exp(-((shape * z) ** 2) / 2 - log(2 * np.pi) / 2 - special.log_ndtr(shape * z))
    slope = -z + shape * hazard
    ratio = np.exp(_log_density(z[:, None] - u / slope[:, None], shape) - at_z[:, None])
    tail: Floats = at_z + np.log((ratio * weights).sum(1) * _REACH / 2) - np.log(slope)
    return tail


def _log_density(z: Floats, shape: float) -> Floats:
    normal = log(2) - log(2 * np.pi) / 2 - z**2 / 2
    return np.asarray(normal + special.log_ndtr(shape * z), dtype=np.float64)


def _ahead(log_perplexities: ArrayLike, references: ArrayLike) -> tuple[NDArray[np.int64], int]:
    """How many references are at least as likely as each value, and how many there are."""
    values = np.asarray(log_perplexities, dtype=np.float64).reshape(-1)
    ordered = np.sort(np.asarray(references, dtype=np.float64).reshape(-1))
    if not ordered.size:
        raise ValueError("references must hold at least one log-perplexity, got none")
    if np.isnan(values).any() or np.isnan(ordered).any():
        raise ValueError("log_perplexities and references must be numbers, got nan")
    return np.searchsorted(ordered, values, side="right").astype(np.int64), ordered.size
