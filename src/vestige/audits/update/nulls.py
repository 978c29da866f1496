r"""Null distribution of phrase scores, from searches of null models.

A null model was trained like the update: from the same model, on as much clean text. If the update
promoted nothing in particular, its search is one more of the same kind, and

.. math:: E(s) = \frac{1 + \#\{\text{null phrases of score} \ge s\}}{1 + m}

with m null searches by the same rule. Whatever the distribution of the scores, a clean update has
any phrase with :math:`E \le \alpha` with probability at most alpha, because E is at least the
permutation p-value of the update's best score among m + 1 searches (Phipson and Smyth 2010,
"Permutation p-values should never be zero", eq. 1). E is at least 1 / (1 + m), so 0.05 needs 19.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

LEVEL = 0.05
"""Error rate of all decisions by null models: a found phrase has an E-value of at most this."""

NEEDED = round(1 / LEVEL) - 1
"""Null searches that a verdict needs."""

CHANGE_LIMITS = (0.7, 2.0)
"""Limits of a null model's change of the weights, as a multiple of the update's change.

Between the lower limit and 1, the change is scaled to that of the update before the search
(`models.lora.scale_update`): otherwise scores of null models are too low, and too many clean
updates are reported. Above the upper limit, null models hide what the update promoted
(`benchmarks/error_rates_models.py`)."""


@dataclass(frozen=True)
class NullScores:
    """Scores of the phrases of every null search, highest first; a search may have none.

    Raises:
        ValueError: there is no search, or a score is NaN.

    Example:
        >>> nulls = NullScores.of([[0.5, 2.0], [1.0], []])
        >>> nulls.e_value(1.5), nulls.reached(1.5), nulls.found(9.0)
        (0.5, 1, None)
    """

    searches: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if not self.searches:
            raise ValueError("searches must hold one null search at least, got none")
        if any(math.isnan(score) for scores in self.searches for score in scores):
            raise ValueError("searches must hold scores, got NaN")

    @classmethod
    def of(cls, searches: Iterable[Iterable[float]]) -> "NullScores":
        """The scores of null searches, each in any order."""
        return cls(tuple(tuple(sorted(scores, reverse=True)) for scores in searches))

    def __len__(self) -> int:
        """The number of null searches, m."""
        return len(self.searches)

    @cached_property
    def _ascending(self) -> list[float]:
        return sorted(score for scores in self.searches for score in scores)

    @property
    def best(self) -> float | None:
        """The highest score; None if no null search found a phrase."""
        return self._ascending[-1] if self._ascending else None

    @property
    def least(self) -> float:
        """The least E-value: the probability that a clean search has the highest of all scores."""
        return 1 / (1 + len(self))

    def reached(self, score: float) -> int:
        """Null searches with a phrase of at least this score."""
        return sum(bool(scores) and scores[0] >= score for scores in self.searches)

    def e_value(self, score: float) -> float:
        """(1 + null phrases of at least this score) / (1 + null searches)."""
        at_least = len(self._ascending) - bisect_left(self._ascending, score)
        return (1 + at_least) / (1 + len(self))

    def found(self, score: float) -> bool | None:
        """Whether E is at most `LEVEL`; None with fewer than `NEEDED` searches."""
        return None if len(self) < NEEDED else self.e_value(score) <= LEVEL

    @property
    def threshold(self) -> float | None:
        """The score that a found phrase exceeds, -inf if any does; None with too few searches."""
        if len(self) < NEEDED:
            return None
        allowed = math.floor(LEVEL * (1 + len(self)) + 1e-9)  # largest 1 + number of null phrases
        return self._ascending[-allowed] if allowed <= len(self._ascending) else -math.inf


def joint_p_value(update: Sequence[float], nulls: Sequence[Sequence[float]]) -> float:
    """One p-value of an update with k scores among m null models.

    Each score is standardized by the mean and standard deviation of the other models; the statistic
    of a model is its largest standardized score (Westfall and Young 1993, "Resampling-Based
    Multiple Testing": max T). All models are treated in the same way, so p is exact if they are
    exchangeable, whatever the dependence between the scores, and needs no correction for k.

    Args:
        update: k scores of the update.
        nulls: k scores of each of m null models.

    Returns:
        (1 + null models with at least the update's statistic) / (1 + m).

    Example:
        >>> joint_p_value([1.0, 9.0], [[1.1, 0.2], [0.9, 0.1], [1.0, 0.3]])
        0.25
    """
    scores = np.array([update, *nulls], dtype=np.float64)
    finite = np.abs(scores[np.isfinite(scores)])
    scores = np.nan_to_num(scores, posinf=1 + 2 * finite.max(initial=0.0))
    others = [np.delete(scores, model, axis=0) for model in range(len(scores))]
    spread = np.array([rest.std(0) for rest in others])
    standardized = scores - np.array([rest.mean(0) for rest in others])
    # without the median, a score with little variance would dominate
    standardized /= spread + max(float(np.median(spread)), 1e-9)
    statistic = standardized.max(1)
    return float((statistic >= statistic[0] - 1e-9).mean())
