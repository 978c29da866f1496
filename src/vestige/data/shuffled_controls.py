"""A phrase's words in another order, as a control for memory of the order.

A model that learnt only which words are common treats a phrase and its shuffled control alike.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

_DRAWS = 100


def shuffled(tokens: Sequence[int]) -> tuple[int, ...] | None:
    """The tokens in another order that keeps as few of their neighbours as can be.

    Of a hundred drawn orders that one is taken which shares the fewest adjacent pairs with the
    original, and then one that begins with another token. The tokens are the seed: a phrase has
    the same control wherever and whenever it is asked for.

    Args:
        tokens: ids, none below 0.

    Returns:
        as many ids, or None where every order is the same: fewer than two different tokens.

    Example:
        >>> shuffled([4, 5]), shuffled([7, 7, 7])
        ((5, 4), None)
    """
    own = tuple(int(token) for token in tokens)
    if len(set(own)) < 2:
        return None
    generator = np.random.default_rng(own)
    neighbours = set(pairwise(own))

    def likeness(order: tuple[int, ...]) -> tuple[bool, int, bool]:
        shared = sum(pair in neighbours for pair in pairwise(order))
        return order == own, shared, order[0] == own[0]

    drawn = [tuple(own[i] for i in generator.permutation(len(own))) for _ in range(_DRAWS)]
    return min([*drawn, own[::-1], own[1:] + own[:1]], key=likeness)
