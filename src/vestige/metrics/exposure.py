r"""Exposure of a canary, in bits.

Carlini, Liu, Erlingsson, Kos and Song (2019), "The Secret Sharer: Evaluating and Testing
Unintended Memorization in Neural Networks", USENIX Security, Definitions 1 to 5 and section 5.2:

.. math::
    \mathrm{exposure}(s) = \log_2 |R| - \log_2 \mathrm{rank}(s)

where the rank of the likeliest sequence is 1. The share of sequences that are as likely is counted
in a sample (`sampled_exposure`) or in the whole space (`whole_exposure`).

Differs from the paper: no distribution is fitted to a sample. A counted share comes with the
interval of Clopper and Pearson. A reference as likely as the canary counts before it, so that a tie
never makes a canary look more exposed, and rank / (n + 1) is a valid p-value.
"""

from dataclasses import dataclass
from math import e, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.metrics.estimates import Floats, binomial_ends

CHANCE = log2(e)
"""Bits that a sequence which was never planted reaches on average, among many references: 1.44."""


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
    """
    ahead, number = _ahead(log_perplexities, references)
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


def _ahead(log_perplexities: ArrayLike, references: ArrayLike) -> tuple[NDArray[np.int64], int]:
    """How many references are at least as likely as each value, and how many there are."""
    values = np.asarray(log_perplexities, dtype=np.float64).reshape(-1)
    ordered = np.sort(np.asarray(references, dtype=np.float64).reshape(-1))
    if not ordered.size:
        raise ValueError("references must hold at least one log-perplexity, got none")
    if np.isnan(values).any() or np.isnan(ordered).any():
        raise ValueError("log_perplexities and references must be numbers, got nan")
    return np.searchsorted(ordered, values, side="right").astype(np.int64), ordered.size
