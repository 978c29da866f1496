"""Selection of the words that are queried: at random, by rarity or by expected information.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", section 4.3 and
Algorithm 1: texts at random, or those of rare words.

Differs from the paper: a query may also be a single word after its context (`calls`). Of texts,
`rare` takes the smallest mean frequency, because the smallest sum picks short texts. A model that
shows few words never shows rare ones, so that querying them is useless: `informative` takes words
that shadow models rank between k / 10 and 4 k, since training on the text can move them into or out
of the top k. All users have the same rule.
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
        select: the criterion.
        queries: most texts of a user; all of their words are queried.
        calls: most single words of a user.
        k: words that the target shows; 0 until it is known.
        seed: of random selection.
    """

    select: Select = "all"
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
        if (self.queries is not None or self.calls is not None) == (self.select == "all"):
            need = "`queries` or `calls`" if self.select != "all" else "another `select`"
            raise ValueError(f"`select` {self.select} must come with {need}")

    @classmethod
    def from_options(cls, options: QueryOptions, *, shadows: int, seed: int) -> Self:
        """The policy of some options; ValueError if they contradict each other."""
        default: Select = "all"
        if options.calls is not None:
            default = "informative" if shadows else "random"
        elif options.queries is not None:
            # Texts of informative words are short: whole texts are best selected at random.
            default = "random"
        policy = cls(
            select=options.select or default,
            queries=options.queries,
            calls=options.calls,
            k=options.top_k or 0,
            seed=seed,
        )
        if policy.select == "informative" and not shadows:
            raise ValueError("`select` informative needs shadow models, which select the words")
        return policy

    def selected(
        self, queries: TokenQueries, counts: WordCounts, shadows: ShadowRanks | None = None
    ) -> Mask:
        """(w,) a mask of the words to query; "rare" by counts, "informative" by shadow models."""
        if self.select != "informative":
            return self._highest(queries, -counts.words[queries.tokens].astype(np.float64))
        assert shadows is not None
        typical = shadows.typical_ranks(queries, seed=self.seed)
        return self._highest(queries, information(typical, k=self.k))

    def max_words(self, queries: TokenQueries) -> NDArray[np.int64]:
        """(u,) most words of each user that can be selected, before shadow models are trained."""
        if self.calls is not None:
            return np.minimum(queries.counts(), self.calls)
        if self.queries is None or self.select == "random":
            return queries.counts()
        _, text, lengths = np.unique(queries.texts, return_inverse=True, return_counts=True)
        return queries.take(self._highest(queries, lengths[text].astype(np.float64))).counts()

    def _highest(self, queries: TokenQueries, values: Floats) -> Mask:
        """The words with the highest values (w,), or the texts with the highest means.

        All or random ones if the policy selects so, whatever the values.
        """
        if self.select == "all":
            return np.ones(len(queries), dtype=bool)
        rng = np.random.default_rng(self.seed)
        if self.calls is not None:
            if self.select == "random":
                values = rng.random(len(queries))
            return highest_per_user(queries.users, values, self.calls)
        assert self.queries is not None
        _, first, text = np.unique(queries.texts, return_index=True, return_inverse=True)
        if self.select == "random":
            text_values = rng.random(len(first))
        else:
            text_values = np.bincount(text, values) / np.bincount(text)
        return np.asarray(highest_per_user(queries.users[first], text_values, self.queries)[text])


def information(ranks: ArrayLike, *, k: int) -> Floats:
    """(w,) higher the closer a word's rank is to k on a log scale; below 0 outside [k / 10, 4 k].

    The ranks (w,) are those under models that were not trained on the words' users.
    """
    logs = np.log(np.asarray(ranks, dtype=np.float64))
    low, high = np.log(max(k / 10, 1.0)), np.log(4.0 * k)
    outside = np.maximum(low - logs, 0) + np.maximum(logs - high, 0)
    nearness = 1 - np.abs(logs - np.log(k + 1.0)) / (high - low + 1)
    return np.asarray(np.where(outside > 0, -outside, nearness), dtype=np.float64)


def highest_per_user(users: ArrayLike, values: ArrayLike, limit: int) -> Mask:
    """A mask of the `limit` highest values of each user; the first of equal ones."""
    _validate.at_least(1, limit=limit)
    user, value = np.asarray(users), np.asarray(values)
    order = np.lexsort((-value, user))
    starts = np.flatnonzero(np.diff(user[order], prepend=user[order[:1]] - 1))
    sizes = np.diff(np.append(starts, len(order)))
    position = np.arange(len(order)) - np.repeat(starts, sizes)
    mask = np.zeros(len(order), dtype=bool)
    mask[order[position < limit]] = True
    return mask
