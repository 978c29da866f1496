"""What would other users score, had they given as little text as the one who is audited?

A mean over few words spreads more than one over many: against users with more text, chance would
look like membership too often. So everyone is cut to the audited user's amount, whole texts in an
order by lot. Who has less to begin with stands with all of it, which spreads more and makes
p-values larger.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.data.asked_words import AskedWords

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CutTexts:
    """Evidence of some users, to be had for any amount of text.

    Attributes:
        users: for each user, words and summed evidence of the first 1, 2, ... texts.
    """

    users: tuple[tuple[NDArray[np.int64], Floats], ...]

    @classmethod
    def of(
        cls, asked: AskedWords, evidence: ArrayLike, users: ArrayLike, *, seed: int
    ) -> "CutTexts":
        """Put the texts of each user into an order by lot.

        Args:
            asked: w words.
            evidence: (w,) finite for these users.
            users: whom, places in `asked.names`; those without words are left out.
            seed: of the lots.
        """
        values = np.asarray(evidence, dtype=np.float64)
        generator = np.random.default_rng(seed)
        order = np.argsort(asked.users, kind="stable")
        bounds = np.searchsorted(asked.users[order], np.arange(len(asked.names) + 1))
        cut = []
        for user in np.asarray(users).tolist():
            own = order[bounds[user] : bounds[user + 1]]
            if not len(own):
                continue
            _, inverse = np.unique(asked.texts[own], return_inverse=True)
            words = np.bincount(inverse).astype(np.int64)
            sums = np.bincount(inverse, values[own]).astype(np.float64)
            lots = generator.permutation(len(words))
            cut.append((np.cumsum(words[lots]), np.cumsum(sums[lots])))
        return cls(tuple(cut))

    def means(self, words: int) -> Floats:
        """Mean evidence of each user over the fewest texts that have so many words."""
        found = np.empty(len(self.users))
        for place, (counts, sums) in enumerate(self.users):
            last = min(int(np.searchsorted(counts, words)), len(counts) - 1)
            found[place] = sums[last] / counts[last]
        return found
