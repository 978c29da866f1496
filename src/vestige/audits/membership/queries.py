"""Which words of each user are queried: at random, by rarity or by expected information.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", section 4.3 and
Algorithm 1: texts at random, or those of rare words.

Differs from the paper: a query may also be a single word after its context (`calls`). Of texts,
`rare` takes the smallest mean frequency, because the smallest sum picks short texts. If the model
shows few words, rare ones are useless, since none is ever among them: `informative` takes what
shadow models rank between k / 10 and 4 k, where training on the text can decide. One rule selects
for everybody.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.audits.membership.membership import QueryOptions, Select
from vestige.audits.membership.ranked_words import ShadowRanks, WordCounts
from vestige.data.token_queries import TokenQueries

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class QueryPolicy:
    """A rule that selects the queried words of each user.

    Attributes:
        how: what decides.
        queries: texts of a user at most, every word of them.
        calls: single words of a user at most.
        k: words that the target shows; 0 until it is known.
        seed: of random selection.
    """

    how: Select = "all"
    queries: int | None = None
    calls: int | None = None
    k: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.queries is not None and self.calls is not None:
            raise ValueError(
                f"`calls` must be left out with `queries`, got {self.calls} and {self.queries}: "
                "query whole texts or single words"
            )
        if (self.queries is not None or self.calls is not None) == (self.how == "all"):
            need = "`queries` or `calls`" if self.how != "all" else "another `select`"
            raise ValueError(f"`select` {self.how} must come with {need}")

    @classmethod
    def of(cls, options: QueryOptions, *, shadows: int, seed: int) -> Self:
        """The policy of some options; ValueError if they contradict each other."""
        some = options.queries is not None or options.calls is not None
        # Texts of informative words are short ones: whole texts are best selected at random.
        usual: Select = "informative" if shadows and options.calls is not None else "random"
        how = options.select or (usual if some else "all")
        k = options.top_k or 0
        policy = cls(how=how, queries=options.queries, calls=options.calls, k=k, seed=seed)
        if how == "informative" and not shadows:
            raise ValueError("`select` informative needs shadow models, which select the words")
        return policy

    def mask(
        self, queries: TokenQueries, counts: WordCounts, shadows: ShadowRanks | None = None
    ) -> Mask:
        """(w,) True for the words to query; "rare" by counts, "informative" by shadow models."""
        if self.how != "informative":
            return self._best(queries, -counts.words[queries.tokens].astype(np.float64))
        assert shadows is not None
        typical = shadows.typical_ranks(queries, seed=self.seed)
        return self._best(queries, information(typical, k=self.k))

    def most(self, queries: TokenQueries) -> NDArray[np.int64]:
        """(u,) words of each user that can be selected at most, if no shadow model is trained."""
        if self.calls is not None:
            return np.minimum(queries.counts(), self.calls)
        if self.queries is None or self.how == "random":
            return queries.counts()
        _, text, lengths = np.unique(queries.texts, return_inverse=True, return_counts=True)
        return queries.take(self._best(queries, lengths[text].astype(np.float64))).counts()

    def _best(self, queries: TokenQueries, worth: Floats) -> Mask:
        """The words, or the words of the texts, of the highest worth (w,); or random ones."""
        if self.how == "all":
            return np.ones(len(queries), dtype=bool)
        generator = np.random.default_rng(self.seed)
        if self.calls is not None:
            value = generator.random(len(queries)) if self.how == "random" else worth
            return best_of_each(queries.users, value, self.calls)
        assert self.queries is not None
        _, first, text = np.unique(queries.texts, return_index=True, return_inverse=True)
        if self.how == "random":
            value = generator.random(len(first))
        else:
            value = np.bincount(text, worth) / np.bincount(text)
        return np.asarray(best_of_each(queries.users[first], value, self.queries)[text])


def information(ranks: ArrayLike, *, k: int) -> Floats:
    """(w,) higher the closer a word's rank is to k on a log scale, one half from k / 10 to 4 k.

    The ranks (w,) are those under models that were not trained on the words' users.
    """
    logs = np.log(np.asarray(ranks, dtype=np.float64))
    low, high = np.log(max(k / 10, 1.0)), np.log(4.0 * k)
    outside = np.maximum(low - logs, 0) + np.maximum(logs - high, 0)
    nearness = 1 - np.abs(logs - np.log(k + 1.0)) / (high - low + 1)
    return np.asarray(np.where(outside > 0, -outside, nearness), dtype=np.float64)


def best_of_each(owners: ArrayLike, value: ArrayLike, limit: int) -> Mask:
    """True for the `limit` largest values of each owner; equal ones in their order."""
    _validate.at_least(1, limit=limit)
    owned, values = np.asarray(owners), np.asarray(value)
    order = np.lexsort((-values, owned))
    begins = np.flatnonzero(np.diff(owned[order], prepend=owned[order[:1]] - 1))
    sizes = np.diff(np.append(begins, len(order)))
    within = np.arange(len(order)) - np.repeat(begins, sizes)
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[within < limit]] = True
    return chosen
