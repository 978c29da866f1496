r"""Lower bounds of epsilon from randomly included canaries.

`one_run_epsilon`: Steinke, Nasr and Jagielski (2023), "Privacy Auditing with One (1) Training Run",
NeurIPS, arXiv:2305.08846, Theorem 5.2. A fair coin puts each of m canaries into the training text
or leaves it out; all may share one training run. The canaries with the highest scores are guessed
to be in, those with the lowest to be out, and there is no guess on the others. If the training is
(epsilon, delta)-private, v or more of r guesses are right with a probability of at most

.. math:: f(v) + 2 m \delta \max_{1 \le i \le v} \frac{f(v - i) - f(v)}{i},
    \quad f(v) = P[\mathrm{Bin}(r, e^\epsilon / (e^\epsilon + 1)) \ge v]

and the bound is the largest epsilon that this p-value refutes.

Differs from the paper: several numbers of guesses are tried. They are fixed before any score is
known, and share the level. If each set of guesses contains the previous one, the proof of Theorem
5.2 covers all sets jointly: given the output, each further guess is right with a probability of at
most p = e^ε / (e^ε + 1), independent of the previous ones, except F guesses with E F ≤ 2 m δ. So
with B_k ~ Bin(r_k, p), partial sums of one sequence of coins, for any v_1, v_2, ...

.. math:: P[\exists k: W_k \ge v_k] \le g(0) + 2 m \delta \max_i \frac{g(i) - g(0)}{i},
    \quad g(i) = P[\exists k: B_k \ge v_k - i]

and the p-value uses the v_k that are individually as improbable as the most improbable observed
number. g(0) is exact; other g(i) have the union bound. With four numbers of guesses, each has a
level of 0.02, and 0.0125 with Bonferroni. `benchmarks/error_rates_canaries.py` compares the bound
with the worst mechanism, which a linear program finds. Bonferroni is used for sets of guesses that
are not nested, and if 2 m δ exceeds the level. Ties are broken against the auditor. A ceiling is
the largest epsilon that the audit could prove.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy.signal import convolve
from scipy.special import betainc, expit

from vestige import _validate
from vestige.metrics.estimates import Floats, finite_scores

Guesses = tuple[tuple[int, int], ...]
"""(guesses, right ones), or (guesses in, guesses out)."""

GUESSED_SHARES = (3 / 4, 1 / 2, 1 / 4, 1 / 8)
"""Default shares of all canaries that are guessed, half of them in and half out.

1 is not among them: the coins rarely put exactly half of the canaries in, so even perfect scores
would have errors.
"""

_PRECISION = 1e-9  # of epsilon


@dataclass(frozen=True, kw_only=True)
class EpsilonBound:
    """A lower bound on epsilon with its confidence.

    Attributes:
        ceiling: the bound that perfect scores of the same canaries would give.
        assumes: assumptions of the bound.
        guesses, correct: number of guesses, and of right ones.
        choices: numbers of guesses, or thresholds, that were tried; they share the level.
    """

    epsilon: float
    ceiling: float
    confidence: float
    delta: float
    assumes: str
    canaries_in: int
    canaries_out: int
    guesses: int
    correct: int
    choices: int


def one_run_epsilon(
    members: ArrayLike,
    others: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: Sequence[tuple[int, int]] | None = None,
) -> EpsilonBound:
    """A lower bound on epsilon from canaries of a single training run.

    Args:
        members: (n,) scores of canaries that a fair coin put into the training text.
        others: (m - n,) scores of canaries that it left out.
        delta: of the claim under test, in [0, 1).
        guesses: pairs (highest scores to guess in, lowest scores to guess out), fixed before any
            score is known. All share the level.
    """

    def prove(total: int, right: Guesses, pairs: Guesses) -> tuple[float, tuple[int, int]]:
        nested = all(h <= i and k <= j for (h, k), (i, j) in pairwise(pairs))
        nested = nested and 2 * total * delta <= 1 - confidence
        epsilon = _one_run(total, right, delta, 1 - confidence, nested=nested)
        return epsilon, min(
            right, key=lambda pair: one_run_p_value(total, *pair, epsilon=epsilon, delta=delta)
        )

    return bound_of_guesses(
        members, others, prove, guesses, GUESSED_SHARES,
        delta=delta, confidence=confidence, assumes="fair coins",
    )  # fmt: skip


def bound_of_guesses(
    members: ArrayLike,
    others: ArrayLike,
    prove: Callable[[int, Guesses, Guesses], tuple[float, tuple[int, int]]],
    guesses: Sequence[tuple[int, int]] | None,
    shares: Sequence[float],
    *,
    delta: float,
    confidence: float,
    assumes: str,
) -> EpsilonBound:
    """`prove(canaries, right, pairs)` returns epsilon and the guesses that prove it."""
    inside, outside = checked_scores(members, others, delta, confidence)
    total = inside.size + outside.size
    pairs = guesses_for(total, guesses, shares)
    right, perfect = right_guesses(inside, outside, pairs)
    epsilon, best = prove(total, right, pairs)
    return EpsilonBound(
        epsilon=epsilon,
        ceiling=prove(total, perfect, pairs)[0],
        confidence=confidence,
        delta=delta,
        assumes=assumes,
        canaries_in=inside.size,
        canaries_out=outside.size,
        guesses=best[0],
        correct=best[1],
        choices=len(pairs),
    )


def one_run_p_value(
    canaries: int, guesses: int, correct: int, *, epsilon: float, delta: float
) -> float:
    """Largest probability of `correct` right guesses for a private training: Theorem 5.2."""
    tails = _tails(guesses, expit(epsilon))[: correct + 1][::-1]
    steepest = ((tails[1:] - tails[0]) / np.arange(1, correct + 1)).max(initial=0.0)
    return float(min(1.0, tails[0] + 2 * canaries * delta * steepest))


def nested_p_value(canaries: int, right: Guesses, *, epsilon: float, delta: float) -> float:
    """Largest probability, for a private training, of so improbable a result of nested guesses.

    `right`: (guesses, right ones); each set of guesses contains the previous one.
    """
    tails = [_tails(guesses, expit(epsilon)) for guesses, _ in right]
    least = min(tail[correct] for tail, (_, correct) in zip(tails, right, strict=True))
    # For each set, the smallest number of right guesses that is as improbable.
    firsts = [int(np.searchsorted(-tail, -least * (1 + 1e-9))) for tail in tails]
    thresholds = [(guesses, first) for (guesses, _), first in zip(right, firsts, strict=True)]
    return any_reached(canaries, thresholds, epsilon=epsilon, delta=delta)


def any_reached(
    canaries: int, thresholds: Sequence[tuple[int, int]], *, epsilon: float, delta: float
) -> float:
    """Largest probability, for a private training, that any (guesses, right ones) is reached."""
    accuracy = expit(epsilon)
    distribution, previous, reached = np.ones(1), 0, 0.0
    for guesses, first in thresholds:
        distribution = convolve(distribution, -np.diff(_tails(guesses - previous, accuracy)))
        reached += float(distribution[first:].sum())
        if not first:
            return 1.0
        distribution, previous = distribution[:first], guesses
    if not delta or reached >= 1:
        return min(1.0, reached)
    steps = np.arange(1, max(first for _, first in thresholds) + 1)
    union_bound = sum(
        _tails(guesses, accuracy)[np.maximum(first - steps, 0)] for guesses, first in thresholds
    )
    steepest = max(0.0, float(((np.minimum(1.0, union_bound) - reached) / steps).max()))
    return min(1.0, reached + 2 * canaries * delta * steepest)


def _tails(guesses: int, accuracy: float) -> Floats:
    """(guesses + 2,) probability of k or more right guesses, for k = 0, ..., guesses + 1."""
    k = np.arange(1, guesses + 1)
    tails: Floats = np.zeros(guesses + 2)
    tails[0], tails[1:-1] = 1.0, betainc(k, guesses - k + 1, accuracy)
    return tails


@lru_cache(maxsize=1024)
def _one_run(
    canaries: int, right: Guesses, delta: float, significance: float, *, nested: bool
) -> float:
    """The largest epsilon that the right guesses refute."""

    def refuted(epsilon: float) -> bool:
        if nested:
            return nested_p_value(canaries, right, epsilon=epsilon, delta=delta) <= significance
        p_values = (
            one_run_p_value(canaries, *pair, epsilon=epsilon, delta=delta) for pair in right
        )
        return min(p_values) <= significance / len(right)

    return largest_refuted(refuted, lambda low, high: high - low > _PRECISION)


def largest_refuted(
    refuted: Callable[[float], bool],
    differ: Callable[[float, float], bool],
    *,
    most: float = math.inf,
) -> float:
    """The largest refuted parameter up to `most`, by bisection; 0 if none is refuted.

    A refuted parameter also refutes all smaller ones, which are stronger claims, so the result is
    valid even if the p-value is not monotone. `differ`: whether two parameters differ.
    """
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
        if low >= most:
            return low
    while differ(low, high):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def guesses_for(
    total: int,
    guesses: Sequence[tuple[int, int]] | None,
    shares: Sequence[float] = GUESSED_SHARES,
) -> Guesses:
    """Pairs (highest scores to guess in, lowest scores to guess out): given, or from shares."""
    if guesses is None:
        sizes = {max(1, round(share * total / 2)) for share in shares}
        return tuple((size, min(size, total - size)) for size in sorted(sizes))
    return tuple(guesses)


def right_guesses(inside: Floats, outside: Floats, pairs: Guesses) -> tuple[Guesses, Guesses]:
    """(guesses, right ones) of each pair, and for perfect scores; ties count as wrong."""
    scores = np.concatenate([inside, outside])
    member = np.arange(scores.size) < inside.size
    members_above = np.append(0, np.cumsum(member[np.lexsort((member, -scores))]))
    others_below = np.append(0, np.cumsum(~member[np.lexsort((~member, scores))]))
    observed = tuple((h + k, int(members_above[h] + others_below[k])) for h, k in pairs)
    return observed, tuple((h + k, min(h, inside.size) + min(k, outside.size)) for h, k in pairs)


def checked_scores(
    members: ArrayLike, others: ArrayLike, delta: float, confidence: float
) -> tuple[Floats, Floats]:
    """Both scores as arrays; ValueError if an argument is out of range."""
    _validate.fraction(delta=delta)
    _validate.open_fraction(confidence=confidence)
    return finite_scores(members, "members"), finite_scores(others, "others")
