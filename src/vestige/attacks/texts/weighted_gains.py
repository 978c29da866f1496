r"""Membership log-odds of a text, from its gains over the base and over shadow fine-tunes.

A fine-tune makes the texts that it read likelier than its base does, and other texts of their kind
as well. Shadows, fine-tunes of the same base on other texts of the kind, tell how much the kind
alone brings: over those that did not read a text, it gains only what reading it brought. Of the
gains d of a text's tokens, over the base and again over the mean of these shadows, count

.. math:: \overline d, \quad \text{the error zone}, \quad \overline{\tanh(d / 0.1)}, \quad
    \overline{\tanh(d / 0.5)}, \quad \overline{d / (\sigma + 0.3)},

:math:`\sigma` the deviation of log-probabilities under the base. A logistic regression learns from
the shadows, of which it is known what they read, how to weigh the ten numbers.

Reference models as a measure of how hard a text is: Watson et al. (2022), "On the Importance of
Difficulty Calibration in Membership Inference Attacks", arXiv:2111.08440; the error zone:
`scores.error_zone`. The combination is ours.

One rule for all: a text that is audited, or compared with, is fitted on by nobody, and no shadow
read it. Then audited texts that were never seen and those of the reference are exchangeable.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.attacks.texts.scores.error_zone import error_zone
from vestige.attacks.texts.scores.loss import means
from vestige.attacks.texts.shown_tokens import shown_only
from vestige.models.token_statistics import TokenStatistics

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shadow:
    """A fine-tune of which it is known what it saw.

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
    """Weights of a text's gains.

    Attributes:
        weights: scikit-learn's fitted regression.
        beside_shadows: whether gains over shadows count: where read and unread texts have shadows
            besides that did not read them.
        shown: of the target only so many likeliest tokens are known; None where all are.
    """

    weights: Any
    beside_shadows: bool
    shown: int | None = None

    @classmethod
    def fit(cls, shadows: Sequence[Shadow], *, shown: int | None = None) -> "WeightedGains":
        """Learn from shadows, each asked about the same texts; read and unread ones weigh alike.

        Args:
            shadows: all of whose tokens are known. None of their texts is audited or compared with.
            shown: the target will show so many likeliest tokens alone.

        Raises:
            ValueError: there is no shadow, they were asked about other texts, or one read all of
                them or none.
        """
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        _validate.at_least(1, shadows=len(shadows))
        tokens = shadows[0].base.tokens
        if any(not np.array_equal(one.base.tokens, tokens) for one in shadows):
            raise ValueError("shadows must all have the same texts in one order")
        if any(one.seen.all() or not one.seen.any() for one in shadows):
            raise ValueError("shadows must each have members and non-members among its texts")
        log_probs = np.stack([one.target.log_probs for one in shadows])
        read = np.stack([one.seen for one in shadows])
        # A text that all other shadows read has nothing to be compared with.
        compared = (~read).sum(0) - ~read > 0
        beside = bool((read & compared).any() and (~read & compared).any())
        own = cls(None, beside, shown)
        rows = []
        for place, one in enumerate(shadows):
            others = np.arange(len(shadows)) != place
            unread = unread_means(log_probs[others], read[others], one.base) if beside else None
            rows.append(own._gains(one.target, one.base, unread))
        taught = compared if beside else np.ones_like(read)
        gains = np.stack(rows)[taught]
        model = make_pipeline(
            StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000)
        )
        return replace(own, weights=model.fit(gains, read[taught]))

    def scores(
        self, target: TokenStatistics, base: TokenStatistics, unread: ArrayLike | None = None
    ) -> Floats:
        """(n,) log-odds that each text was read.

        Args:
            target: what it says of n texts, all of it: what is not shown is left out here.
            base: of the same texts.
            unread: (t,) mean log-probability of each token under shadows that did not read its
                text (`unread_means`); None counts no gain over them.
        """
        gains = self._gains(target, base, unread)
        return np.asarray(self.weights.decision_function(gains), dtype=np.float64)

    def _gains(
        self, target: TokenStatistics, base: TokenStatistics, unread: ArrayLike | None
    ) -> Floats:
        """(n, 10) numbers of n texts, or five where no gain over shadows counts."""
        if self.shown is not None:
            target = shown_only(target, base, likeliest=self.shown)
        over = [base]
        if self.beside_shadows:
            known = base.log_probs if unread is None else unread
            over.append(replace(base, log_probs=np.asarray(known, dtype=np.float32)))
        return np.concatenate([_gains_over(target, one) for one in over], axis=1)


def unread_means(log_probs: ArrayLike, read: ArrayLike, base: TokenStatistics) -> Floats:
    """(t,) mean log-probability of each token under the fine-tunes that did not read its text.

    Args:
        log_probs: (s, t) of s fine-tunes.
        read: (s, n) which of the n texts each read.
        base: of these texts; what it says stands where every fine-tune read a text.
    """
    told, known = np.asarray(log_probs, dtype=np.float64), np.asarray(read, dtype=bool)
    unread = ~np.repeat(known, np.diff(base.offsets), axis=1)
    count = unread.sum(0)
    mean = (told * unread).sum(0) / np.maximum(count, 1)
    return np.where(count > 0, mean, base.log_probs.astype(np.float64))


def _gains_over(target: TokenStatistics, other: TokenStatistics) -> Floats:
    """(n, 5) of the gains over another model."""
    gains = target.log_probs.astype(np.float64) - other.log_probs
    return np.stack(
        [
            means(target, gains),
            error_zone(target, other),
            means(target, np.tanh(gains / 0.1)),
            means(target, np.tanh(gains / 0.5)),
            means(target, gains / (other.deviations + 0.3)),
        ],
        axis=1,
    )
