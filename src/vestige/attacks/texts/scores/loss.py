"""Mean log-probability of a text's tokens (Yeom et al. 2018, section 3.1)."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts.scores.registry import SCORES

if TYPE_CHECKING:
    from vestige.models.token_statistics import TokenStatistics


@SCORES.register("loss")
def loss(target: "TokenStatistics", base: "TokenStatistics | None" = None) -> NDArray[np.float64]:
    """Mean log-probability under the target, natural."""
    return means(target, target.log_probs)


def means(of: "TokenStatistics", values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Mean of values (t,) over each text's tokens."""
    sums = np.add.reduceat(values.astype(np.float64), of.offsets[:-1])
    return np.asarray(sums / np.diff(of.offsets), dtype=np.float64)
