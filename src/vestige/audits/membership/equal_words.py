"""Scores of users over equally many words.

A mean over few words varies more than one over many: against users with more text, chance would
look like membership too often, against users with less too seldom. So an audited user and all who
are compared with them are cut to the same number of words by one rule: texts in random order, words
in their order, and of the last text the first ones. The number depends on amounts of text alone,
not on scores.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from vestige.audits.membership.features import Floats, Whole
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError
from vestige.metrics.listed import Compared, CutScores, compare
from vestige.metrics.tests import calibration_needed, unit_permutation_test

MOST_CUTS = 256
"""Different numbers of words that users are cut to, at most; fewer users each have their own."""
MANY = 5_000
"""Users of both sides above which a tenth as many permutations are drawn, each of which is slow."""


def cut_users(
    queries: TokenQueries, word_scores: ArrayLike, sides: tuple[ArrayLike, ...], *, seed: int
) -> tuple[CutScores, ...]:
    """Mean scores of users over their first words, on each side, for the same numbers of words.

    Args:
        queries: w words.
        word_scores: (w,) finite for these users.
        sides: users, as indices of `queries.names`; each has words.
        seed: of the order of each user's texts, which does not depend on who else is given.
    """
    values = np.asarray(word_scores, dtype=np.float64)
    users = [np.asarray(side, dtype=np.int64) for side in sides]
    lengths = queries.counts()[np.concatenate(users)]
    shares = np.linspace(0, 1, MOST_CUTS + 1)
    rungs = np.unique(np.quantile(lengths, shares, method="lower")).astype(np.int64)
    order = np.argsort(queries.users, kind="stable")
    bounds = np.searchsorted(queries.users[order], np.arange(len(queries.names) + 1))

    def summed(user: int) -> Floats:
        own = order[bounds[user] : bounds[user + 1]]
        texts, text = np.unique(queries.texts[own], return_inverse=True)
        shuffled = np.random.default_rng([seed, user]).permutation(len(texts))
        return np.cumsum(values[own[np.lexsort((queries.positions[own], shuffled[text]))]])

    def cut(side: Whole) -> CutScores:
        sums = [summed(user) for user in side.tolist()]

        def over(places: Whole, words: int) -> Floats:
            return np.array([sums[place][words - 1] / words for place in places.tolist()])

        return CutScores.of(over, [len(one) for one in sums], rungs)

    return tuple(cut(side) for side in users)


def fewest_compared(known: int, rate: float) -> int:
    """Users to compare anybody with at least: half of those known, and enough for a p-value of
    `rate` if so many are known.

    Fewer of them have more text, and so less noise; but less than a half of them costs more power
    by coarse p-values than it gains.

    Example:
        >>> fewest_compared(100, 0.05), fewest_compared(24, 0.05), fewest_compared(10, 0.05)
        (50, 19, 10)
    """
    return min(known, max(calibration_needed(rate), (known + 1) // 2))


def sides_of(
    queries: TokenQueries,
    word_scores: Floats,
    audited: Sequence[int],
    compared: Sequence[int],
    *,
    seed: int,
) -> tuple[CutScores, CutScores]:
    """Those of the audited and of the compared who have words."""
    words = queries.counts()
    own, known = ([user for user in side if words[user]] for side in (audited, compared))
    if not known:
        raise DataError(
            "no non-member has enough words and reference models",
            remedy="Train more reference models, or pass more --reference text of these users.",
        )
    one, other = cut_users(queries, word_scores, (own, known), seed=seed)
    return one, other


def compare_users(own: CutScores, others: CutScores, *, rate: float) -> Compared:
    """Conformal p-values of users, each over as many words as enough of the others have."""
    return compare(own, others, most=others.last_rung(fewest_compared(len(others), rate)))


def list_p_value(own: CutScores, others: CutScores, *, seed: int) -> float:
    """A permutation test of whole users on their ranks among all, both sides alike."""
    pool = own + others
    most = pool.last_rung((len(pool) + 1) // 2)
    values = -np.log(compare(pool, pool, most=most, among=True).p_values)
    draws = 9999 if len(pool) <= MANY else 999
    return unit_permutation_test(
        values[: len(own)], values[len(own) :], seed=seed, permutations=draws
    )
