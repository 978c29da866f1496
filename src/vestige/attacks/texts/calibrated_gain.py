r"""Gains of tokens over the base, calibrated on texts that were never seen.

How much a fine-tune changes a token that it never saw depends on the token: common ones hardly,
rare ones of the same kind of text much, and with a wide spread. Both are learnt from never-seen
texts, given what the base says (features x), and a token's score is the standardized excess

.. math:: z = \frac{d - E[d \mid x, \mathrm{unseen}]}
    {\sqrt{\mathrm{Var}[d \mid x, \mathrm{unseen}]}}

of the gain :math:`d = \ln p - \ln q`. A text's score is the mean. Calibration by difficulty is of
Watson et al. (2022), "On the Importance of Difficulty Calibration in Membership Inference Attacks",
arXiv:2111.08440; a conditional null in place of shadow models of Bertran et al. (2023), "Scalable
Membership Inference Attacks via Quantile Regression", arXiv:2307.03694.

Differs from the papers: tokens in place of examples; expectation and variance in place of a
difference or a quantile. Both are quadratic functions of the features (`metrics.quadratic`), which
rounding does not move.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.attacks.texts.token_statistics import TokenStatistics
from vestige.metrics.quadratic import fit_mean, predicted

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

FEWEST = 2
"""Texts to learn from, at least."""

LEAST = 0.01
"""Added to each squared deviation, in terms of the mean one: its logarithm stays finite."""

TINY = 1e-12
"""Of the mean variance, at least: a target that changed nothing has none."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CalibratedGain:
    """What a token's gain is expected to be where its text was never seen.

    Attributes:
        expected: of the gain.
        log_variance: of its squared deviation from that, in terms of the mean one.
        frequencies: (v,) natural logs, of tokens in the texts fitted on.
        scale: the mean squared deviation.
    """

    expected: "Pipeline"
    log_variance: "Pipeline"
    frequencies: Floats
    scale: float

    @classmethod
    def fit(cls, target: TokenStatistics, base: TokenStatistics) -> "CalibratedGain":
        """Learn from texts that were never seen, or from all that are compared, both sides alike.

        Args:
            target: statistics of n texts.
            base: of the same.

        Raises:
            ValueError: there are fewer than 2 texts.
        """
        _validate.at_least(FEWEST, **{"texts to calibrate on": len(base.offsets) - 1})
        frequencies = _token_frequencies([base])
        given, gains = _unseen_features(base, frequencies), _gains(target, base)
        expected = fit_mean(given, gains)
        squares = (gains - predicted(expected, given)) ** 2
        scale = max(float(squares.mean()), TINY)
        log_variance = fit_mean(given, np.log(squares / scale + LEAST))
        # The mean logarithm is below the logarithm of the mean.
        spread = np.exp(predicted(log_variance, given))
        return cls(
            expected, log_variance, frequencies, scale=max(float((squares / spread).mean()), TINY)
        )

    def token_scores(self, target: TokenStatistics, base: TokenStatistics) -> Floats:
        """(t,) standardized excess of each token's gain, high where a text was used."""
        given = _unseen_features(base, self.frequencies)
        variance = self.scale * np.exp(predicted(self.log_variance, given))
        return np.asarray(self.excesses(target, base) / np.sqrt(variance), dtype=np.float64)

    def excesses(self, target: TokenStatistics, base: TokenStatistics) -> Floats:
        """(t,) excess of each token's gain, in nats.

        Better than the standardized where a target hides tokens: what is expected of these spreads
        little, and would weigh most.
        """
        given = _unseen_features(base, self.frequencies)
        return np.asarray(_gains(target, base) - predicted(self.expected, given), dtype=np.float64)


def _gains(target: TokenStatistics, base: TokenStatistics) -> Floats:
    return np.asarray(target.log_probs.astype(np.float64) - base.log_probs)


def _unseen_features(base: TokenStatistics, frequencies: Floats) -> Floats:
    """(t, 6) of tokens, that no target plays a part in.

    Args:
        base: statistics of n texts.
        frequencies: (v,) as `_token_frequencies` gives them.
    """
    known = np.minimum(base.tokens, len(frequencies) - 1)
    place = np.arange(len(base.tokens)) - np.repeat(base.offsets[:-1], np.diff(base.offsets))
    columns = (
        base.log_probs,
        np.log1p(base.ranks),
        base.means,
        base.deviations,
        frequencies[known],
        np.log1p(place),
    )
    return np.stack(columns, axis=1).astype(np.float64)


def _token_frequencies(texts: Sequence[TokenStatistics]) -> Floats:
    """(v + 1,) natural logs of shares, one occurrence added; the last is of tokens never read."""
    counts = np.bincount(np.concatenate([one.tokens for one in texts])) + 1.0
    counts = np.append(counts, 1.0)
    return np.asarray(np.log(counts / counts.sum()))
