r"""Lower bounds of epsilon from the trade-off curve of a mechanism, and from a threshold.

`f_dp_epsilon`: Mahloujifar, Melis and Chaudhuri (2024), "Auditing f-Differential Privacy in One
Run", arXiv:2410.22235. The trade-off curve f of a mechanism (Dong, Roth and Su 2022) contains more
information than epsilon at one delta: a test of level x has a type II error of at least f(x). Fair
coins put each of m canaries in or leave it out; c of c' guesses are right. If the training is
f-private, an event of probability alpha needs, for i = c - 1, ..., 0 from
:math:`r_c = \alpha c / m` and :math:`h_c = \alpha (c' - c) / m`,

.. math:: h_i = \max(h_{i + 1}, f(1 - r_{i + 1})), \quad
    r_i = r_{i + 1} + \frac{i}{c' - i} (h_i - h_{i + 1}),

to end with :math:`r_0 + h_0 \le c' / m`. Otherwise f is refuted at level alpha. In a family of
curves with a strength, the bound is the epsilon at delta of the largest refuted strength.

The bound assumes that the curve of the training is in the family; `one_run_epsilon` assumes no
curve. The refutation of a claimed curve assumes only fair coins.

`threshold_epsilon`: Jagielski, Ullman and Oprea (2020), "Auditing Differentially Private Machine
Learning", NeurIPS, arXiv:2006.07709, section 3: rates of true and false guesses above a threshold,
with the intervals of Clopper and Pearson. It assumes that scores of different canaries are
independent, as those of separate trainings are.

Differs from the papers: several numbers of guesses, or thresholds, are tried with a correction
(Bonferroni), and ties are broken against the auditor, as in `one_run_epsilon`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from vestige.metrics.epsilon import (
    EpsilonBound,
    Guesses,
    bound_of_guesses,
    checked_scores,
    largest_refuted,
)
from vestige.metrics.estimates import Floats, binomial_ends

Curve = Callable[[float], float]
"""y -> f(1 - y) for a symmetric trade-off curve f: increasing, convex, from 0 to 1, at most y."""

SHARES = (1 / 2, 1 / 4, 1 / 8, 1 / 16)
"""Default shares of all canaries that are guessed. They are smaller than for `one_run_epsilon`,
because the most certain guesses refute a curve best."""

_PRECISION = 1e-4  # of a strength, relative
_MAX_STRENGTH = 16.0
"""Larger strengths give no protection. All strengths may be refuted: with four batches at sample
rate 1/2, a unit is sometimes in no batch, so no noise level allows perfect guesses."""

_TANGENTS = 200
_MAX_EPSILON = 100.0
"""Largest epsilon of a tangent of a curve; fewer tangents make the bound smaller, never wrong."""


@dataclass(frozen=True)
class Curves:
    r"""Trade-off curves of DP-SGD by strength, the inverse of the noise multiplier.

    Batches are Poisson-sampled, steps composed numerically, and neighbours differ by one unit
    (Doroshenko et al. 2022, through dp-accounting). One symmetric curve, the upper envelope of its
    tangents, covers both directions; it errs towards a smaller bound. Without sampling, the curves
    are those of the Gaussian mechanism (Dong, Roth and Su 2022, equation 6),
    :math:`f(x) = \Phi(\Phi^{-1}(1 - x) - \mu)`; the strength of one step is mu.
    """

    sample_rate: float = 1.0
    steps: int = 1

    @property
    def name(self) -> str:
        if self == GAUSSIAN:
            return "Gaussian mechanism"
        return f"DP-SGD of {self.steps:,} steps at sample rate {self.sample_rate:.3g}"

    def curve(self, strength: float) -> Curve:
        """Curve at a strength of at least 0; a larger strength has a lower curve."""
        if self.sample_rate == 1 or strength == 0:
            mu = math.sqrt(self.steps) * strength
            return lambda y: float(ndtr(ndtri(y) - mu))
        return _enveloped(self, strength)

    def epsilon(self, strength: float, delta: float) -> float:
        if self.sample_rate == 1 or strength == 0:
            return _gaussian_epsilon(math.sqrt(self.steps) * strength, delta)
        return float(_composed(self, strength).get_epsilon_for_delta(delta))

    def refuted_by_rates(self, low: float, high: float, delta: float) -> float:
        """Epsilon of the lowest curve that is refuted by rates: members >= low, others <= high."""
        strength = _strongest(lambda strength: self.curve(strength)(1 - high) > 1 - low)
        return self.epsilon(strength, delta)


GAUSSIAN = Curves()
"""A Gaussian mechanism, or a composition of several; the strength is mu."""


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Corollary 2.13 of Dong, Roth and Su (2022), solved for epsilon."""
    if mu == 0:
        return 0.0
    if delta == 0:
        return math.inf

    def excess(epsilon: float) -> float:
        first = log_ndtr(mu / 2 - epsilon / mu)
        second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        return float(math.exp(first) - math.exp(second) - delta)

    upper = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, upper, xtol=1e-9))


@lru_cache(maxsize=16)
def _composed(family: Curves, strength: float):  # type: ignore[no-untyped-def]
    """The privacy loss distribution of all steps."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = pld.from_gaussian_mechanism(
        standard_deviation=1 / strength,
        sampling_prob=family.sample_rate,
        value_discretization_interval=1e-3 * max(1.0, strength),
    )
    return step.self_compose(family.steps)


@lru_cache(maxsize=256)
def _enveloped(family: Curves, strength: float) -> Curve:
    """The upper envelope of tangents of the curve, one for each pair (epsilon, delta)."""
    epsilons = np.concatenate([[0.0], np.geomspace(1e-3, _MAX_EPSILON, _TANGENTS)])
    deltas = np.array(_composed(family, strength).get_delta_for_epsilon(epsilons))
    steep_slopes, flat_slopes = np.exp(epsilons), np.exp(-epsilons)
    steep_ends, flat_offsets = 1 - deltas, flat_slopes * deltas

    def envelope(y: float) -> float:
        steep = steep_ends - steep_slopes * (1 - y)
        flat = flat_slopes * y - flat_offsets
        return float(max(0.0, steep.max(), flat.max()))

    return envelope


def f_dp_epsilon(
    members: ArrayLike,
    others: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: Sequence[tuple[int, int]] | None = None,
    family: Curves = GAUSSIAN,
) -> EpsilonBound:
    """A lower bound on epsilon for a family of mechanisms; arguments as for `one_run_epsilon`."""

    def prove(total: int, right: Guesses, pairs: Guesses) -> tuple[float, tuple[int, int]]:
        level = (1 - confidence) / len(pairs)
        strengths = {pair: _strength_refuted(family, total, pair, level) for pair in right}
        best = max(right, key=strengths.__getitem__)
        return family.epsilon(strengths[best], delta), best

    return bound_of_guesses(
        members, others, prove, guesses, SHARES,
        delta=delta, confidence=confidence, assumes=f"fair coins, {family.name}",
    )  # fmt: skip


def threshold_epsilon(
    members: ArrayLike,
    others: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    threshold: float | None = None,
    family: Curves | None = None,
) -> EpsilonBound:
    r"""A lower bound on epsilon from the rates of true and false guesses above a threshold.

    .. math:: \epsilon \ge \log \frac{p - \delta}{q}
        \quad \text{and} \quad \epsilon \ge \log \frac{1 - q - \delta}{1 - p}

    for p the lower end of the rate of members above it and q the upper end for the others. In a
    family of trade-off curves, a curve f is refuted if :math:`f(q) > 1 - p` (Nasr et al. 2023,
    "Tight Auditing of Differentially Private Machine Learning", section 4, for the Gaussian one).

    Args:
        members: (n,) scores of canaries in the training text.
        others: (m,) scores of canaries that were left out.
        delta: of the claim under test, in [0, 1).
        confidence: of both ends together, for all thresholds; in (0, 1).
        threshold: fixed before any score is known. Default: the 1st, 2nd, 4th, 8th … highest score
            of the others and lowest score of the members, up to half of them, with a correction.
        family: trade-off curves that the training may have; None uses only (epsilon, delta).
    """
    inside, outside = checked_scores(members, others, delta, confidence)
    n, m = inside.size, outside.size

    def epsilons(hits: NDArray[np.int64], false: NDArray[np.int64]) -> list[float]:
        level = 1 - (1 - confidence) / hits.size
        low = binomial_ends(hits, n, confidence=level)[0].tolist()
        high = binomial_ends(false, m, confidence=level)[1].tolist()
        if family is None:
            return [_epsilon_of_rates(p, q, delta) for p, q in zip(low, high, strict=True)]
        return [family.refuted_by_rates(p, q, delta) for p, q in zip(low, high, strict=True)]

    hits, false = _above(inside, outside, threshold)
    bounds = epsilons(hits, false)
    best = int(np.argmax(bounds))
    perfect = _above(np.ones(n), np.zeros(m), None if threshold is None else 0.5)
    return EpsilonBound(
        epsilon=max(0.0, bounds[best]),
        ceiling=max(0.0, *epsilons(*perfect)),
        confidence=confidence,
        delta=delta,
        assumes="independent scores" + (f", {family.name}" if family else ""),
        canaries_in=n,
        canaries_out=m,
        guesses=n + m,
        correct=int(hits[best] + m - false[best]),
        choices=hits.size,
    )


def _above(
    inside: Floats, outside: Floats, threshold: float | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(c,) members and (c,) others above each threshold.

    At the k-th highest of the others, the rate of others above it is at most Beta(k, m - k + 1):
    this is Clopper and Pearson's upper end for k - 1 of m, and valid even though the threshold is
    one of these scores. The same holds for members below the k-th lowest member.
    """
    if threshold is not None:
        return (inside > threshold).sum()[None], (outside > threshold).sum()[None]
    above, below = (
        2 ** np.arange(max(1, (side.size // 2).bit_length())) for side in (outside, inside)
    )
    highest, lowest = -np.sort(-outside)[above - 1], np.sort(inside)[below - 1]
    hits = (inside > highest[:, None]).sum(1)
    false = (outside >= lowest[:, None]).sum(1)
    return np.append(hits, inside.size - below + 1), np.append(above - 1, false)


def _epsilon_of_rates(low: float, high: float, delta: float) -> float:
    """The larger bound of both directions; may be negative."""
    return max(
        math.log((true - delta) / false) if true > delta and false > 0 else -math.inf
        for true, false in ((low, high), (1 - high, 1 - low))
    )


def curve_refuted(
    canaries: int, guesses: int, correct: int, *, curve: Curve, significance: float
) -> bool:
    """Whether the number of right guesses refutes a trade-off curve at a level of significance."""
    right = significance * correct / canaries
    wrong = significance * (guesses - correct) / canaries
    for i in range(correct - 1, -1, -1):
        least = curve(right)
        if least <= wrong:
            break  # both remain constant from here on
        right, wrong = min(1.0, right + i / (guesses - i) * (least - wrong)), least
    return right + wrong > guesses / canaries


@lru_cache(maxsize=4096)
def _strength_refuted(
    family: Curves, canaries: int, right: tuple[int, int], significance: float
) -> float:
    """The largest strength that the right guesses refute."""
    return _strongest(
        lambda strength: curve_refuted(
            canaries, *right, curve=family.curve(strength), significance=significance
        )
    )


def _strongest(refuted: Callable[[float], bool]) -> float:
    """The largest refuted strength, to four digits; 0 if none is refuted."""
    return largest_refuted(
        refuted, lambda low, high: high - low > _PRECISION * high, most=_MAX_STRENGTH
    )
