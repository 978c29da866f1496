r"""Rank histograms and their support vector machine: the paper's audit.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD, section 3 and
Algorithm 1: counts of ranks in d bins of equal width |V| / d, and where a model shows its k
likeliest words only, how many words were not among them (section 4.3); a linear support vector
machine learns from shadow models which counts are a member's.

Differs from the paper: it does not state d; ours is 100. The machine is scikit-learn's LinearSVC,
the paper's own choice, solved in its primal form: the dual one, which it comes with, has the same
solution, and does not arrive at it where counts go into the thousands.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.data.token_queries import TokenQueries

if TYPE_CHECKING:
    from sklearn.svm import LinearSVC

BINS = 100
Floats = NDArray[np.float64]


def rank_histogram(
    asked: TokenQueries, ranks: ArrayLike, *, k: int, vocab_size: int, bins: int = BINS
) -> Floats:
    """Counts of each user's ranks.

    Args:
        asked: w words of u users.
        ranks: (w,) from 1; k + 1 stands for a word that was not shown.
        k: words that the model shows.
        vocab_size: |V|, at least k.
        bins: d.

    Returns:
        (u, d + 1): d bins over all ranks, and the words not shown.

    Raises:
        ValueError: a rank lies outside [1, k + 1], or another argument is out of range.
    """
    _validate.at_least(1, k=k, bins=bins)
    _validate.at_least(k, vocab_size=vocab_size)
    given = np.asarray(ranks, dtype=np.int64)
    if given.shape != (len(asked),):
        raise ValueError(f"ranks must be one a word, ({len(asked)},), got {given.shape}")
    if len(given) and not 1 <= given.min() <= given.max() <= k + 1:
        raise ValueError(f"ranks must lie in [1, {k + 1}], got {given.min()} to {given.max()}")
    # As in Algorithm 1, a rank r lies in bin i where (i - 1) b <= r < i b; r is counted from 0.
    place = np.where(given > k, bins, (given - 1) * bins // vocab_size)
    cells = asked.users.astype(np.int64) * (bins + 1) + place
    counts = np.bincount(cells, minlength=len(asked.names) * (bins + 1))
    return counts.reshape(-1, bins + 1).astype(np.float64)


@dataclass(frozen=True)
class HistogramAudit:
    """A fitted audit model of the paper.

    Attributes:
        machine: scikit-learn's.
    """

    machine: "LinearSVC"

    @classmethod
    def fit(
        cls, histograms: Sequence[ArrayLike], members: Sequence[ArrayLike], *, seed: int = 0
    ) -> "HistogramAudit":
        """Learn from shadow models whose members are known.

        Args:
            histograms: (u_i, d + 1) for each shadow model.
            members: (u_i,) who was in its training data.
            seed: of the solver.

        Raises:
            ValueError: there are no members, or nobody else.
        """
        from sklearn.svm import LinearSVC

        labels = np.concatenate([np.asarray(part, dtype=bool) for part in members])
        if labels.all() or not labels.any():
            raise ValueError(
                f"members must hold both kinds, got {labels.sum()} members of {labels.size}"
            )
        machine = LinearSVC(dual=False, random_state=seed, max_iter=20_000)
        machine.fit(np.concatenate([np.asarray(part) for part in histograms]), labels)
        return cls(machine)

    def scores(self, histograms: ArrayLike) -> Floats:
        """(u,) distances to the machine's plane; above 0 it says member."""
        return cast("Floats", self.machine.decision_function(np.asarray(histograms)))
