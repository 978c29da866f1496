"""What is known about each queried word: its ranks under the models, and how common it is.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Algorithm 1: the words of each user are queried in their contexts, and a rank says
how probable the model finds each one. A target that shows its k most probable words gives all
others rank k + 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.data.encoded import EncodedCorpus, EncodedPairs
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError
from vestige.models.predictions import Progress, word_ranks

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Texts = EncodedCorpus | EncodedPairs
Ranks = tuple[NDArray[np.int32], NDArray[np.float32]]
"""(w,) ranks from 1 in the whole vocabulary, and (w,) natural logs of probabilities."""

FURTHEST = 30
"""Positions in a text beyond this one count as it."""


def ranks_of(
    model: Any, texts: Texts, queries: TokenQueries, *, progress: Progress | None = None
) -> Ranks:
    """Ranks and log-probabilities of the queried words under a local model.

    Args:
        model: of next tokens, or an encoder-decoder if the texts are pairs.
        texts: ids by the model's vocabulary, the same that `queries` was made of.
        queries: w words, in any order.
        progress: called with (words done, all words).
    """
    targets = texts.targets if isinstance(texts, EncodedPairs) else texts
    where = targets.offsets[queries.texts] + queries.positions
    return word_ranks(model, texts, where, progress=progress)


@dataclass(frozen=True, kw_only=True)
class WordCounts:
    """Counts of words and of pairs of words in texts of users who have no other part in the audit.

    One function for everybody. If a user's own text were counted, none of their pairs of words
    would be new; if it were left out for them alone, each of their counts would be a little below
    the one that others have of the same word. Either would tell who they are.

    Attributes:
        words: (v,) by id.
        pairs: ascending int64 ids `previous * v + word` of the pairs that occur.
        pair_counts: as many counts.
    """

    words: Whole
    pairs: Whole
    pair_counts: Whole

    @classmethod
    def of(cls, tokens: ArrayLike, vocab_size: int) -> Self:
        """Counts in a text of ids; pairs across the ends of its documents count as well."""
        ids = np.asarray(tokens, dtype=np.int64)
        pairs, counts = np.unique(ids[:-1] * vocab_size + ids[1:], return_counts=True)
        words = np.bincount(ids, minlength=vocab_size)
        return cls(words=words, pairs=pairs, pair_counts=counts.astype(np.int64))

    @classmethod
    def of_users(cls, data: EncodedCorpus, users: ArrayLike, vocab_size: int) -> Self:
        """Counts in the texts of some users, given as indices of `data.names`."""
        if data.users is None:
            raise ValueError("data must have users, got none")
        counted = np.repeat(np.isin(data.users, np.asarray(users)), np.diff(data.offsets))
        return cls.of(np.asarray(data.tokens)[counted], vocab_size)

    def features(self, queries: TokenQueries) -> Floats:
        """(w, 4) logs of 1 + the counts of each word, of the pair with the word before it, and of
        that word; and the position in the text."""
        pairs = self._of_pairs(queries.previous.astype(np.int64) * len(self.words) + queries.tokens)
        columns = (
            np.log1p(self.words[queries.tokens]),
            np.log1p(pairs),
            np.log1p(self.words[queries.previous]),
            np.minimum(queries.positions, FURTHEST),
        )
        return np.stack(columns, axis=1).astype(np.float64)

    def _of_pairs(self, wanted: Whole) -> Whole:
        if not len(self.pairs):
            return np.zeros(len(wanted), dtype=np.int64)
        place = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
        return np.where(self.pairs[place] == wanted, self.pair_counts[place], 0)


@dataclass(frozen=True, kw_only=True)
class ShadowRanks:
    """Ranks of w words of u users under m shadow models, which are references for users unseen.

    Models 2 i and 2 i + 1 are a pair, trained on two halves of the same users
    (`training.shadow_jobs`). Everybody has as many references, one of each pair if possible:
    otherwise scores would not be comparable.

    Attributes:
        ranks: (m, w) from 1 in the whole vocabulary.
        log_probs: (m, w) natural logs.
        seen: (m, u) whether each model was trained on each user.

    Raises:
        ValueError: the shapes do not fit each other.
    """

    ranks: NDArray[np.integer]
    log_probs: NDArray[np.floating]
    seen: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if not (self.ranks.shape == self.log_probs.shape and len(self.seen) == len(self.ranks)):
            raise ValueError(
                "ranks, log_probs and seen must be (m, w), (m, w) and (m, u), got "
                f"{self.ranks.shape}, {self.log_probs.shape} and {self.seen.shape}"
            )

    @classmethod
    def of(
        cls, found: Sequence[Ranks], members: Sequence[Sequence[str]], names: Sequence[str]
    ) -> Self:
        """The ranks under each model, with the names of its members; `names` are the u users."""
        ranks, log_probs = (np.stack(each) for each in zip(*found, strict=True))
        seen = np.array(
            [[name in each for name in names] for each in map(set, members)], dtype=bool
        )
        return cls(ranks=ranks, log_probs=log_probs, seen=seen)

    def __len__(self) -> int:
        return len(self.ranks)

    def without_pair_of(self, model: int) -> Self:
        """All models but one and its pair, whose members are those whom the one has not seen."""
        kept = np.arange(len(self)) // 2 != model // 2
        return replace(
            self, ranks=self.ranks[kept], log_probs=self.log_probs[kept], seen=self.seen[kept]
        )

    def of_words(self, chosen: NDArray[Any]) -> Self:
        """The same models, for some of the words, by a mask or by indices."""
        return replace(self, ranks=self.ranks[:, chosen], log_probs=self.log_probs[:, chosen])

    @property
    def each(self) -> int:
        """References that every user has at least."""
        return int((~self.seen).sum(axis=0).min()) if len(self) else 0

    def draw(self, count: int, *, seed: int) -> Whole:
        """(u, count) random references of each user; both of a pair only if one is not enough.

        Raises:
            DataError: somebody has fewer.
        """
        if not 1 <= count <= self.each:
            raise DataError(
                "some users are members for every reference model",
                remedy="Train each pair of reference models on random halves of the users.",
            )
        lots = np.random.default_rng(seed).random(self.seen.shape)
        paired = len(self) // 2 * 2
        first, second = lots[0:paired:2], lots[1:paired:2]
        both = ~self.seen[0:paired:2] & ~self.seen[1:paired:2]
        later = first > second
        first += both & later
        second += both & ~later
        lots[self.seen] = 3.0
        return np.argsort(lots, axis=0)[:count].T

    def typical_ranks(self, queries: TokenQueries, *, seed: int) -> Floats:
        """(w,) geometric mean rank of each word under references of its user.

        Raises:
            DataError: some user has none.
        """
        drawn = self.draw(self.each, seed=seed)[queries.users]
        logs = np.log(self.ranks[drawn, np.arange(len(queries))[:, None]].astype(np.float64))
        return np.asarray(np.exp(logs.mean(axis=1)), dtype=np.float64)

    def features(self, queries: TokenQueries, count: int, *, k: int, seed: int) -> Floats:
        """(w, 6) features of each word under `count` references of its user.

        Mean log rank; the same with ranks cut to k + 1; mean log-probability; least log rank; share
        of references that rank the word within k; standard deviation of log ranks.
        """
        chosen, words = self.draw(count, seed=seed)[queries.users], np.arange(len(queries))[:, None]
        ranks = self.ranks[chosen, words].astype(np.float64)
        logs = np.log(ranks)
        columns = (
            logs.mean(axis=1),
            np.log(np.minimum(ranks, k + 1)).mean(axis=1),
            self.log_probs[chosen, words].astype(np.float64).mean(axis=1),
            logs.min(axis=1),
            (ranks <= k).mean(axis=1),
            logs.std(axis=1),
        )
        return np.stack(columns, axis=1)


@dataclass(frozen=True, kw_only=True)
class RankedWords:
    """The queried words of all users with their ranks under a target.

    Attributes:
        queries: w words of u users.
        ranks: (w,) from 1; all above k count as k + 1, not shown.
        k: most probable words that the target shows.
        vocab_size: words that it could show.
        counts: word counts.
        shadows: ranks of the same words under shadow models; None without any.

    Raises:
        ValueError: the ranks do not fit.
    """

    queries: TokenQueries
    ranks: NDArray[np.integer]
    k: int
    vocab_size: int
    counts: WordCounts
    shadows: ShadowRanks | None = None

    def __post_init__(self) -> None:
        _validate.at_least(1, k=self.k)
        _validate.at_least(self.k, vocab_size=self.vocab_size)
        if self.ranks.shape != (len(self.queries),):
            raise ValueError(
                f"ranks must be one per word, ({len(self.queries)},), got {self.ranks.shape}"
            )
        if len(self.ranks) and self.ranks.min() < 1:
            raise ValueError(f"ranks must be at least 1, got {self.ranks.min()}")

    @property
    def shown(self) -> NDArray[np.integer]:
        """(w,) ranks as the target shows them, at most k + 1."""
        return np.asarray(np.minimum(self.ranks, self.k + 1))

    @property
    def log_ranks(self) -> Floats:
        """(w,) natural logs of `shown`."""
        return np.log(self.shown.astype(np.float64))

    def take(self, chosen: NDArray[Any]) -> Self:
        """Some of the words, by a mask or by indices."""
        shadows = None if self.shadows is None else self.shadows.of_words(chosen)
        return replace(
            self, queries=self.queries.take(chosen), ranks=self.ranks[chosen], shadows=shadows
        )

    def played_by(self, model: int) -> Self:
        """The same words with a shadow model in the place of the target."""
        assert self.shadows is not None
        return replace(
            self, ranks=self.shadows.ranks[model], shadows=self.shadows.without_pair_of(model)
        )

    def features(self, references: int, *, seed: int) -> Floats:
        """(w, 4 or 10) features from counts, and from so many references of each user."""
        counts = self.counts.features(self.queries)
        if self.shadows is None:
            return counts
        of_shadows = self.shadows.features(self.queries, references, k=self.k, seed=seed)
        return np.concatenate([counts, of_shadows], axis=1)
