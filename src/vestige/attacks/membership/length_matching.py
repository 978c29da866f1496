"""Length matching: scores of all compared users over exactly as many words.

A mean over few words spreads more than one over many: against users with more text, chance would
look like membership too often, against users with less too seldom. So an audited user and all who
are compared with them are cut to the same number of words, by one rule: texts in a random order,
words as they stand, and within the last text the first ones.

That number is the audited user's own, or, where so few of the others have as much that hardly
anybody would be left to compare with, the most that enough of them have. It is a function of
amounts alone, not of scores, and who has less is left out: given the amounts, an audited user who
is out could stand anywhere among those who are compared, and p-values are exact.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.data.token_queries import TokenQueries

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LengthMatched:
    """Scores of some users over any number of words.

    Attributes:
        sums: for each user the score of the first 1, 2, ... words, summed.
    """

    sums: tuple[Floats, ...]

    @classmethod
    def of(
        cls, asked: TokenQueries, word_scores: ArrayLike, users: ArrayLike, *, seed: int
    ) -> "LengthMatched":
        """Put the texts of each user into a random order.

        Args:
            asked: w words.
            word_scores: (w,) finite for these users.
            users: whom, places in `asked.names`.
            seed: of that order; a user's do not depend on who else is given.
        """
        values = np.asarray(word_scores, dtype=np.float64)
        order = np.argsort(asked.users, kind="stable")
        bounds = np.searchsorted(asked.users[order], np.arange(len(asked.names) + 1))
        sums = []
        for user in np.asarray(users).tolist():
            own = order[bounds[user] : bounds[user + 1]]
            texts, text = np.unique(asked.texts[own], return_inverse=True)
            order_of_texts = np.random.default_rng([seed, user]).permutation(len(texts))
            read = own[np.lexsort((asked.positions[own], order_of_texts[text]))]
            sums.append(np.cumsum(values[read]))
        return cls(tuple(sums))

    @property
    def words(self) -> NDArray[np.int64]:
        """(u,) words of each user."""
        return np.array([len(one) for one in self.sums], dtype=np.int64)

    def means(self, words: int) -> Floats:
        """Mean score over the first `words` words of each user who has as many."""
        return np.array([one[words - 1] / words for one in self.sums if len(one) >= words])


def common_words(own: int, others: ArrayLike, *, fewest: int) -> int:
    """The most words, no more than `own`, that at least `fewest` of the others have.

    Args:
        own: words of the audited user.
        others: (n,) words of each of non-members; n at least `fewest`.
        fewest: users to compare with.

    Example:
        >>> common_words(500, [100, 200, 300, 400], fewest=2)
        300
    """
    return min(own, int(np.sort(np.asarray(others))[-fewest]))
