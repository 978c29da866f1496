r"""Relative membership (Zarifzadeh, Liu and Shokri 2024, arXiv:2312.03262, equation 4, offline).

.. math:: S = \ln p(x \mid \mathrm{target}) - \ln \tfrac{1}{2}
    \left((1 + a)\, p(x \mid \mathrm{base}) + 1 - a\right)

p(x) is the mean probability of a token, geometric.

Differs from the paper: theirs is the share of population texts whose ratio is lower, which orders
texts as the ratio itself does; the base is the one reference model.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts.scores.loss import means
from vestige.attacks.texts.scores.registry import SCORES

if TYPE_CHECKING:
    from vestige.models.token_statistics import TokenStatistics

ADJUSTMENT = 0.3
"""The paper's a: how far a model that saw a text is from one that did not."""


@SCORES.register("rmia")
def rmia(target: "TokenStatistics", base: "TokenStatistics") -> NDArray[np.float64]:
    """Logarithm of the target's likelihood over the one expected of all models."""
    unseen = np.exp(means(base, base.log_probs))
    expected = ((1 + ADJUSTMENT) * unseen + 1 - ADJUSTMENT) / 2
    return np.asarray(means(target, target.log_probs) - np.log(expected), dtype=np.float64)
