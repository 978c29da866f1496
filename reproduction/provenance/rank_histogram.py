r"""Rank histograms and their support vector machine: the paper's audit.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD, section 3 and
Algorithm 1: counts of ranks in d bins of equal width |V| / d, and if a model shows its k most
probable words only, how many words were not among them (section 4.3). A linear support vector
machine learns from shadow models which counts are a member's.

Differs from the paper: it does not state d; ours is 100. The machine is scikit-learn's LinearSVC,
the paper's own choice, solved in its primal form: the dual one has the same solution, but does not
converge to it if counts go into the thousands.
"""

from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.audits.membership.ranked_words import Floats, RankedWords

BINS = 100


def histogram_scores(words: RankedWords, learned_from: ArrayLike, *, bins: int = BINS) -> Floats:
    """The paper's score of every user.

    Args:
        words: with shadow models.
        learned_from: users, of whom each shadow model was trained on about half.
        bins: of the histogram.

    Returns:
        (u,) distances to the machine's plane, above 0 for members.

    Raises:
        ValueError: the shadow models have no members among the users, or no others.
    """
    from sklearn.svm import LinearSVC

    assert words.shadows is not None
    users = np.asarray(learned_from)
    shadows = range(len(words.shadows))
    given = np.concatenate([rank_histogram(words.played_by(n), bins=bins)[users] for n in shadows])
    members: NDArray[np.bool_] = words.shadows.seen[:, users].ravel()
    if members.all() or not members.any():
        raise ValueError(
            f"members must hold both kinds, got {members.sum()} members of {members.size}"
        )
    machine = LinearSVC(dual=False, random_state=0, max_iter=20_000).fit(given, members)
    return cast("Floats", machine.decision_function(rank_histogram(words, bins=bins)))


def rank_histogram(words: RankedWords, *, bins: int = BINS) -> Floats:
    """(u, d + 1) counts of each user's ranks: d bins over all ranks, and the words not shown."""
    _validate.at_least(1, bins=bins)
    shown = words.shown.astype(np.int64)
    # As in Algorithm 1, a rank r is in bin i if (i - 1) b <= r < i b; r is counted from 0.
    place = np.where(shown > words.k, bins, (shown - 1) * bins // words.vocab_size)
    cells = words.queries.users.astype(np.int64) * (bins + 1) + place
    counts = np.bincount(cells, minlength=len(words.queries.names) * (bins + 1))
    return counts.reshape(-1, bins + 1).astype(np.float64)
