"""Scores of users over equally many words.

A mean over few words spreads more than one over many: against users with more text, chance would
look like membership too often, against users with less too seldom. So an audited user and all who
are compared with them are cut to the same number of words, by one rule: texts in a random order,
words in their order, and of the last text the first ones (`cut_scores`). The number depends on
amounts of text alone, not on scores.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.data.token_queries import TokenQueries
from vestige.metrics.equal_length import CutScores
from vestige.metrics.tests import calibration_needed

MOST = 256
"""Different numbers of words that users are cut to, at most: with fewer users, each their own."""

Floats = NDArray[np.float64]


def cut_users(
    asked: TokenQueries, word_scores: ArrayLike, sides: tuple[ArrayLike, ...], *, seed: int
) -> tuple[CutScores, ...]:
    """Scores of users over their first words, for each side, all of the same rungs.

    Args:
        asked: w words.
        word_scores: (w,) finite for these users.
        sides: users, as places in `asked.names`; each has words.
        seed: of the order of each user's texts, which does not depend on who else is given.
    """
    values = np.asarray(word_scores, dtype=np.float64)
    users = [np.asarray(side, dtype=np.int64) for side in sides]
    lengths = asked.counts()[np.concatenate(users)]
    shares = np.linspace(0, 1, MOST + 1)
    rungs = np.unique(np.quantile(lengths, shares, method="lower")).astype(np.int64)
    order = np.argsort(asked.users, kind="stable")
    bounds = np.searchsorted(asked.users[order], np.arange(len(asked.names) + 1))

    def summed(user: int) -> Floats:
        own = order[bounds[user] : bounds[user + 1]]
        texts, text = np.unique(asked.texts[own], return_inverse=True)
        shuffled = np.random.default_rng([seed, user]).permutation(len(texts))
        read = own[np.lexsort((asked.positions[own], shuffled[text]))]
        return np.asarray(np.cumsum(values[read]))

    def cut(side: NDArray[np.int64]) -> CutScores:
        sums = [summed(user) for user in side.tolist()]

        def over(places: NDArray[np.int64], words: int) -> Floats:
            return np.array([sums[place][words - 1] / words for place in places.tolist()])

        return CutScores.of(over, [len(one) for one in sums], rungs)

    return tuple(cut(side) for side in users)


def fewest_compared(known: int, rate: float) -> int:
    """Users to compare anybody with at least: half of those known, and enough for a p-value of
    `rate` where so many are known.

    Fewer of them have more text, and so less noise; but less than a half of them costs more power
    by coarse p-values than it gains.

    Example:
        >>> fewest_compared(100, 0.05), fewest_compared(24, 0.05), fewest_compared(10, 0.05)
        (50, 19, 10)
    """
    return min(known, max(calibration_needed(rate), (known + 1) // 2))
