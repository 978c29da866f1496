r"""Scores of texts from per-token statistics; always higher for members.

With p the target's and q the base's probability of a token, and d = ln p - ln q its gain:

loss        mean of ln p (Yeom et al. 2018, section 3.1)
log-ratio   mean of d (Carlini et al. 2021, arXiv:2012.07805, section 5.2)
zlib        ln p of the text per byte that zlib leaves of it (the same)
min-k       mean of the least fifth of ln p (Shi et al. 2023, arXiv:2310.16789, equation 1)
min-k-plus  the same, standardized over the vocabulary (Zhang et al. 2024, arXiv:2404.02936,
            equation 3)
rmia        relative membership (Zarifzadeh, Liu and Shokri 2024, arXiv:2312.03262, equation 4,
            offline): ln p - ln(((1 + a) q + 1 - a) / 2) of the geometric means
error-zone  gains over losses where the target's first choice is wrong (EZ-MIA: JetBrains Research
            2026, `mia/ez_score.py` of their repository)

Differs from the papers: rmia is the ratio, not the share of population texts whose ratio is lower,
which orders texts alike, and the base is its one reference model. error-zone is a logarithm, which
orders alike, with epsilon where theirs is 0, and a text with fewer than two such tokens is scored
over all of its tokens: theirs gives the lowest score to texts without losses, the best known of
all, and to those without such tokens.

Two scores are learned first.

**Calibrated**: how much a fine-tune changes a token that it never saw depends on the token: common
ones hardly, rare ones of the same kind of text much, and with a wide spread. Both are learned from
unseen texts, given what the base says (features x), and a token's score is the standardized excess

.. math:: z = \frac{d - E[d \mid x, \mathrm{unseen}]}
    {\sqrt{\mathrm{Var}[d \mid x, \mathrm{unseen}]}}

of the gain :math:`d = \ln p - \ln q`. Calibration by difficulty: Watson et al. (2022), "On the
Importance of Difficulty Calibration in Membership Inference Attacks", arXiv:2111.08440; a
conditional null in place of shadow models: Bertran et al. (2023), "Scalable Membership Inference
Attacks via Quantile Regression", arXiv:2307.03694. Differs from both: tokens in place of examples;
expectation and variance in place of a difference or a quantile. Both are quadratic functions of the
features (`metrics.quadratic`), which rounding does not move.

**Learned**: a fine-tune makes the texts that it read more probable than its base does, and other
texts of their kind as well. Shadow models, fine-tunes of the same base on other texts of the kind,
show how much the kind alone brings. Of the gains d of a text's tokens, over the base and over the
mean of the shadow models that did not read the text, count

.. math:: \overline d, \quad \text{error-zone}, \quad \overline{\tanh(d / 0.1)}, \quad
    \overline{\tanh(d / 0.5)}, \quad \overline{d / (\sigma + 0.3)},

:math:`\sigma` the deviation of log-probabilities under the base. A logistic regression learns from
the shadow models, whose training texts are known, how to weigh the ten numbers. The combination is
ours.

A text that is audited or compared is never fitted on, and no shadow model reads it: then audited
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
"""Of keywords `target` and, if it needs one, `base`: statistics of the same n texts; gives (n,)."""

LEAST = 0.2
"""Share of the tokens that min-k counts, as in both papers."""

ADJUSTMENT = 0.3
"""rmia's a: how far a model that saw a text is from one that did not, as in the paper."""

EPSILON = 0.01
"""Nats added to gains and losses."""

FEWEST = 2
"""Tokens where the first choice is wrong, at least."""

LEAST_SQUARE = 0.01
"""Added to each squared deviation, in units of the mean one: its logarithm stays finite."""

TINY = 1e-12
"""Mean variance, at least: a target that changed nothing has none."""


def means(of: TokenStatistics, values: NDArray[np.floating[Any]]) -> Floats:
    """(n,) mean of values (t,) over each text's tokens."""
    sums = np.add.reduceat(values.astype(np.float64), of.offsets[:-1])
    return np.asarray(sums / np.diff(of.offsets), dtype=np.float64)


def loss(target: TokenStatistics, base: TokenStatistics | None = None) -> Floats:
    """Mean log-probability."""
    return means(target, target.log_probs)


def log_ratio(target: TokenStatistics, base: TokenStatistics) -> Floats:
    """Mean gain over the base."""
    return means(target, target.log_probs - base.log_probs)


def min_k(target: TokenStatistics, base: TokenStatistics | None = None) -> Floats:
    """Mean log-probability of the least probable fifth of the tokens."""
    return _least(target, target.log_probs)


def min_k_plus(target: TokenStatistics, base: TokenStatistics | None = None) -> Floats:
    """The same of standardized log-probabilities."""
    spread = np.maximum(target.deviations, np.finfo(np.float32).tiny)
    return _least(target, (target.log_probs - target.means) / spread)


def rmia(target: TokenStatistics, base: TokenStatistics) -> Floats:
    """Logarithm of the target's likelihood over the one expected of all models."""
    unseen = np.exp(means(base, base.log_probs))
    expected = ((1 + ADJUSTMENT) * unseen + 1 - ADJUSTMENT) / 2
    return np.asarray(loss(target) - np.log(expected), dtype=np.float64)


def error_zone(target: TokenStatistics, base: TokenStatistics) -> Floats:
    """Logarithm of gains over losses among tokens that are not the target's first choice."""
    change = target.log_probs.astype(np.float64) - base.log_probs
    wrong, first = target.ranks > 1, target.offsets[:-1]
    few = np.add.reduceat(wrong.astype(np.int64), first) < FEWEST
    counted = np.where(wrong | np.repeat(few, np.diff(target.offsets)), change, 0.0)
    gains, losses = (np.add.reduceat(np.maximum(one, 0.0), first) for one in (counted, -counted))
    return np.asarray(np.log((gains + EPSILON) / (losses + EPSILON)), dtype=np.float64)


def zlib_score(target: TokenStatistics, texts: Sequence[str]) -> Floats:
    """Log-probability of a text for each byte that zlib leaves of it; `texts` are the n texts."""
    total = loss(target) * np.diff(target.offsets)
    return np.asarray(total / [len(zlib.compress(one.encode())) for one in texts])


SCORES: Mapping[str, Score] = {
    "error-zone": error_zone,
    "log-ratio": log_ratio,
    "loss": loss,
    "min-k": min_k,
    "min-k-plus": min_k_plus,
    "rmia": rmia,
}
"""Scores that are a function of one pass, by name."""

OF_BASE = ("error-zone", "log-ratio", "rmia", "calibrated", "learned")
"""Scores that need a base."""

SERVED = ("error-zone", "learned", "log-ratio", "loss")
"""Scores of what a server shows: log-probabilities, and whether a token is the first choice."""

NAMES = tuple(sorted((*SCORES, "calibrated", "learned", "zlib")))


def _least(of: TokenStatistics, values: NDArray[np.floating[Any]]) -> Floats:
    texts = np.split(values.astype(np.float64), of.offsets[1:-1])
    return np.array([np.sort(one)[: math.ceil(LEAST * one.size)].mean() for one in texts])


@dataclass(frozen=True)
class CalibratedGain:
    """The gain of a token that is expected if its text was not seen.

    Attributes:
        expected, log_variance: of the gain, and of its squared deviation in units of `scale`.
        frequencies: (v,) natural logs, of tokens in the texts fitted on.
        scale: the mean squared deviation.
    """

    expected: "Pipeline"
    log_variance: "Pipeline"
    frequencies: Floats
    scale: float

    @classmethod
    def fit(cls, target: TokenStatistics, base: TokenStatistics) -> "CalibratedGain":
        """Learn from statistics of unseen texts, or of all that are compared, both sides alike."""
        _validate.at_least(2, **{"texts to calibrate on": len(base.offsets) - 1})
        counts = np.append(np.bincount(base.tokens) + 1.0, 1.0)  # the last: tokens never read
        frequencies = np.log(counts / counts.sum())
        given, gains = _token_features(base, frequencies), _gains(target, base)
        expected = fit_mean(given, gains)
        squares = (gains - predicted(expected, given)) ** 2
        scale = max(float(squares.mean()), TINY)
        log_variance = fit_mean(given, np.log(squares / scale + LEAST_SQUARE))
        # The mean logarithm is below the logarithm of the mean.
        spread = np.exp(predicted(log_variance, given))
        scale = max(float((squares / spread).mean()), TINY)
        return cls(expected, log_variance, frequencies, scale)

    def token_scores(self, target: TokenStatistics, base: TokenStatistics) -> Floats:
        """(t,) standardized excess of each token's gain."""
        given = _token_features(base, self.frequencies)
        variance = self.scale * np.exp(predicted(self.log_variance, given))
        return np.asarray(self.excesses(target, base) / np.sqrt(variance), dtype=np.float64)

    def excesses(self, target: TokenStatistics, base: TokenStatistics) -> Floats:
        """(t,) excess of each token's gain, in nats.

        Better than the standardized one if a target hides tokens: the estimated gains of these vary
        little, and would have the most weight.
        """
        given = _token_features(base, self.frequencies)
        return np.asarray(_gains(target, base) - predicted(self.expected, given), dtype=np.float64)


@dataclass(frozen=True)
class Shadow:
    """A fine-tune whose training texts are known.

    Attributes:
        target: its statistics of n texts.
        base: the base's, of the same texts.
        seen: (n,) whether it saw each.
    """

    target: TokenStatistics
    base: TokenStatistics
    seen: NDArray[np.bool_]


@dataclass(frozen=True)
class WeightedGains:
    """Membership log-odds of texts from their gains.

    Attributes:
        weights: scikit-learn's fitted regression.
        over_shadows: whether gains over shadow models count: if both members and non-members have
            other shadow models that did not read them.
        shown: most probable tokens that the target shows; None: all.
    """

    weights: Any
    over_shadows: bool
    shown: int | None = None

    @classmethod
    def fit(cls, shadows: Sequence[Shadow], *, shown: int | None = None) -> "WeightedGains":
        """Learn from shadow models of the same texts; members and non-members weigh alike.

        Each read some of the texts, none of which is audited or compared. The target will show so
        many of the most probable tokens; None: all.
        """
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        log_probs = np.stack([one.target.log_probs for one in shadows])
        read = np.stack([one.seen for one in shadows])
        # A text that all other shadow models read has nothing to be compared with.
        compared = (~read).sum(0) - ~read > 0
        over_shadows = bool((read & compared).any() and (~read & compared).any())
        own = cls(None, over_shadows, shown)
        rows = []
        for place, one in enumerate(shadows):
            others = np.arange(len(shadows)) != place
            unread = (
                unread_means(log_probs[others], read[others], one.base) if over_shadows else None
            )
            rows.append(own._features(one.target, one.base, unread))
        used = compared if over_shadows else np.ones_like(read)
        regression = LogisticRegression(class_weight="balanced", max_iter=1000)
        weights = make_pipeline(StandardScaler(), regression).fit(np.stack(rows)[used], read[used])
        return replace(own, weights=weights)

    def scores(
        self, target: TokenStatistics, base: TokenStatistics, unread: ArrayLike | None = None
    ) -> Floats:
        """(n,) log-odds that each text was read.

        Args:
            target: statistics of n texts; tokens that are not shown are left out here.
            base: of the same texts.
            unread: (t,) mean log-probability of each token under shadow models that did not read
                its text (`unread_means`); None counts no gain over them.
        """
        features = self._features(target, base, unread)
        return np.asarray(self.weights.decision_function(features), dtype=np.float64)

    def _features(
        self, target: TokenStatistics, base: TokenStatistics, unread: ArrayLike | None
    ) -> Floats:
        """(n, 10) numbers of n texts, or five if no gain over shadow models counts."""
        if self.shown is not None:
            target = shown_only(target, base, likeliest=self.shown)
        over = [base]
        if self.over_shadows:
            known = base.log_probs if unread is None else unread
            over.append(replace(base, log_probs=np.asarray(known, dtype=np.float32)))
        return np.concatenate([_summaries(target, one) for one in over], axis=1)


def unread_means(log_probs: ArrayLike, read: ArrayLike, base: TokenStatistics) -> Floats:
    """(t,) mean log-probability of each token under the fine-tunes that did not read its text.

    Args:
        log_probs: (s, t) of s fine-tunes.
        read: (s, n) which of the n texts each read.
        base: of these texts; used if every fine-tune read a text.
    """
    values, seen = np.asarray(log_probs, dtype=np.float64), np.asarray(read, dtype=bool)
    unread = ~np.repeat(seen, np.diff(base.offsets), axis=1)
    count = unread.sum(0)
    mean = (values * unread).sum(0) / np.maximum(count, 1)
    return np.where(count > 0, mean, base.log_probs.astype(np.float64))


def _summaries(target: TokenStatistics, other: TokenStatistics) -> Floats:
    """(n, 5) of the gains over another model."""
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


def _token_features(base: TokenStatistics, frequencies: Floats) -> Floats:
    """(t, 6) what is known of each token without the target; frequencies are (v,)."""
    known = np.minimum(base.tokens, len(frequencies) - 1)
    place = np.arange(len(base.tokens)) - np.repeat(base.offsets[:-1], np.diff(base.offsets))
    columns = (
        base.log_probs,
        np.log(base.ranks),
        base.means,
        base.deviations,
        frequencies[known],
        np.log1p(place),
    )
    return np.stack(columns, axis=1).astype(np.float64)
