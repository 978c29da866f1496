r"""How much better does a model rank a user's words than it would had it never seen them?

.. math:: s_u = \frac{1}{|W_u|} \sum_{w \in W_u}
    \left( \mathrm{E}[\log r_w \mid \mathrm{features}] - \log r_w \right)

The expectation is fitted by gradient boosting on queries of users who are known to be out of the
target's training data, so that it knows how far the target was trained, what it shows, and which
words are hard in any case. This is difficulty calibration (Watson, Guo, Cormode and Sablayrolles
2022, "On the Importance of Difficulty Calibration in Membership Inference Attacks", ICLR), learnt
rather than subtracted; reference models are features among others, and there may be none.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.data.asked_words import AskedWords
from vestige.data.encoded import EncodedCorpus
from vestige.errors import DataError

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor

Floats = NDArray[np.float64]
FEWEST_WORDS = 200
"""Words below which no expectation is fitted."""


@dataclass(frozen=True)
class Tally:
    """How often each of some whole numbers occurs.

    Attributes:
        keys: ascending, all different.
        counts: as many.
    """

    keys: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, values: ArrayLike) -> Self:
        """Count them."""
        keys, counts = np.unique(np.asarray(values, dtype=np.int64), return_counts=True)
        return cls(keys, counts.astype(np.int64))

    def at(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often each of the wanted numbers was there."""
        if not len(self.keys):
            return np.zeros(len(wanted), dtype=np.int64)
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[place] == wanted, self.counts[place], 0)


@dataclass(frozen=True, kw_only=True)
class WordCounts:
    """Public counts: how often words and pairs of words occur in text that anyone may read.

    Attributes:
        words: (v,) of each id.
        pairs: ascending int64 ids `previous * v + word` of the pairs that occur.
        pair_counts: as many counts.
        own_words: of `user * v + word`, where the text is that of users who are asked, too: what
            a user wrote is not counted for them.
        own_pairs: of `(user * v + previous) * v + word`, likewise.
    """

    words: NDArray[np.int64]
    pairs: NDArray[np.int64]
    pair_counts: NDArray[np.int64]
    own_words: Tally | None = None
    own_pairs: Tally | None = None

    @classmethod
    def of(cls, tokens: ArrayLike, vocab_size: int) -> "WordCounts":
        """Counts of a text of ids; pairs across the ends of its documents count as well."""
        ids = np.asarray(tokens, dtype=np.int64)
        pairs, counts = np.unique(ids[:-1] * vocab_size + ids[1:], return_counts=True)
        return cls(
            words=np.bincount(ids, minlength=vocab_size),
            pairs=pairs,
            pair_counts=counts.astype(np.int64),
        )

    @classmethod
    def of_users(cls, data: EncodedCorpus, users: ArrayLike, vocab_size: int) -> "WordCounts":
        """Counts of the texts of some users, for all of whom those of the others count.

        Users who are known to be out are compared with users who are audited. Were a user's own
        text counted, no pair of words of the first would be new, and many of the second.

        Args:
            data: texts of all users.
            users: whose texts are counted, as places in `data.names`.
            vocab_size: v.
        """
        if data.users is None:
            raise ValueError("data must say whose each text is, got no users")
        ids = np.asarray(data.tokens, dtype=np.int64)
        owners = np.repeat(data.users, np.diff(data.offsets)).astype(np.int64)
        counted = np.isin(owners, np.asarray(users))
        ids, owners = ids[counted], owners[counted]
        pairs = (owners[1:] * vocab_size + ids[:-1]) * vocab_size + ids[1:]
        return replace(
            cls.of(ids, vocab_size),
            own_words=Tally.of(owners * vocab_size + ids),
            own_pairs=Tally.of(pairs),
        )

    def of_words(self, asked: AskedWords) -> NDArray[np.int64]:
        """(w,) counts of the asked words."""
        return self._words(asked, asked.tokens)

    def features(self, asked: AskedWords) -> Floats:
        """(w, 4): logs of 1 + the counts of each word, of it after the one before, of the one
        before; and its place in the text, at most 30."""
        size = len(self.words)
        wanted = asked.previous.astype(np.int64) * size + asked.tokens
        found = Tally(self.pairs, self.pair_counts).at(wanted)
        if self.own_pairs is not None:
            found = found - self.own_pairs.at(asked.users.astype(np.int64) * size**2 + wanted)
        return np.stack(
            [
                np.log1p(self.of_words(asked)),
                np.log1p(found),
                np.log1p(self._words(asked, asked.previous)),
                np.minimum(asked.positions, 30),
            ],
            axis=1,
        ).astype(np.float64)

    def _words(self, asked: AskedWords, ids: NDArray[np.int32]) -> NDArray[np.int64]:
        found = self.words[ids]
        if self.own_words is None:
            return found
        return found - self.own_words.at(asked.users.astype(np.int64) * len(self.words) + ids)


@dataclass(frozen=True)
class ExpectedRank:
    """The log rank to expect of a word that the target has not seen in this place.

    Attributes:
        boosting: scikit-learn's fitted regressor.
    """

    boosting: "HistGradientBoostingRegressor"

    @classmethod
    def fit(cls, features: ArrayLike, log_ranks: ArrayLike, *, seed: int = 0) -> "ExpectedRank":
        """Learn from words of users who are known to be out.

        Args:
            features: (w, f).
            log_ranks: (w,) under the target; log(k + 1) where it did not show the word.
            seed: of the boosting.

        Raises:
            DataError: there are too few words.
        """
        from sklearn.ensemble import HistGradientBoostingRegressor

        given = np.asarray(features, dtype=np.float64)
        if len(given) < FEWEST_WORDS:
            raise DataError(
                f"{len(given)} words of users who are known to be out are too few to tell what "
                f"to expect, it takes {FEWEST_WORDS}",
                remedy="Give more text of people who are not in the training data (--reference).",
            )
        boosting = HistGradientBoostingRegressor(
            max_iter=150,
            learning_rate=0.08,
            max_leaf_nodes=15,
            min_samples_leaf=max(5, min(50, len(given) // 100)),
            random_state=seed,
        )
        return cls(boosting.fit(given, np.asarray(log_ranks, dtype=np.float64)))

    def surprise(self, features: ArrayLike, log_ranks: ArrayLike) -> Floats:
        """(w,) expected less observed log rank: above 0 where the target does too well."""
        expected = self.boosting.predict(np.asarray(features, dtype=np.float64))
        return cast("Floats", expected - np.asarray(log_ranks, dtype=np.float64))
