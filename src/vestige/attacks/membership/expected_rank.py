r"""Expected log rank of a word: difficulty calibration by regression.

.. math:: s_u = \frac{1}{|W_u|} \sum_{w \in W_u}
    \left( \mathrm{E}[\log r_w \mid \mathrm{features}] - \log r_w \right)

The expectation is a quadratic function of the features (`attacks.quadratic`) and an effect of each
word, both fitted on queries of non-members of the target's training data, so that it knows how far
the target was trained, what it shows, and which words are hard in any case. A word's effect is the
sum of its residuals divided by their number plus `SHRINKAGE`, as in a random-effects model
(Henderson 1975, "Best Linear Unbiased Estimation and Prediction under a Selection Model",
Biometrics 31). This is difficulty calibration (Watson, Guo, Cormode and Sablayrolles 2022, "On the
Importance of Difficulty Calibration in Membership Inference Attacks", ICLR), learnt rather than
subtracted; reference models are features among others, and there may be none.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.attacks.quadratic import fit_mean, predicted
from vestige.data.encoded import EncodedCorpus
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

Floats = NDArray[np.float64]
FEWEST_WORDS = 200
"""Words below which no expectation is fitted."""

SHRINKAGE = 10
"""Occurrences of a word at which its effect is half the mean of its residuals."""


@dataclass(frozen=True, kw_only=True)
class WordCounts:
    """How often words and pairs of words occur in text of nobody who is audited.

    One function for everybody: whoever is fitted on, compared or audited must have no text in it.
    Were a user's own text counted, no pair of words of theirs would be new, and many of an audited
    user's; were it left out for them alone, each of their counts would fall a little short of the
    one that others have of the same word, and the expectation would know the user by that.

    Attributes:
        words: (v,) of each id.
        pairs: ascending int64 ids `previous * v + word` of the pairs that occur.
        pair_counts: as many counts.
    """

    words: NDArray[np.int64]
    pairs: NDArray[np.int64]
    pair_counts: NDArray[np.int64]

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
        """Counts of the texts of some users, who play no other part (`non_members`).

        Args:
            data: texts of all users.
            users: whose texts are counted, as places in `data.names`.
            vocab_size: v.
        """
        if data.users is None:
            raise ValueError("data must have users, got none")
        counted = np.repeat(np.isin(data.users, np.asarray(users)), np.diff(data.offsets))
        return cls.of(np.asarray(data.tokens)[counted], vocab_size)

    def of_words(self, asked: TokenQueries) -> NDArray[np.int64]:
        """(w,) counts of the asked words."""
        return self.words[asked.tokens]

    def features(self, asked: TokenQueries) -> Floats:
        """(w, 4): logs of 1 + the counts of each word, of it after the one before, of the one
        before; and its place in the text, at most 30."""
        pairs = self._of_pairs(asked.previous.astype(np.int64) * len(self.words) + asked.tokens)
        return np.stack(
            [
                np.log1p(self.words[asked.tokens]),
                np.log1p(pairs),
                np.log1p(self.words[asked.previous]),
                np.minimum(asked.positions, 30),
            ],
            axis=1,
        ).astype(np.float64)

    def _of_pairs(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(self.pairs):
            return np.zeros(len(wanted), dtype=np.int64)
        place = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
        return np.where(self.pairs[place] == wanted, self.pair_counts[place], 0)


@dataclass(frozen=True)
class ExpectedRank:
    """The log rank to expect of a word that the target has not seen in this place.

    Attributes:
        regression: scikit-learn's fitted regressor.
        effects: (v,) of words, by id.
    """

    regression: "Pipeline"
    effects: Floats

    @classmethod
    def fit(
        cls, features: ArrayLike, log_ranks: ArrayLike, words: NDArray[np.integer], *, size: int
    ) -> "ExpectedRank":
        """Learn from words of non-members.

        Args:
            features: (w, f).
            log_ranks: (w,) under the target; log(k + 1) where it did not show the word.
            words: (w,) ids.
            size: of the vocabulary, v.

        Raises:
            DataError: there are too few words.
        """
        given = np.asarray(features, dtype=np.float64)
        if len(given) < FEWEST_WORDS:
            raise DataError(
                f"{len(given)} words of non-members are too few; {FEWEST_WORDS} are needed",
                remedy="Pass more --reference text.",
            )
        values = np.asarray(log_ranks, dtype=np.float64)
        regression = fit_mean(given, values)
        sums = np.bincount(words, values - predicted(regression, given), minlength=size)
        return cls(regression, sums / (np.bincount(words, minlength=size) + SHRINKAGE))

    def surprise(
        self, features: ArrayLike, log_ranks: ArrayLike, words: NDArray[np.integer]
    ) -> Floats:
        """(w,) expected less observed log rank: above 0 where the target does too well."""
        expected = predicted(self.regression, np.asarray(features, dtype=np.float64))
        expected += self.effects[words]
        return np.asarray(expected - np.asarray(log_ranks, dtype=np.float64))
