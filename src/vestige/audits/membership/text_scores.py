r"""Scores of texts from per-token statistics; always higher for members.

With p the target's and q the base's probability of a token, and d = ln p - ln q its gain:

loss        mean of ln p (Yeom et al. 2018, section 3.1)
log-ratio   mean of d (Carlini et al. 2021, arXiv:2012.07805, section 5.2)
zlib        ln p of the text per byte of the text compressed by zlib (the same)
min-k       mean of the least fifth of ln p (Shi et al. 2023, arXiv:2310.16789, equation 1)
min-k-plus  the same, standardized over the vocabulary (Zhang et al. 2024, arXiv:2404.02936,
            equation 3)
rmia        relative membership (Zarifzadeh, Liu and Shokri 2024, arXiv:2312.03262, equation 4,
            offline): ln p - ln(((1 + a) q + 1 - a) / 2) of the geometric means
error-zone  gains over losses where the target's first choice is wrong (EZ-MIA: JetBrains Research
            2026, `mia/ez_score.py` of their repository)

Differs from the papers: rmia is the ratio, not the share of population texts with a lower ratio.
Both order texts alike. The base is its one reference model. error-zone is a logarithm, which orders
texts alike, and epsilon is added to gains and losses. A text with fewer than two such tokens is
scored over all of its tokens: the paper's score is lowest for texts without losses, which the model
knows best, and for texts without such tokens.

Two scores are learned first.

**Calibrated**: in unseen text, a fine-tune changes the probability of a common token little, and
that of a rare token much and with a large variance. Expectation and variance of this gain are
learned from unseen texts, given the base's statistics of the token (features x). A token's score is
the standardized excess

.. math:: z = \frac{d - E[d \mid x, \mathrm{unseen}]}
    {\sqrt{\mathrm{Var}[d \mid x, \mathrm{unseen}]}}

of the gain :math:`d = \ln p - \ln q`. Calibration by difficulty: Watson et al. (2022), "On the
Importance of Difficulty Calibration in Membership Inference Attacks", arXiv:2111.08440; a
conditional null instead of shadow models: Bertran et al. (2023), "Scalable Membership Inference
Attacks via Quantile Regression", arXiv:2307.03694. Differs from both: tokens instead of examples;
expectation and variance instead of a difference or a quantile. Both are quadratic functions of the
features (`metrics.quadratic`), which rounding does not move.

**Learned**: a fine-tune makes its training texts more probable than its base does, and other texts
of their kind as well. Shadow models, fine-tunes of the same base on other texts of the kind, show
the gain of the kind alone. The features are five means over the gains d of a text's tokens, once
over the base and once over the mean of the shadow models that were not trained on the text:

.. math:: \overline d, \quad \text{error-zone}, \quad \overline{\tanh(d / 0.1)}, \quad
    \overline{\tanh(d / 0.5)}, \quad \overline{d / (\sigma + 0.3)},

with the deviation :math:`\sigma` of log-probabilities under the base. A logistic regression learns
the weights of the ten features from the shadow models, whose training texts are known. The
combination is ours.

No audited or compared text is used to fit a score or to train a shadow model: then audited
non-members and reference texts are exchangeable.
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.metrics.quadratic import fit_mean, predicted
from vestige.models.shown_statistics import shown_only
from vestige.models.token_statistics import TokenStatistics

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

Floats = NDArray[np.float64]
Score = Callable[..., Floats]
"""From keywords `target` and perhaps `base`, statistics of the same n texts, to (n,) scores."""

MIN_K_SHARE = 0.2
"""Share of a text's tokens in the mean of min-k, as in both papers."""

ADJUSTMENT = 0.3
"""rmia's a, as in the paper: relates a model trained on a text to one that was not."""

EPSILON = 0.01
"""Nats added to gains and losses."""

MIN_ERRORS = 2
"""Tokens with a wrong first choice that error-zone needs; otherwise it uses all tokens."""

SQUARE_OFFSET = 0.01
"""Added to each squared deviation, in units of their mean, so that its logarithm is finite."""

MIN_VARIANCE = 1e-12
"""Least mean variance: a target equal to its base has none."""


def means(statistics: TokenStatistics, values: NDArray[np.floating[Any]]) -> Floats:
    """(n,) mean of values (t,) over each text's tokens."""
    sums = np.add.reduceat(values.astype(np.float64), statistics.offsets[:-1])
    return np.asarray(sums / np.diff(statistics.offsets), dtype=np.float64)


def loss(target: TokenStatistics, base: TokenStatistics | None = None) -> Floats:
    """Mean log-probability."""
    return means(target, target.log_probs)


def log_ratio(target: TokenStatistics, base: TokenStatistics) -> Floats:
    """Mean gain over the base."""
    return means(target, target.log_probs - base.log_probs)


def min_k(target: TokenStatistics, base: TokenStatistics | None = None) -> Floats:
    """Mean log-probability of the least probable fifth of the tokens."""
    return _mean_of_least(target, target.log_probs)


def min_k_plus(target: TokenStatistics, base: TokenStatistics | None = None) -> Floats:
    """Mean standardized log-probability of the least probable fifth of the tokens."""
    deviations = np.maximum(target.deviations, np.finfo(np.float32).tiny)
    return _mean_of_least(target, (target.log_probs - target.means) / deviations)


def rmia(target: TokenStatistics, base: TokenStatistics) -> Floats:
    """Logarithm of the target's likelihood over the one expected of all models."""
    base_likelihood = np.exp(means(base, base.log_probs))
    expected = ((1 + ADJUSTMENT) * base_likelihood + 1 - ADJUSTMENT) / 2
    return np.asarray(loss(target) - np.log(expected), dtype=np.float64)


def error_zone(target: TokenStatistics, base: TokenStatistics) -> Floats:
    """Logarithm of gains over losses among tokens that are not the target's first choice."""
    changes, starts = _gains(target, base), target.offsets[:-1]
    wrong = target.ranks > 1
    few_wrong = np.add.reduceat(wrong.astype(np.int64), starts) < MIN_ERRORS
    counted = np.where(wrong | np.repeat(few_wrong, np.diff(target.offsets)), changes, 0.0)
    gains = np.add.reduceat(np.maximum(counted, 0.0), starts)
    losses = np.add.reduceat(np.maximum(-counted, 0.0), starts)
    return np.asarray(np.log((gains + EPSILON) / (losses + EPSILON)), dtype=np.float64)


def zlib_score(target: TokenStatistics, texts: Sequence[str]) -> Floats:
    """Log-probability of each of the n texts per byte of the text compressed by zlib."""
    log_probs = loss(target) * np.diff(target.offsets)
    return np.asarray(log_probs / [len(zlib.compress(text.encode())) for text in texts])


SCORES: Mapping[str, Score] = {
    "error-zone": error_zone,
    "log-ratio": log_ratio,
    "loss": loss,
    "min-k": min_k,
    "min-k-plus": min_k_plus,
    "rmia": rmia,
}
"""Scores that are functions of token statistics alone, by name."""

NEED_BASE = ("error-zone", "log-ratio", "rmia", "calibrated", "learned")
"""Scores that need a base."""

SERVED_SCORES = ("error-zone", "learned", "log-ratio", "loss")
"""Scores that need no more than a server shows: log-probabilities, and the first choice."""

SCORE_NAMES = tuple(sorted((*SCORES, "calibrated", "learned", "zlib")))


def _mean_of_least(statistics: TokenStatistics, values: NDArray[np.floating[Any]]) -> Floats:
    """(n,) mean of the least values of each text's tokens."""
    by_text = np.split(values.astype(np.float64), statistics.offsets[1:-1])
    return np.array(
        [np.sort(text)[: math.ceil(MIN_K_SHARE * text.size)].mean() for text in by_text]
    )


@dataclass(frozen=True)
class CalibratedGain:
    """Expectation and variance of a token's gain if its text was not seen.

    Attributes:
        expected: model of the gain.
        log_variance: model of the log of its squared deviation, in units of `scale`.
        log_frequencies: (v,) natural logs of token frequencies in the texts fitted on.
        scale: the mean squared deviation.
    """

    expected: "Pipeline"
    log_variance: "Pipeline"
    log_frequencies: Floats
    scale: float

    @classmethod
    def fit(cls, target: TokenStatistics, base: TokenStatistics) -> "CalibratedGain":
        """Learn from statistics of unseen texts, or of all texts that are compared."""
        _validate.at_least(2, **{"texts to calibrate on": len(base.offsets) - 1})
        counts = np.append(np.bincount(base.tokens) + 1.0, 1.0)  # the last: tokens never read
        log_frequencies = np.log(counts / counts.sum())
        features, gains = _token_features(base, log_frequencies), _gains(target, base)
        expected = fit_mean(features, gains)
        squares = (gains - predicted(expected, features)) ** 2
        scale = max(float(squares.mean()), MIN_VARIANCE)
        log_variance = fit_mean(features, np.log(squares / scale + SQUARE_OFFSET))
        # The mean logarithm is below the logarithm of the mean.
        variances = np.exp(predicted(log_variance, features))
        scale = max(float((squares / variances).mean()), MIN_VARIANCE)
        return cls(expected, log_variance, log_frequencies, scale)

    def token_scores(self, target: TokenStatistics, base: TokenStatistics) -> Floats:
        """(t,) standardized excess of each token's gain."""
        features = _token_features(base, self.log_frequencies)
        variance = self.scale * np.exp(predicted(self.log_variance, features))
        return np.asarray(self.excesses(target, base) / np.sqrt(variance), dtype=np.float64)

    def excesses(self, target: TokenStatistics, base: TokenStatistics) -> Floats:
        """(t,) excess of each token's gain, in nats.

        Better than the standardized one if a target hides tokens: their estimated gains vary
        little and would have the most weight.
        """
        features = _token_features(base, self.log_frequencies)
        expected = predicted(self.expected, features)
        return np.asarray(_gains(target, base) - expected, dtype=np.float64)


@dataclass(frozen=True)
class ShadowStatistics:
    """Statistics of a shadow model, whose training texts are known.

    Attributes:
        target: the shadow model's statistics of n texts.
        base: the base's, of the same texts.
        members: (n,) whether the shadow model was trained on each.
    """

    target: TokenStatistics
    base: TokenStatistics
    members: NDArray[np.bool_]


@dataclass(frozen=True)
class WeightedGains:
    """Membership log-odds of texts from their gains.

    Attributes:
        weights: scikit-learn's fitted regression.
        over_shadows: whether gains over shadow models are features, too.
        shown: how many most probable tokens the target shows; None: all.
    """

    weights: Any
    over_shadows: bool
    shown: int | None = None

    @classmethod
    def fit(
        cls, shadows: Sequence[ShadowStatistics], *, shown: int | None = None
    ) -> "WeightedGains":
        """Learn from shadow models; members and non-members have the same weight in total.

        Args:
            shadows: statistics of shadow models on one list of texts. Each model was trained on
                some of them. These texts are neither audited nor compared.
            shown: how many most probable tokens the target will show; None: all.
        """
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        log_probs = np.stack([shadow.target.log_probs for shadow in shadows])
        members = np.stack([shadow.members for shadow in shadows])
        # Gains over shadow models need another shadow model that was not trained on the text.
        comparable = (~members).sum(0) - ~members > 0
        over_shadows = bool((members & comparable).any() and (~members & comparable).any())
        gains = cls(None, over_shadows, shown)
        features = []
        for index, shadow in enumerate(shadows):
            reference = None
            if over_shadows:
                others = np.arange(len(shadows)) != index
                reference = non_member_means(log_probs[others], members[others], shadow.base)
            features.append(gains._features(shadow.target, shadow.base, reference))
        used = comparable if over_shadows else np.ones_like(members)
        regression = make_pipeline(
            StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000)
        )
        weights = regression.fit(np.stack(features)[used], members[used])
        return replace(gains, weights=weights)

    def scores(
        self, target: TokenStatistics, base: TokenStatistics, reference: ArrayLike | None = None
    ) -> Floats:
        """(n,) log-odds that the target was trained on each text.

        Args:
            target: statistics of n texts; tokens that the target does not show are left out here.
            base: of the same texts.
            reference: (t,) mean log-probability of each token under shadow models that were not
                trained on its text (`non_member_means`). None: the base's, which adds no gain.
        """
        features = self._features(target, base, reference)
        return np.asarray(self.weights.decision_function(features), dtype=np.float64)

    def _features(
        self, target: TokenStatistics, base: TokenStatistics, reference: ArrayLike | None
    ) -> Floats:
        """(n, 10) features of n texts, or (n, 5) without gains over shadow models."""
        if self.shown is not None:
            target = shown_only(target, base, likeliest=self.shown)
        features = [_gain_features(target, base)]
        if self.over_shadows:
            log_probs = base.log_probs if reference is None else reference
            shadows = replace(base, log_probs=np.asarray(log_probs, dtype=np.float32))
            features.append(_gain_features(target, shadows))
        return np.concatenate(features, axis=1)


def non_member_means(log_probs: ArrayLike, members: ArrayLike, base: TokenStatistics) -> Floats:
    """(t,) mean log-probability of each token under shadow models not trained on its text.

    Args:
        log_probs: (s, t) of s shadow models.
        members: (s, n) whether each was trained on each of the n texts.
        base: of these texts; replaces the mean of a text that all were trained on.
    """
    values, mask = np.asarray(log_probs, dtype=np.float64), np.asarray(members, dtype=bool)
    non_members = ~np.repeat(mask, np.diff(base.offsets), axis=1)
    count = non_members.sum(0)
    mean = (values * non_members).sum(0) / np.maximum(count, 1)
    return np.where(count > 0, mean, base.log_probs.astype(np.float64))


def _gain_features(target: TokenStatistics, other: TokenStatistics) -> Floats:
    """(n, 5) features of each text's gains over another model."""
    gains = _gains(target, other)
    columns = (
        means(target, gains),
        error_zone(target, other),
        means(target, np.tanh(gains / 0.1)),
        means(target, np.tanh(gains / 0.5)),
        means(target, gains / (other.deviations + 0.3)),
    )
    return np.stack(columns, axis=1)


def _gains(target: TokenStatistics, other: TokenStatistics) -> Floats:
    return np.asarray(target.log_probs.astype(np.float64) - other.log_probs)


def _token_features(base: TokenStatistics, log_frequencies: Floats) -> Floats:
    """(t, 6) features of each token that do not depend on the target."""
    ids = np.minimum(base.tokens, len(log_frequencies) - 1)
    position = np.arange(len(base.tokens)) - np.repeat(base.offsets[:-1], np.diff(base.offsets))
    columns = (
        base.log_probs,
        np.log(base.ranks),
        base.means,
        base.deviations,
        log_frequencies[ids],
        np.log1p(position),
    )
    return np.stack(columns, axis=1).astype(np.float64)
