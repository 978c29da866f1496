r"""Lower bounds of epsilon from randomly included canaries.

`one_run_epsilon`: Steinke, Nasr and Jagielski (2023), "Privacy Auditing with One (1) Training Run",
NeurIPS, arXiv:2305.08846, Theorem 5.2. A fair coin puts each of m canaries into the training text
or leaves it out; they may share one training run. The highest scores are guessed in, the lowest
out, and the rest abstained from. If the training is (epsilon, delta)-private, of r guesses v or
more are right with a probability of at most

.. math:: f(v) + 2 m \delta \max_{1 \le i \le v} \frac{f(v - i) - f(v)}{i},
    \quad f(v) = P[\mathrm{Bin}(r, e^\epsilon / (e^\epsilon + 1)) \ge v]

and the bound is the largest epsilon at which that is too small to believe.

Differs from the paper: several numbers of guesses are tried, all fixed before any score is seen,
and they share the level. Where each number of guesses holds the guesses of the one before, the
proof of Theorem 5.2 speaks of all of them at once: given the output, each further guess is right
with a probability of at most p = e^ε / (e^ε + 1), whatever the ones before it, except F guesses,
E F ≤ 2 m δ, that may be right in any case. So with B_k ~ Bin(r_k, p) as partial sums of one row of
coins, for any v_1, v_2, ...

.. math:: P[\exists k: W_k \ge v_k] \le g(0) + 2 m \delta \max_i \frac{g(i) - g(0)}{i},
    \quad g(i) = P[\exists k: B_k \ge v_k - i]

and the p-value is that of the v_k which are as improbable, each by itself, as the most improbable
number seen. g(0) is exact; other g(i) have the union bound. With four numbers of guesses this is
worth a level of 0.02 for each where Bonferroni gives 0.0125. `benchmarks/error_rates_canaries.py`
compares it with the worst of all mechanisms, which a linear program finds. Bonferroni pays for
guesses that do not hold one another, and where 2 m δ exceeds the level, so that the term with δ
decides. Ties are broken against the auditor. A ceiling is the most that the audit could prove.
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
"""Shares of all canaries that are guessed, half of them in and half out, unless asked otherwise.

All of them is no choice: the coins never fall evenly, so that perfect scores would still be wrong.
"""

_PRECISION = 1e-9  # of epsilon


@dataclass(frozen=True, kw_only=True)
class EpsilonBound:
    """Epsilon is at least this much, with a stated confidence.

    Attributes:
        ceiling: the bound of perfect scores on as many canaries.
        assumes: what has to hold besides the claim.
        guesses, correct: guesses behind the bound, and those that are right.
        choices: numbers of guesses, or thresholds, that were tried and paid for.
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
        guesses: pairs (how many of the highest to guess in, how many of the lowest to guess out),
            fixed before any score is seen. All share the level.
    """

    def proven(total: int, seen: Guesses, pairs: Guesses) -> tuple[float, tuple[int, int]]:
        nested = all(h <= i and k <= j for (h, k), (i, j) in pairwise(pairs))
        nested = nested and 2 * total * delta <= 1 - confidence
        found = _one_run(total, seen, delta, 1 - confidence, nested=nested)
        return found, min(
            seen, key=lambda each: one_run_p_value(total, *each, epsilon=found, delta=delta)
        )

    return bound_of_guesses(
        members, others, proven, guesses, GUESSED_SHARES,
        delta=delta, confidence=confidence, assumes="fair coins",
    )  # fmt: skip


def bound_of_guesses(
    members: ArrayLike,
    others: ArrayLike,
    proven: Callable[[int, Guesses, Guesses], tuple[float, tuple[int, int]]],
    guesses: Sequence[tuple[int, int]] | None,
    shares: Sequence[float],
    *,
    delta: float,
    confidence: float,
    assumes: str,
) -> EpsilonBound:
    """`proven` gives epsilon of (canaries, right guesses, pairs), and the guesses that prove it."""
    inside, outside = checked_scores(members, others, delta, confidence)
    total = inside.size + outside.size
    pairs = guesses_for(total, guesses, shares)
    seen, perfect = right_guesses(inside, outside, pairs)
    epsilon, best = proven(total, seen, pairs)
    return EpsilonBound(
        epsilon=epsilon,
        ceiling=proven(total, perfect, pairs)[0],
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
    """How likely a private training lets so many guesses be right: Theorem 5.2."""
    tails = _tails(guesses, expit(epsilon))[: correct + 1][::-1]
    steepest = ((tails[1:] - tails[0]) / np.arange(1, correct + 1)).max(initial=0.0)
    return float(min(1.0, tails[0] + 2 * canaries * delta * steepest))


def nested_p_value(canaries: int, seen: Guesses, *, epsilon: float, delta: float) -> float:
    """How likely a private training lets any of several numbers of guesses be so improbable.

    `seen`: (guesses, right ones), each number of guesses holding the guesses of the one before.
    """
    tails = [_tails(guesses, expit(epsilon)) for guesses, _ in seen]
    least = min(tail[right] for tail, (_, right) in zip(tails, seen, strict=True))
    # tails fall with the number of right guesses: the first that is as improbable
    firsts = [int(np.searchsorted(-tail, -least * (1 + 1e-9))) for tail in tails]
    reached = [(guesses, first) for (guesses, _), first in zip(seen, firsts, strict=True)]
    return any_reached(canaries, reached, epsilon=epsilon, delta=delta)


def any_reached(
    canaries: int, thresholds: Sequence[tuple[int, int]], *, epsilon: float, delta: float
) -> float:
    """How likely a private training lets any (guesses, right ones) be reached, at most."""
    accuracy = expit(epsilon)
    open_, before, reached = np.ones(1), 0, 0.0
    for guesses, first in thresholds:
        open_ = convolve(open_, -np.diff(_tails(guesses - before, accuracy)))
        reached += float(open_[first:].sum())
        if not first:
            return 1.0
        open_, before = open_[:first], guesses
    if not delta or reached >= 1:
        return min(1.0, reached)
    steps = np.arange(1, max(first for _, first in thresholds) + 1)
    united = sum(
        _tails(guesses, accuracy)[np.maximum(first - steps, 0)] for guesses, first in thresholds
    )
    steepest = max(0.0, float(((np.minimum(1.0, united) - reached) / steps).max()))
    return min(1.0, reached + 2 * canaries * delta * steepest)


def _tails(guesses: int, accuracy: float) -> Floats:
    """(guesses + 2,) probability of so many right guesses or more; none are more than all."""
    some = np.arange(1, guesses + 1)
    found: Floats = np.zeros(guesses + 2)
    found[0], found[1:-1] = 1.0, betainc(some, guesses - some + 1, accuracy)
    return found


@lru_cache(maxsize=1024)
def _one_run(
    canaries: int, seen: Guesses, delta: float, significance: float, *, nested: bool
) -> float:
    """The largest epsilon that so many right guesses refute."""

    def refuted(epsilon: float) -> bool:
        if nested:
            return nested_p_value(canaries, seen, epsilon=epsilon, delta=delta) <= significance
        p_values = (one_run_p_value(canaries, *s, epsilon=epsilon, delta=delta) for s in seen)
        return min(p_values) <= significance / len(seen)

    return largest_refuted(refuted, lambda low, high: high - low > _PRECISION)


def largest_refuted(
    refuted: Callable[[float], bool],
    apart: Callable[[float, float], bool],
    *,
    most: float = math.inf,
) -> float:
    """The largest parameter up to `most` that is refuted, by bisection; 0 where not even 0 is.

    To refute one is to refute all smaller ones, which promise more: any point that the bisection
    finds is valid, wherever the p-value is not monotone. `apart`: whether two ends still differ.
    """
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
        if low >= most:
            return low
    while apart(low, high):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def guesses_for(
    total: int,
    guesses: Sequence[tuple[int, int]] | None,
    shares: Sequence[float] = GUESSED_SHARES,
) -> Guesses:
    """Checked pairs of how many of the highest to guess in and of the lowest to guess out."""
    if guesses is None:
        sizes = {max(1, round(share * total / 2)) for share in shares}
        return tuple((size, min(size, total - size)) for size in sorted(sizes))
    return tuple(guesses)


def right_guesses(inside: Floats, outside: Floats, pairs: Guesses) -> tuple[Guesses, Guesses]:
    """(guesses, right ones) of each pair, and of perfect scores; a tie is a wrong guess first."""
    scores = np.concatenate([inside, outside])
    member = np.arange(scores.size) < inside.size
    falling = np.append(0, np.cumsum(member[np.lexsort((member, -scores))]))
    rising = np.append(0, np.cumsum(~member[np.lexsort((~member, scores))]))
    seen = tuple((h + k, int(falling[h] + rising[k])) for h, k in pairs)
    return seen, tuple((h + k, min(h, inside.size) + min(k, outside.size)) for h, k in pairs)


def checked_scores(
    members: ArrayLike, others: ArrayLike, delta: float, confidence: float
) -> tuple[Floats, Floats]:
    """Scores of both sides, once all four can be used for a bound."""
    _validate.fraction(delta=delta)
    _validate.open_fraction(confidence=confidence)
    return finite_scores(members, "members"), finite_scores(others, "others")
