"""Chance of some number of independent events, each with a probability of its own.

The Poisson-binomial distribution, by convolution of its events one after the other.
"""

from collections.abc import Sequence

import numpy as np

from vestige import _validate


def at_least(number: int, chances: Sequence[float]) -> float:
    """Probability that so many events happen, or more.

    Where a chance is the most that an event may have, so is the probability.

    Args:
        number: of events, 0 or more.
        chances: probability of each event.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> at_least(1, [0.5, 0.5])
        0.75
    """
    _validate.at_least(0, number=number)
    if not all(0 <= chance <= 1 for chance in chances):
        raise ValueError("chances must lie in [0, 1]")
    # counts[k]: probability of k events; the last of them stands for `number` and more.
    counts = np.zeros(number + 1)
    counts[0] = 1.0
    for chance in chances:
        moved = counts * chance
        counts -= moved
        counts[1:] += moved[:-1]
        counts[-1] += moved[-1]
    return float(min(counts[-1], 1.0))
