r"""Exposure of a canary, in bits.

Carlini, Liu, Erlingsson, Kos and Song (2019), "The Secret Sharer: Evaluating and Testing
Unintended Memorization in Neural Networks", USENIX Security, Definitions 1 to 5 and section 5.2:

.. math::
    \mathrm{exposure}(s) = \log_2 |R| - \log_2 \mathrm{rank}(s)

where the most probable sequence has rank 1. The rank is counted in a sample (`sampled_exposure`) or
in the complete space (`whole_exposure`).

Differs from the paper: no distribution is fitted to a sample. A share of a sample has the interval
of Clopper and Pearson. A reference as probable as the canary ranks before it, so ties never
increase exposure, and rank / (n + 1) is a valid p-value.
"""

from dataclasses import dataclass
from math import e, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.metrics.estimates import Floats, binomial_ends

UNPLANTED_MEAN = log2(e)
"""Mean exposure of a sequence that was never planted, among many references: 1.44 bits."""


@dataclass(frozen=True, kw_only=True)
class RankExposure:
    """Exposure of n canaries by their rank, (n,) each.

    Attributes:
        rank: 1 + the number of references at least as probable.
        exposure, low, high: bits, with the ends of the interval, which may be infinite.
        at_ceiling: whether no reference of a sample is as probable; exposure is then a lower bound.
        ceiling: the largest exposure with this number of references, in bits.
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
) -> RankExposure:
    """Exposure by rank among references that were sampled from the space with replacement.

    If k of n references are at least as probable, the exposure is log2 n - log2 (k + 1), with the
    95% interval of the share k / n. With k = 0, only the low end of this interval is known; it is
    one-sided and has a confidence of 97.5%.

    Args:
        log_perplexities: (m,) of the canaries, in the unit of the references.
        references: (n,) log-perplexities of sequences that were never planted.
        space_bits: log2 of the size of the space, the largest possible exposure.
    """
    ahead, number = _ahead(log_perplexities, references)
    exposure = np.minimum(log2(number) - np.log2(ahead + 1), space_bits)
    least, most = binomial_ends(ahead, number)
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
    """Exposure by rank in the complete space (n,); it has no sampling error.

    `inside`: (m,) whether each canary is in the space; the others are ranked as if they were added.
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
    """Number of references at least as probable as each value, and number of references."""
    values = np.asarray(log_perplexities, dtype=np.float64).reshape(-1)
    ordered = np.sort(np.asarray(references, dtype=np.float64).reshape(-1))
    if not ordered.size:
        raise ValueError("references must hold at least one log-perplexity, got none")
    if np.isnan(values).any() or np.isnan(ordered).any():
        raise ValueError("log_perplexities and references must be numbers, got nan")
    return np.searchsorted(ordered, values, side="right").astype(np.int64), ordered.size
