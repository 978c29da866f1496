r"""Scores of words: how much each one indicates that its user was in the training data.

Shadow models were each trained on some of the fitted users. From the words of these, a logistic
regression learns the log-odds that the model was trained on the word's user, given the word's rank,
what other shadow models say about it and how common it is. What is expected of the target's own
answers about fitted users is subtracted,

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

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.audits.membership.features import Floats, RankedWords
from vestige.errors import DataError
from vestige.metrics.quadratic import fit_log_odds, fit_mean, predicted

FEWEST_WORDS = 200
"""Words of fitted users that an expectation needs."""
SHRINKAGE = 10
"""Occurrences of a word at which its effect is half the mean of its residuals."""
FEWEST_SHADOW_WORDS, MOST_SHADOW_WORDS = 2_000, 200_000
"""Words of all shadow models together that the log-odds need, and that they are learned from."""


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
    return unexpected(learned.values, learned.features, words, users)


def surprise_words(words: RankedWords, fitted: ArrayLike, *, seed: int = 0) -> Floats:
    """(w,) expected minus observed log rank of each word, in nats; see `score_words`."""
    references = 0 if words.shadows is None else words.shadows.each
    features = words.features(references, seed=seed)
    return -unexpected(words.log_ranks, features, words, fitted)


def unexpected(values: Floats, features: Floats, words: RankedWords, fitted: ArrayLike) -> Floats:
    """(w,) values of words minus their expectation, which the words of fitted users teach.

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


class LogOdds(NamedTuple):
    """Log-odds of words.

    Attributes:
        values: (w,) natural logs.
        features: (w, f) that they depend on beside the rank.
    """

    values: Floats
    features: Floats


def log_odds(words: RankedWords, fitted: NDArray[np.int64], *, seed: int) -> LogOdds | None:
    """Log-odds of having been trained on each word's user, by the target's rank.

    Returns:
        None if the shadow models are too few, or were trained on too few of the fitted users.
    """
    shadows = words.shadows
    assert shadows is not None
    count = len(shadows)
    references = min(shadows.without_pair_of(model).each for model in range(count))
    if references < 1:
        return None
    played = [_played(words, fitted, model, references, seed=seed) for model in range(count)]
    given = np.concatenate([features for features, _ in played])
    seen = np.concatenate([labels for _, labels in played])
    if len(given) < FEWEST_SHADOW_WORDS or not 0.1 <= seen.mean() <= 0.9:
        return None
    features = words.features(references, seed=seed)
    both = np.concatenate([features, words.log_ranks[:, None]], axis=1)
    return LogOdds(predicted(fit_log_odds(given, seen), both), features)


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
