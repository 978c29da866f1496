r"""Lower bounds of epsilon from a threshold on membership scores.

Jagielski, Ullman and Oprea (2020), "Auditing Differentially Private Machine Learning", NeurIPS,
arXiv:2006.07709, section 3: rates of true and false guesses, with the ends of Clopper and Pearson
(1934). A score is higher for members.

It takes the scores of different canaries for independent. That holds where each comes from a
training of its own; for canaries that share one training run it is an assumption, which
`one_run_epsilon` does not need.

Differs from the paper: the thresholds are ranks that are fixed before any score is seen, and all of
them are paid for (Bonferroni), where the paper chooses one on other data. Both directions are
read from the same two ends: members guessed in, and others guessed out.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.metrics.epsilon import EpsilonBound, check_claim
from vestige.metrics.f_dp_epsilon import CurveFamily, largest_strength
from vestige.metrics.intervals import clopper_pearson
from vestige.metrics.separation import finite_scores


class _Cut(NamedTuple):
    """What one threshold shows: ends of both rates, and the guesses behind them."""

    threshold: float
    hits: int
    false: int
    hit_low: float
    false_high: float


def threshold_epsilon(
    members: ArrayLike,
    others: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    threshold: float | None = None,
    family: CurveFamily | None = None,
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

    Raises:
        ValueError: an argument is empty, not finite or out of range.

    Example:
        >>> bound = threshold_epsilon(range(100, 200), range(100), delta=1e-5)
        >>> round(bound.epsilon, 2), bound.choices
        (2.75, 12)
    """
    inside, outside = finite_scores(members, "members"), finite_scores(others, "others")
    check_claim(delta, confidence)
    if threshold is not None and not math.isfinite(threshold):
        raise ValueError(f"threshold must be finite, got {threshold}")
    cuts = _cuts(inside, outside, confidence, threshold)

    def proven(cut: _Cut) -> float:
        return _of_rates(cut, delta) if family is None else _of_curves(cut, delta, family)

    best = max(cuts, key=proven)
    between = None if threshold is None else 0.5
    perfect = _cuts(np.ones(inside.size), np.zeros(outside.size), confidence, between)
    return EpsilonBound(
        epsilon=max(0.0, proven(best)),
        ceiling=max(0.0, *map(proven, perfect)),
        confidence=confidence,
        delta=delta,
        method="threshold",
        assumes="independent scores" + (f", {family.name}" if family else ""),
        canaries_in=inside.size,
        canaries_out=outside.size,
        guesses=inside.size + outside.size,
        correct=best.hits + outside.size - best.false,
        choices=len(cuts),
        threshold=best.threshold,
        hit_low=best.hit_low,
        false_high=best.false_high,
    )


def _cuts(
    inside: NDArray[np.float64],
    outside: NDArray[np.float64],
    confidence: float,
    threshold: float | None,
) -> list[_Cut]:
    if threshold is not None:
        false = int((outside > threshold).sum())
        return [_cut(inside, outside, threshold, false, (1 - confidence) / 2)]
    above, below = _ranks(outside.size), _ranks(inside.size)
    tail = (1 - confidence) / (2 * (len(above) + len(below)))
    falling = -np.sort(-outside)
    cuts = [_cut(inside, outside, float(falling[k - 1]), k - 1, tail) for k in above]
    rising = np.sort(inside)
    # Members and others change places, and so do above and below.
    mirrored = [_cut(-outside, -inside, -float(rising[k - 1]), k - 1, tail) for k in below]
    return cuts + [
        _Cut(
            threshold=-cut.threshold,
            hits=inside.size - cut.false,
            false=outside.size - cut.hits,
            hit_low=1 - cut.false_high,
            false_high=1 - cut.hit_low,
        )
        for cut in mirrored
    ]


def _cut(
    inside: NDArray[np.float64],
    outside: NDArray[np.float64],
    threshold: float,
    false: int,
    tail: float,
) -> _Cut:
    """Both ends at one threshold, each missed with a probability of at most `tail`.

    At the k-th highest of the others, the rate of others above it is at most Beta(k, m - k + 1):
    Clopper and Pearson's upper end for k - 1 of m, though the threshold came from the same scores.
    """
    hits = int((inside > threshold).sum())
    ends = 1 - 2 * tail
    return _Cut(
        threshold=threshold,
        hits=hits,
        false=false,
        hit_low=clopper_pearson(hits, inside.size, confidence=ends).low,
        false_high=clopper_pearson(false, outside.size, confidence=ends).high,
    )


def _of_rates(cut: _Cut, delta: float) -> float:
    """The better of both directions; may be negative."""
    pairs = ((cut.hit_low, cut.false_high), (1 - cut.false_high, 1 - cut.hit_low))
    return max(
        math.log((true - delta) / false) if true > delta and false > 0 else -math.inf
        for true, false in pairs
    )


def _of_curves(cut: _Cut, delta: float, family: CurveFamily) -> float:
    """Epsilon of the lowest curve of a family that the rates refute."""

    def refuted(strength: float) -> bool:
        return family.curve(strength)(1 - cut.false_high) > 1 - cut.hit_low

    return family.epsilon(largest_strength(refuted), delta)


def _ranks(size: int) -> list[int]:
    """1, 2, 4, 8 … up to half of the scores."""
    return [2**power for power in range(max(1, (size // 2).bit_length()))]
