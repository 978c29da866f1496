"""Mean log-ratio of target and base (Carlini et al. 2021, arXiv:2012.07805, section 5.2)."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts.scores.loss import means
from vestige.attacks.texts.scores.registry import SCORES

if TYPE_CHECKING:
    from vestige.models.token_statistics import TokenStatistics


@SCORES.register("log-ratio")
def log_ratio(target: "TokenStatistics", base: "TokenStatistics") -> NDArray[np.float64]:
    """Mean of log-probability under the target less that under the base, natural."""
    return means(target, target.log_probs - base.log_probs)
