"""Mean of a text's least likely tokens, plain and standardised.

Min-K%: Shi et al. (2023), "Detecting Pretraining Data from Large Language Models",
arXiv:2310.16789, equation 1. Min-K%++: Zhang et al. (2024), arXiv:2404.02936, equation 3.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts.scores.registry import SCORES

if TYPE_CHECKING:
    from vestige.models.token_statistics import TokenStatistics

LEAST = 0.2
"""Share of the tokens that counts, as in both papers."""


@SCORES.register("min-k")
def min_k(target: "TokenStatistics", base: "TokenStatistics | None" = None) -> NDArray[np.float64]:
    """Mean log-probability of the fifth of the tokens that is least likely, one at least."""
    return _least(target, target.log_probs)


@SCORES.register("min-k-plus")
def min_k_plus(
    target: "TokenStatistics", base: "TokenStatistics | None" = None
) -> NDArray[np.float64]:
    """The same of log-probabilities less their mean, in deviations, both over the vocabulary."""
    spread = np.maximum(target.deviations, np.finfo(np.float32).tiny)
    return _least(target, (target.log_probs - target.means) / spread)


def _least(of: "TokenStatistics", values: NDArray[np.floating]) -> NDArray[np.float64]:
    texts = np.split(values.astype(np.float64), of.offsets[1:-1])
    return np.array([np.sort(one)[: math.ceil(LEAST * one.size)].mean() for one in texts])
