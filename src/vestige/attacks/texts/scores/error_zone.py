r"""Gains against losses to the base, where the target's first choice is wrong.

EZ-MIA (JetBrains Research 2026, `mia/ez_score.py` of their repository): with d the log-probability
of a token under the target less that under the base, over tokens that are not the target's first
choice,

.. math:: S = \ln \frac{\sum \max(d, 0) + \epsilon}{\sum \max(-d, 0) + \epsilon}

Differs from the paper: the logarithm, which orders alike; epsilon, where theirs is 0 and a text
without losses, the best known of all, has the lowest score; and a text with fewer than two such
tokens is scored over all of its tokens, where theirs has the lowest score as well.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts.scores.registry import SCORES

if TYPE_CHECKING:
    from vestige.models.token_statistics import TokenStatistics

EPSILON = 0.01
"""Nats added to gains and losses."""

FEWEST = 2
"""Tokens of the zone, at least."""


@SCORES.register("error-zone")
def error_zone(target: "TokenStatistics", base: "TokenStatistics") -> NDArray[np.float64]:
    """Logarithm of gains over losses among tokens that are not the target's first choice."""
    change = target.log_probs.astype(np.float64) - base.log_probs
    wrong, first = target.ranks > 0, target.offsets[:-1]
    few = np.add.reduceat(wrong.astype(np.int64), first) < FEWEST
    counted = np.where(wrong | np.repeat(few, np.diff(target.offsets)), change, 0.0)
    gains, losses = (np.add.reduceat(np.maximum(one, 0.0), first) for one in (counted, -counted))
    return np.asarray(np.log((gains + EPSILON) / (losses + EPSILON)), dtype=np.float64)
