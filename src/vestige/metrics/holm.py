"""p-values of several tests, adjusted so that all of them together err at a level.

Holm (1979), "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of
Statistics 6(2). Nothing is assumed of how the tests depend on each other.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.metrics.separation import finite_scores


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted p-values: the tests at most `level` are those that Holm's procedure rejects at it.

    Args:
        p_values: (m,) in [0, 1], m at least 1.

    Example:
        >>> holm([0.01, 0.04, 0.03]).round(6).tolist()
        [0.03, 0.06, 0.06]
    """
    p = finite_scores(p_values, "p_values")
    order = p.argsort()
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
