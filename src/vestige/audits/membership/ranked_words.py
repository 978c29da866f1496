r"""Users' words with their ranks, and scores of them: how much each one indicates membership.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Algorithm 1: the words of each user are queried in their contexts, and a rank says
how probable the model finds each one. A target that shows its k most probable words gives all
others rank k + 1.

Differs from the paper, whose score is a support vector machine's of a histogram. Shadow models were
each trained on some of the fitted users. From the words of these, a logistic regression learns the
log-odds that the model was trained on the word's user, given the word's rank, its ranks under other
shadow models and how common it is. What is expected of the target's own answers about fitted users
is subtracted,

.. math:: L_w = \log \frac{P(\mathrm{seen} \mid r_w, x_w)}{P(\mathrm{unseen} \mid r_w, x_w)}, \qquad
    s_w = L_w - \mathrm{E}[L_w \mid x_w, \mathrm{unseen\ by\ the\ target}],

which removes how far the target was trained, what it shows, and which words are hard in any case.
The likelihood ratio is the most powerful test (Neyman and Pearson). Carlini, Chien, Nasr, Song,
Terzis and Tramèr (2022), "Membership Inference Attacks From First Principles", IEEE S&P, estimate
it for each example; here it is one function of all words, so that few shadow models are enough.

Without enough shadow models, L is minus the log rank: difficulty calibration (Watson, Guo, Cormode
and Sablayrolles 2022, "On the Importance of Difficulty Calibration in Membership Inference
Attacks", ICLR), learned instead of subtracted.

The expectation is a quadratic function of the features (`metrics.quadratic`) and an effect of each
word: the sum of its residuals divided by their number plus `SHRINKAGE`, as in a random-effects
model (Henderson 1975, "Best Linear Unbiased Estimation and Prediction under a Selection Model",
Biometrics 31).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.data.encoded import EncodedCorpus, EncodedPairs
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError
from vestige.metrics.quadratic import fit_log_odds, fit_mean, predicted
from vestige.models.predictions import Progress, word_ranks

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Texts = EncodedCorpus | EncodedPairs
Ranks = tuple[NDArray[np.int32], NDArray[np.float32]]
"""(w,) ranks from 1 in the whole vocabulary, and (w,) natural logs of probabilities."""

FURTHEST = 30
"""Positions in a text beyond this one count as it."""
FEWEST_WORDS = 200
"""Words of fitted users that an expectation needs."""
SHRINKAGE = 10
"""Occurrences of a word at which its effect is half the mean of its residuals."""
FEWEST_SHADOW_WORDS, MOST_SHADOW_WORDS = 2_000, 200_000
"""Words of all shadow models together that the log-odds need, and that they are learned from."""


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
        assert data.users is not None
        counted = np.repeat(np.isin(data.users, np.asarray(users)), np.diff(data.offsets))
        return cls.of(np.asarray(data.tokens)[counted], vocab_size)

    def features(self, queries: TokenQueries) -> Floats:
        """(w, 4) logs of 1 + the counts of each word, of the pair with the word before it, and of
        that word; and the position in the text."""
        wanted = queries.previous.astype(np.int64) * len(self.words) + queries.tokens
        pairs = np.zeros(len(wanted), dtype=np.int64)
        if len(self.pairs):
            place = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
            pairs = np.where(self.pairs[place] == wanted, self.pair_counts[place], 0)
        columns = (
            np.log1p(self.words[queries.tokens]),
            np.log1p(pairs),
            np.log1p(self.words[queries.previous]),
            np.minimum(queries.positions, FURTHEST),
        )
        return np.stack(columns, axis=1).astype(np.float64)


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
    """

    ranks: NDArray[np.integer]
    log_probs: NDArray[np.floating]
    seen: NDArray[np.bool_]

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
        ranks: (w,) from 1; those above k are not shown.
        k: words that the target shows.
        vocab_size: words that it could show.
        counts: of words in other texts.
        shadows: ranks of the same words under shadow models, if there are any.
    """

    queries: TokenQueries
    ranks: NDArray[np.integer]
    k: int
    vocab_size: int
    counts: WordCounts
    shadows: ShadowRanks | None = None

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


def score_words(words: RankedWords, fitted: ArrayLike, *, seed: int = 0) -> Floats:
    """(w,) score of each word, 0 on average for non-members.

    Args:
        words: of all users.
        fitted: non-members, from whose words the expectation is learned.
        seed: of random draws.

    Raises:
        DataError: the fitted have too few words, or somebody has no reference model.
    """
    users = np.asarray(fitted, dtype=np.int64)
    learned = None if words.shadows is None else log_odds(words, users, seed=seed)
    if learned is None:
        return surprise_words(words, users, seed=seed)
    return unexpected(*learned, words, users)


def surprise_words(words: RankedWords, fitted: ArrayLike, *, seed: int = 0) -> Floats:
    """(w,) expected minus observed log rank of each word, in nats; see `score_words`."""
    references = 0 if words.shadows is None else words.shadows.each
    features = words.features(references, seed=seed)
    return -unexpected(words.log_ranks, features, words, fitted)


def unexpected(values: Floats, features: Floats, words: RankedWords, fitted: ArrayLike) -> Floats:
    """(w,) values of words minus their expectation, learned from the words of fitted users.

    Raises:
        DataError: these are too few.
    """
    tokens, size = words.queries.tokens, len(words.counts.words)
    known = np.isin(words.queries.users, np.asarray(fitted))
    given, count = features[known], int(known.sum())
    if count < FEWEST_WORDS:
        raise DataError(
            f"{count} words of non-members are too few; {FEWEST_WORDS} are needed",
            remedy="Pass more --reference text.",
        )
    regression = fit_mean(given, values[known])
    residuals = values[known] - predicted(regression, given)
    sums = np.bincount(tokens[known], residuals, minlength=size)
    effects = sums / (np.bincount(tokens[known], minlength=size) + SHRINKAGE)
    expected = predicted(regression, features)
    expected += effects[tokens]
    return values - expected


def log_odds(
    words: RankedWords, fitted: NDArray[np.int64], *, seed: int
) -> tuple[Floats, Floats] | None:
    """(w,) log-odds of having been trained on each word's user, and the (w, f) features besides
    the target's rank; None if shadow models, or fitted users in their training, are too few.
    """
    shadows = words.shadows
    assert shadows is not None
    count = len(shadows)
    references = min(shadows.without_pair_of(model).each for model in range(count))
    if references < 1:
        return None
    played = [_played(words, fitted, model, references, seed=seed) for model in range(count)]
    given, seen = (np.concatenate(parts) for parts in zip(*played, strict=True))
    if len(given) < FEWEST_SHADOW_WORDS or not 0.1 <= seen.mean() <= 0.9:
        return None
    features = words.features(references, seed=seed)
    both = np.concatenate([features, words.log_ranks[:, None]], axis=1)
    return predicted(fit_log_odds(given, seen), both), features


def _played(
    words: RankedWords, fitted: NDArray[np.int64], model: int, references: int, *, seed: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """Features and ranks of fitted users' words if a shadow model plays the target, and labels."""
    assert words.shadows is not None
    chosen = np.flatnonzero(np.isin(words.queries.users, fitted))
    limit = MOST_SHADOW_WORDS // len(words.shadows)
    if len(chosen) > limit:
        generator = np.random.default_rng([seed, model])
        chosen = np.sort(generator.choice(chosen, limit, replace=False))
    played = words.take(chosen).played_by(model)
    features = played.features(references, seed=seed + model)
    seen = words.shadows.seen[model, played.queries.users]
    return np.concatenate([features, played.log_ranks[:, None]], axis=1), seen
