r"""Lower bounds of epsilon against the whole trade-off curve of a mechanism, and by thresholds.

`f_dp_epsilon`: Mahloujifar, Melis and Chaudhuri (2024), "Auditing f-Differential Privacy in One
Run", arXiv:2410.22235. A claim of epsilon at one delta says little of a mechanism; its trade-off
curve f (Dong, Roth and Su 2022) says all: no test of level x misses less than f(x). Of m canaries
that fair coins put in or left out, c' are guessed and c of them rightly. Were it f-private, an
event of probability alpha would need, for i = c - 1, ..., 0 from
:math:`r_c = \alpha c / m` and :math:`h_c = \alpha (c' - c) / m`,

.. math:: h_i = \max(h_{i + 1}, f(1 - r_{i + 1})), \quad
    r_i = r_{i + 1} + \frac{i}{c' - i} (h_i - h_{i + 1}),

to end with :math:`r_0 + h_0 \le c' / m`. Where it does not, f is refuted at level alpha. Curves of
a family with one strength are refuted up to some strength, whose epsilon at delta is the bound.

It is a bound on epsilon only as far as the training's curve is one of the family, where
`one_run_epsilon` needs no such thing. The refutation of a curve that a claim itself states needs
nothing but fair coins.

`threshold_epsilon`: Jagielski, Ullman and Oprea (2020), "Auditing Differentially Private Machine
Learning", NeurIPS, arXiv:2006.07709, section 3: rates of true and false guesses above a threshold,
with the ends of Clopper and Pearson. It takes the scores of different canaries for independent,
which holds where each comes from a training of its own.

Differs from the papers: several numbers of guesses, or thresholds, are each paid for (Bonferroni),
and ties are broken against the auditor, as in `one_run_epsilon`.
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
"""Of a symmetric trade-off curve f, y to f(1 - y): increasing and convex, 0 to 1, at most y."""

SHARES = (1 / 2, 1 / 4, 1 / 8, 1 / 16)
"""Shares of all canaries that are guessed by default: fewer than of `one_run_epsilon`, since the
surest guesses refute a curve best."""

_PRECISION = 1e-4  # of a strength, relative
_STRONGEST = 16.0
"""Beyond it nothing is protected. A family may be refuted as a whole: a unit that four batches of a
half skip now and then cannot be told every time, whatever the noise."""

_TANGENTS = 200
_LARGEST = 100.0
"""Epsilon up to which tangents of a curve are taken; fewer make the bound smaller, never wrong."""


@dataclass(frozen=True)
class Curves:
    r"""Trade-off curves of DP-SGD, one for each strength, the inverse of its noise multiplier.

    Poisson-sampled batches, steps composed numerically, for neighbours with one unit more or less
    (Doroshenko et al. 2022, through dp-accounting). Both directions are under one symmetric curve,
    the upper envelope of its tangents, that errs on the side of a smaller bound. Without sampling
    they are the Gaussian mechanism's (Dong, Roth and Su 2022, equation 6),
    :math:`f(x) = \Phi(\Phi^{-1}(1 - x) - \mu)`; one step has mu as its strength.
    """

    sample_rate: float = 1.0
    steps: int = 1

    @property
    def name(self) -> str:
        if self == GAUSSIAN:
            return "Gaussian mechanism"
        return f"DP-SGD of {self.steps:,} steps at sample rate {self.sample_rate:.3g}"

    def curve(self, strength: float) -> Curve:
        """Curve at a strength of at least 0; the larger, the lower."""
        if self.sample_rate == 1 or strength == 0:
            mu = math.sqrt(self.steps) * strength
            return lambda y: float(ndtr(ndtri(y) - mu))
        return _enveloped(self, strength)

    def epsilon(self, strength: float, delta: float) -> float:
        if self.sample_rate == 1 or strength == 0:
            return _gaussian_epsilon(math.sqrt(self.steps) * strength, delta)
        return float(_composed(self, strength).get_epsilon_for_delta(delta))

    def refuted_by_rates(self, low: float, high: float, delta: float) -> float:
        """Epsilon of the lowest curve that rates refute: of members >= low, of others <= high."""
        strength = _strongest(lambda one: self.curve(one)(1 - high) > 1 - low)
        return self.epsilon(strength, delta)


GAUSSIAN = Curves()
"""One Gaussian mechanism, or any number composed; the strength is mu."""


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

    above = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, above, xtol=1e-9))


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
    """The upper envelope of the curve's tangents, (epsilon, delta) each."""
    epsilons = np.concatenate([[0.0], np.geomspace(1e-3, _LARGEST, _TANGENTS)])
    deltas = np.array(_composed(family, strength).get_delta_for_epsilon(epsilons))
    rising, falling = np.exp(epsilons), np.exp(-epsilons)
    steep, flat = 1 - deltas, falling * deltas

    def below(y: float) -> float:
        return float(max(0.0, (steep - rising * (1 - y)).max(), (falling * y - flat).max()))

    return below


def f_dp_epsilon(
    members: ArrayLike,
    others: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: Sequence[tuple[int, int]] | None = None,
    family: Curves = GAUSSIAN,
) -> EpsilonBound:
    """A lower bound on epsilon of a mechanism of some family; arguments as of `one_run_epsilon`."""

    def proven(total: int, seen: Guesses, pairs: Guesses) -> tuple[float, tuple[int, int]]:
        level = (1 - confidence) / len(pairs)
        strengths = {right: _strength_refuted(family, total, right, level) for right in seen}
        best = max(seen, key=strengths.__getitem__)
        return family.epsilon(strengths[best], delta), best

    return bound_of_guesses(
        members, others, proven, guesses, SHARES,
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

    for p the lower end of the rate of members above it and q the upper end for the others. With a
    family of trade-off curves, a curve f is refuted where :math:`f(q) > 1 - p` (Nasr et al. 2023,
    "Tight Auditing of Differentially Private Machine Learning", section 4, for the Gaussian one).

    Args:
        members: (n,) scores of canaries trained on.
        others: (m,) scores of canaries left out.
        delta: of the claim under test, in [0, 1).
        confidence: of both ends together, over all thresholds tried; in (0, 1).
        threshold: fixed before any score is seen. By default the 1st, 2nd, 4th, 8th … highest score
            of the others and lowest score of the members, up to half of them, all paid for.
        family: the trade-off curves that the training may have; None takes (epsilon, delta) alone.
    """
    inside, outside = checked_scores(members, others, delta, confidence)
    n, m = inside.size, outside.size

    def proven(hits: NDArray[np.int64], false: NDArray[np.int64]) -> list[float]:
        level = 1 - (1 - confidence) / hits.size
        low = binomial_ends(hits, n, confidence=level)[0].tolist()
        high = binomial_ends(false, m, confidence=level)[1].tolist()
        if family is None:
            return [_of_rates(p, q, delta) for p, q in zip(low, high, strict=True)]
        return [family.refuted_by_rates(p, q, delta) for p, q in zip(low, high, strict=True)]

    hits, false = _above(inside, outside, threshold)
    found = proven(hits, false)
    best = int(np.argmax(found))
    perfect = _above(np.ones(n), np.zeros(m), None if threshold is None else 0.5)
    return EpsilonBound(
        epsilon=max(0.0, found[best]),
        ceiling=max(0.0, *proven(*perfect)),
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
    Clopper and Pearson's upper end for k - 1 of m, though the threshold came from the same scores.
    So it is, with sides changed, below the k-th lowest of the members.
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


def _of_rates(low: float, high: float, delta: float) -> float:
    """The better of both directions; may be negative."""
    return max(
        math.log((true - delta) / false) if true > delta and false > 0 else -math.inf
        for true, false in ((low, high), (1 - high, 1 - low))
    )


def curve_refuted(
    canaries: int, guesses: int, correct: int, *, curve: Curve, significance: float
) -> bool:
    """Whether so many right guesses refute a trade-off curve at a level of significance."""
    right = significance * correct / canaries
    wrong = significance * (guesses - correct) / canaries
    for i in range(correct - 1, -1, -1):
        least = curve(right)
        if least <= wrong:
            break  # neither will ever change again
        right, wrong = min(1.0, right + i / (guesses - i) * (least - wrong)), least
    return right + wrong > guesses / canaries


@lru_cache(maxsize=4096)
def _strength_refuted(
    family: Curves, canaries: int, right: tuple[int, int], significance: float
) -> float:
    """The largest strength whose curve so many right guesses refute."""
    return _strongest(
        lambda one: curve_refuted(
            canaries, *right, curve=family.curve(one), significance=significance
        )
    )


def _strongest(refuted: Callable[[float], bool]) -> float:
    """The largest strength that is refuted, to four digits; 0 where not even that of no leak is."""
    return largest_refuted(
        refuted, lambda low, high: high - low > _PRECISION * high, most=_STRONGEST
    )
