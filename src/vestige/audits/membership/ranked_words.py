r"""Ranks of users' words, and scores of words: how much each one indicates membership.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Algorithm 1: the model ranks the words of each user in their contexts. If the
target shows its k most probable words, all others have rank k + 1.

Differs from the paper, which scores histograms of ranks by a support vector machine. Each shadow
model was trained on some of the fitted users. From their words, a logistic regression learns the
log-odds that a model was trained on the word's user, given the word's rank, its ranks under other
shadow models and its frequency. The expectation for users that the target was not trained on,
learned from the fitted, is subtracted,

.. math:: L_w = \log \frac{P(\mathrm{seen} \mid r_w, x_w)}{P(\mathrm{unseen} \mid r_w, x_w)}, \qquad
    s_w = L_w - \mathrm{E}[L_w \mid x_w, \mathrm{unseen\ by\ the\ target}],

which removes the effects of the target's training time, of what it shows, and of hard words.
The likelihood ratio is the most powerful test (Neyman and Pearson). Carlini, Chien, Nasr, Song,
Terzis and Tramèr (2022), "Membership Inference Attacks From First Principles", IEEE S&P, estimate
it for each example; here one function of all words needs few shadow models.

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
Ints = NDArray[np.int64]
EncodedTexts = EncodedCorpus | EncodedPairs
Ranks = tuple[NDArray[np.int32], NDArray[np.float32]]
"""(w,) ranks from 1 in the whole vocabulary, and (w,) natural logs of probabilities."""

MAX_POSITION = 30
"""Larger positions in a text are replaced by this one."""
MIN_WORDS = 200
"""Least number of words of fitted users to learn an expectation from."""
SHRINKAGE = 10
"""Occurrences of a word at which its effect is half the mean of its residuals."""
MIN_SHADOW_WORDS, MAX_SHADOW_WORDS = 2_000, 200_000
"""Least and largest number of words of all shadow models to learn the log-odds from."""


def ranks_of(
    model: Any, texts: EncodedTexts, queries: TokenQueries, *, progress: Progress | None = None
) -> Ranks:
    """Ranks and log-probabilities of the queried words under a local model.

    Args:
        model: of next tokens, or an encoder-decoder if the texts are pairs.
        texts: ids by the model's vocabulary, the same that `queries` was made of.
        queries: w words in any order.
        progress: called with (words done, all words).
    """
    targets = texts.targets if isinstance(texts, EncodedPairs) else texts
    positions = targets.offsets[queries.texts] + queries.positions
    return word_ranks(model, texts, positions, progress=progress)


@dataclass(frozen=True, kw_only=True)
class WordCounts:
    """Counts of words and of pairs of words in texts of users who have no other part in the audit.

    All users have the same counts. If a user's own text were counted, none of their pairs of words
    would be new; if it were left out for them alone, each of their counts would be a little lower
    than other users' counts of the same word. Either would identify them.

    Attributes:
        words: (v,) by id.
        pairs: ascending int64 ids `previous * v + word` of the pairs that occur.
        pair_counts: as many counts.
    """

    words: Ints
    pairs: Ints
    pair_counts: Ints

    @classmethod
    def of(cls, tokens: ArrayLike, vocab_size: int) -> Self:
        """Counts in a sequence of ids; pairs across the ends of texts count as well."""
        ids = np.asarray(tokens, dtype=np.int64)
        pairs, counts = np.unique(ids[:-1] * vocab_size + ids[1:], return_counts=True)
        words = np.bincount(ids, minlength=vocab_size)
        return cls(words=words, pairs=pairs, pair_counts=counts.astype(np.int64))

    @classmethod
    def of_users(cls, data: EncodedCorpus, users: ArrayLike, vocab_size: int) -> Self:
        """Counts in the texts of some users, which are indices of `data.names`."""
        assert data.users is not None
        mask = np.repeat(np.isin(data.users, np.asarray(users)), np.diff(data.offsets))
        return cls.of(np.asarray(data.tokens)[mask], vocab_size)

    def features(self, queries: TokenQueries) -> Floats:
        """(w, 4) log(1 + count) of the word, of its pair with the previous word, and of the
        previous word; and the position in the text."""
        pairs = queries.previous.astype(np.int64) * len(self.words) + queries.tokens
        pair_counts = np.zeros(len(pairs), dtype=np.int64)
        if len(self.pairs):
            index = np.minimum(np.searchsorted(self.pairs, pairs), len(self.pairs) - 1)
            pair_counts = np.where(self.pairs[index] == pairs, self.pair_counts[index], 0)
        columns = (
            np.log1p(self.words[queries.tokens]),
            np.log1p(pair_counts),
            np.log1p(self.words[queries.previous]),
            np.minimum(queries.positions, MAX_POSITION),
        )
        return np.stack(columns, axis=1).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class ShadowRanks:
    """Ranks of w words of u users under m shadow models.

    A shadow model that was not trained on a user is a reference for this user. Models 2 i and
    2 i + 1 are a pair, trained on two halves of the same users (`training.shadow_jobs`). All users
    have the same number of references, one of each pair if possible: otherwise scores would not be
    comparable.

    Attributes:
        ranks: (m, w) from 1 in the whole vocabulary.
        log_probs: (m, w) natural logs.
        members: (m, u) whether each model was trained on each user.
    """

    ranks: NDArray[np.integer]
    log_probs: NDArray[np.floating]
    members: NDArray[np.bool_]

    @classmethod
    def of(
        cls, by_model: Sequence[Ranks], members: Sequence[Sequence[str]], names: Sequence[str]
    ) -> Self:
        """Join the ranks under each model; `members` are its users, `names` all u users."""
        ranks, log_probs = (np.stack(arrays) for arrays in zip(*by_model, strict=True))
        mask = np.array(
            [[name in users for name in names] for users in map(set, members)], dtype=bool
        )
        return cls(ranks=ranks, log_probs=log_probs, members=mask)

    def __len__(self) -> int:
        return len(self.ranks)

    def without_pair_of(self, model: int) -> Self:
        """All models but one and the other of its pair, which was trained on its non-members."""
        rest = np.arange(len(self)) // 2 != model // 2
        return replace(
            self,
            ranks=self.ranks[rest],
            log_probs=self.log_probs[rest],
            members=self.members[rest],
        )

    def take(self, words: NDArray[Any]) -> Self:
        """The same models, for some of the words, by a mask or by indices."""
        return replace(self, ranks=self.ranks[:, words], log_probs=self.log_probs[:, words])

    @property
    def references(self) -> int:
        """The number of references that all users have at least."""
        return int((~self.members).sum(axis=0).min()) if len(self) else 0

    def sample_references(self, count: int, *, seed: int) -> Ints:
        """(u, count) random references of each user; both of a pair only if one is not enough.

        Raises:
            DataError: a user has fewer.
        """
        if not 1 <= count <= self.references:
            raise DataError(
                "some users are members for every reference model",
                remedy="Train each pair of reference models on random halves of the users.",
            )
        keys = np.random.default_rng(seed).random(self.members.shape)
        paired = len(self) // 2 * 2
        first, second = keys[0:paired:2], keys[1:paired:2]
        both = ~self.members[0:paired:2] & ~self.members[1:paired:2]
        second_sooner = first > second
        first += both & second_sooner
        second += both & ~second_sooner
        keys[self.members] = 3.0
        return np.argsort(keys, axis=0)[:count].T

    def typical_ranks(self, queries: TokenQueries, *, seed: int) -> Floats:
        """(w,) geometric mean rank of each word under references of its user.

        Raises:
            DataError: some user has none.
        """
        models = self.sample_references(self.references, seed=seed)[queries.users]
        logs = np.log(self.ranks[models, np.arange(len(queries))[:, None]].astype(np.float64))
        return np.asarray(np.exp(logs.mean(axis=1)), dtype=np.float64)

    def features(self, queries: TokenQueries, count: int, *, k: int, seed: int) -> Floats:
        """(w, 6) features of each word under `count` references of its user.

        Mean log rank; the same with ranks cut to k + 1; mean log-probability; least log rank; share
        of references that rank the word within k; standard deviation of log ranks.
        """
        models = self.sample_references(count, seed=seed)[queries.users]
        words = np.arange(len(queries))[:, None]
        ranks = self.ranks[models, words].astype(np.float64)
        logs = np.log(ranks)
        columns = (
            logs.mean(axis=1),
            np.log(np.minimum(ranks, k + 1)).mean(axis=1),
            self.log_probs[models, words].astype(np.float64).mean(axis=1),
            logs.min(axis=1),
            (ranks <= k).mean(axis=1),
            logs.std(axis=1),
        )
        return np.stack(columns, axis=1)


@dataclass(frozen=True, kw_only=True)
class RankedWords:
    """The queried words of all users, with their ranks under a target.

    Attributes:
        queries: w words of u users.
        ranks: (w,) from 1; those above k are not shown.
        k: words that the target shows.
        vocab_size: words that the target can show.
        counts: word counts in other texts.
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

    def take(self, words: NDArray[Any]) -> Self:
        """Some of the words, by a mask or by indices."""
        shadows = None if self.shadows is None else self.shadows.take(words)
        return replace(
            self, queries=self.queries.take(words), ranks=self.ranks[words], shadows=shadows
        )

    def with_shadow_as_target(self, model: int) -> Self:
        """The same words with a shadow model as the target."""
        assert self.shadows is not None
        return replace(
            self, ranks=self.shadows.ranks[model], shadows=self.shadows.without_pair_of(model)
        )

    def features(self, references: int, *, seed: int) -> Floats:
        """(w, 4 or 10) features from counts, and from this many references of each user."""
        from_counts = self.counts.features(self.queries)
        if self.shadows is None:
            return from_counts
        from_shadows = self.shadows.features(self.queries, references, k=self.k, seed=seed)
        return np.concatenate([from_counts, from_shadows], axis=1)


def score_words(words: RankedWords, fitted: ArrayLike, *, seed: int = 0) -> Floats:
    """(w,) score of each word, 0 on average for non-members.

    Args:
        words: of all users.
        fitted: non-members, from whose words the expectation is learned.
        seed: of random samples.

    Raises:
        DataError: the fitted have too few words, or a user has no reference model.
    """
    users = np.asarray(fitted, dtype=np.int64)
    odds_and_features = None if words.shadows is None else log_odds(words, users, seed=seed)
    if odds_and_features is None:
        return surprise_words(words, users, seed=seed)
    odds, features = odds_and_features
    return excess_over_expected(odds, features, words, users)


def surprise_words(words: RankedWords, fitted: ArrayLike, *, seed: int = 0) -> Floats:
    """(w,) expected minus observed log rank of each word, in nats; see `score_words`."""
    references = 0 if words.shadows is None else words.shadows.references
    features = words.features(references, seed=seed)
    return -excess_over_expected(words.log_ranks, features, words, fitted)


def excess_over_expected(
    values: Floats, features: Floats, words: RankedWords, fitted: ArrayLike
) -> Floats:
    """(w,) values of words minus their expectation, learned from the words of fitted users.

    Raises:
        DataError: the fitted users have too few words.
    """
    tokens, size = words.queries.tokens, len(words.counts.words)
    is_fitted = np.isin(words.queries.users, np.asarray(fitted))
    count = int(is_fitted.sum())
    if count < MIN_WORDS:
        raise DataError(
            f"{count} words of non-members are too few; {MIN_WORDS} are needed",
            remedy="Pass more --reference text.",
        )
    regression = fit_mean(features[is_fitted], values[is_fitted])
    residuals = values[is_fitted] - predicted(regression, features[is_fitted])
    sums = np.bincount(tokens[is_fitted], residuals, minlength=size)
    effects = sums / (np.bincount(tokens[is_fitted], minlength=size) + SHRINKAGE)
    expected = predicted(regression, features)
    expected += effects[tokens]
    return values - expected


def log_odds(
    words: RankedWords, fitted: NDArray[np.int64], *, seed: int
) -> tuple[Floats, Floats] | None:
    """Log-odds that the target was trained on each word's user.

    Returns:
        (w,) log-odds, and the (w, f) features other than the target's rank; None if there are too
        few shadow models or too few fitted users in their training.
    """
    shadows = words.shadows
    assert shadows is not None
    models = range(len(shadows))
    references = min(shadows.without_pair_of(model).references for model in models)
    if references < 1:
        return None
    training = [_training_words(words, fitted, model, references, seed=seed) for model in models]
    inputs, labels = (np.concatenate(arrays) for arrays in zip(*training, strict=True))
    if len(inputs) < MIN_SHADOW_WORDS or not 0.1 <= labels.mean() <= 0.9:
        return None
    features = words.features(references, seed=seed)
    with_ranks = np.concatenate([features, words.log_ranks[:, None]], axis=1)
    return predicted(fit_log_odds(inputs, labels), with_ranks), features


def _training_words(
    words: RankedWords, fitted: NDArray[np.int64], model: int, references: int, *, seed: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """Features and ranks of fitted users' words with a shadow model as the target, and labels."""
    assert words.shadows is not None
    indices = np.flatnonzero(np.isin(words.queries.users, fitted))
    limit = MAX_SHADOW_WORDS // len(words.shadows)
    if len(indices) > limit:
        rng = np.random.default_rng([seed, model])
        indices = np.sort(rng.choice(indices, limit, replace=False))
    training = words.take(indices).with_shadow_as_target(model)
    features = training.features(references, seed=seed + model)
    labels = words.shadows.members[model, training.queries.users]
    return np.concatenate([features, training.log_ranks[:, None]], axis=1), labels
