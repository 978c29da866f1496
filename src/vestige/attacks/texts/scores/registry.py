"""Registry of scores: functions of token statistics by model, (n,) of n texts."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vestige.registry import Registry

Score = Callable[..., NDArray[np.float64]]
"""Of keywords `target` and, where it needs them, `base`: statistics of the same texts."""

SCORES: Registry[Score] = Registry("score", package="vestige.attacks.texts.scores")
