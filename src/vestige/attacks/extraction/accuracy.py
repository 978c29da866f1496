r"""Accuracy, edit distance and target rank of extracted secrets.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 4.3: accuracy is the share of secrets whose every word is right, the Hamming distance per
token (HDT) the share of words that are wrong, and guessing at random reaches

.. math:: \prod_i \frac{1}{|V_i|} \qquad \text{and} \qquad \frac{1}{n}\sum_i 1 - \frac{1}{|V_i|}

Differs from the paper: places may have different numbers of candidates, everything has an interval,
and the rank of the truth among all secrets is measured beside. Secrets that lose as much stand
before the truth, as in `metrics.exposure`: a tie makes nothing look exposed, and p-values of ranks
are valid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Literal

from vestige import _validate
from vestige.metrics.rates import clopper_pearson

Known = Literal["exact", "sampled", "bounded"]


def hamming_per_token(guess: Sequence[str], truth: Sequence[str]) -> float:
    """The share of words that are wrong, in [0, 1].

    Raises:
        ValueError: there are no words, or not as many in both.

    Example:
        >>> hamming_per_token(["4", "2"], ["4", "7"])
        0.5
    """
    if len(guess) != len(truth) or not truth:
        raise ValueError(f"guess must have the truth's {len(truth)} words, got {len(guess)}")
    return sum(a != b for a, b in zip(guess, truth, strict=True)) / len(truth)


def baseline_accuracy(sizes: Sequence[int]) -> float:
    """How often a random guess is right as a whole.

    Args:
        sizes: candidates of each unknown word, at least 1.

    Example:
        >>> baseline_accuracy([10, 10])
        0.01
    """
    _check_sizes(sizes)
    return 1 / prod(sizes)


def baseline_hamming(sizes: Sequence[int]) -> float:
    """The Hamming distance per token that random guesses have on average.

    Example:
        >>> baseline_hamming([10, 2])
        0.7
    """
    _check_sizes(sizes)
    return sum(1 - 1 / size for size in sizes) / len(sizes)


@dataclass(frozen=True, kw_only=True)
class TargetRank:
    """The rank of the truth among all secrets, 1 for the first.

    Attributes:
        rank: counted; estimated from a sample; or where it is only bounded, the highest.
        low: it is no less, with confidence; equal to the rank where it was counted.
        high: it is no more.
        space: secrets there are.
        known: "exact" where every secret was tried; "sampled" where it is estimated from random
            ones; "bounded" where none of these loses as little, so that they say no more than how
            high it is at most, and how far the exposure reaches at least.
        others: secrets that it was compared with.
    """

    rank: float
    low: float
    high: float
    space: int
    known: Known
    others: int

    @property
    def exact(self) -> bool:
        """Whether every secret was tried."""
        return self.known == "exact"

    @property
    def bounded(self) -> bool:
        """Whether the rank is an upper bound, and the exposure a lower one."""
        return self.known == "bounded"

    @property
    def exposure(self) -> float:
        """Bits: log2 of the space less log2 of the rank."""
        return log2(self.space) - log2(self.rank)

    @property
    def exposure_low(self) -> float:
        """Bits: by the highest rank."""
        return log2(self.space) - log2(self.high)

    @property
    def exposure_high(self) -> float:
        """Bits: by the lowest rank."""
        return log2(self.space) - log2(self.low)


def counted_rank(*, below: int, tied: int, space: int) -> TargetRank:
    """The rank of a truth that was compared with every other secret.

    Args:
        below: others that lose less.
        tied: others that lose as much; they stand before it.
        space: secrets there are, the truth among them.

    Example:
        >>> counted_rank(below=3, tied=0, space=16).exposure
        2.0
    """
    _validate.at_least(0, below=below, tied=tied)
    _validate.at_least(below + tied + 1, space=space)
    rank = 1 + below + tied
    return TargetRank(rank=rank, low=rank, high=rank, space=space, known="exact", others=space - 1)


def estimated_rank(
    *,
    below: int,
    tied: int,
    others: int,
    space: int,
    better: int = 0,
    confidence: float = 0.95,
) -> TargetRank:
    """The rank of a truth that was compared with a random sample of other secrets.

    Its share of the space is that of the sample with the truth in it, ties counted, as
    (below + 1) / (others + 1).
    The share of secrets that lose less has the interval of Clopper and Pearson, whose upper end
    counts ties as less and whose lower end does not.

    Where no secret of the sample loses as little, that is no estimate: any rank before the upper
    end, about 3.7 / others of the space, is as well supported. That end is all that is known.

    Args:
        below: others in the sample that lose less.
        tied: others in the sample that lose as much.
        others: secrets in the sample, the truth not counted.
        space: secrets there are.
        better: secrets that are known to lose less from elsewhere; the rank is above them.
        confidence: of the interval, in (0, 1).

    Example:
        >>> found = estimated_rank(below=0, tied=0, others=1023, space=2**20)
        >>> found.known, found.low, round(found.high), round(found.exposure, 2)
        ('bounded', 1.0, 3775, 8.12)
        >>> round(estimated_rank(below=9, tied=0, others=999, space=10**6).rank)
        10000
    """
    _validate.at_least(0, below=below, tied=tied, better=better)
    _validate.at_least(max(1, below + tied), others=others)
    _validate.at_least(better + 1, space=space)
    bounded = below + tied == 0
    low = clopper_pearson(below, others, confidence=confidence).low
    high = clopper_pearson(below + tied, others, confidence=confidence).high
    rank = space * ((below + tied + 1) / (others + 1))
    ends = (1 + share * (space - 1) for share in (low, high))
    rank, least, most = (max(one, 1.0 + better) for one in (rank, *ends))
    return TargetRank(
        rank=most if bounded else rank,
        low=least,
        high=max(most, rank),
        space=space,
        known="bounded" if bounded else "sampled",
        others=others,
    )


def _check_sizes(sizes: Sequence[int]) -> None:
    _validate.at_least(1, sizes=len(sizes))
    for size in sizes:
        _validate.at_least(1, sizes=size)
