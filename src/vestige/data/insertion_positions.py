"""Random positions of canary copies among the documents of a corpus."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MOST = 10**6
"""Copies of all canaries together."""


def scatter(
    size: int, copies: Sequence[int], generator: np.random.Generator
) -> tuple[NDArray[np.int64], tuple[tuple[int, ...], ...]]:
    """Random places for copies among documents, every set of places alike.

    Args:
        size: number of documents.
        copies: (k,) how many copies of each canary go among them.
        generator: decides the places.

    Returns:
        (order, places): with the k canaries behind the documents, taking them in `order` puts
        every copy in its place and keeps the order of the documents; `places` says for each
        canary where its copies then stand.

    Raises:
        ValueError: more than `MOST` copies in all.

    Example:
        >>> order, places = scatter(2, [1], np.random.default_rng(0))
        >>> order, places
        (array([0, 1, 2]), ((2,),))
    """
    if sum(copies) > MOST:
        raise ValueError(f"`copies` must be at most {MOST:,} in all, got {sum(copies):,}")
    owner = np.repeat(np.arange(len(copies)), copies)
    total = size + owner.size
    drawn = generator.choice(total, size=owner.size, replace=False)
    order = np.empty(total, dtype=np.int64)
    is_copy = np.zeros(total, dtype=bool)
    is_copy[drawn] = True
    order[~is_copy] = np.arange(size)
    order[drawn] = size + owner
    places = (tuple(sorted(drawn[owner == index].tolist())) for index in range(len(copies)))
    return order, tuple(places)
