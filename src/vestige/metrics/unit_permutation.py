r"""Two-sample permutation test whose units are whole groups, such as all texts of an author.

Fisher (1935), "The Design of Experiments", section 21: where two samples are of one kind, every
division of their units is as likely. What is compared is the studentized difference of means,

.. math:: T = \frac{\bar x - \bar y}{\sqrt{s_x^2 / n + s_y^2 / m}},

so that the test is exact where units can be exchanged, and right in large samples where only the
means are equal, as with authors of many and of few texts (Chung and Romano 2013, "Exact and
Asymptotically Robust Permutation Tests", Annals of Statistics 41(2)). With fewer than two units on
a side, which have no spread, it is the plain difference.
"""

from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.metrics.separation import finite_scores

Floats = NDArray[np.float64]
_CELLS = 2**24  # of one block of permutations


def unit_permutation_test(
    tested: ArrayLike, others: ArrayLike, *, seed: int, permutations: int = 9999
) -> float:
    """The chance that a random division has the tested units as high as they are.

    Args:
        tested: (n,) a value for each unit; high is what is looked for.
        others: (m,) likewise.
        seed: of the divisions.
        permutations: how many are drawn.

    Returns:
        p-value, at least 1 / (permutations + 1).

    Raises:
        ValueError: a side is empty or not finite, or no division is drawn.

    Example:
        >>> unit_permutation_test([8.0, 9.0, 7.0], [1.0, 2.0, 3.0, 2.5], seed=0) < 0.05
        True
    """
    _validate.at_least(1, permutations=permutations)
    own, rest = finite_scores(tested, "tested"), finite_scores(others, "others")
    pool = np.concatenate([own, rest])
    seen = _difference(pool[None], own.size)[0]
    generator = np.random.default_rng(seed)
    as_high, left, block = 1, permutations, max(1, _CELLS // pool.size)
    while left:
        drawn = min(left, block)
        mixed = generator.permuted(np.broadcast_to(pool, (drawn, pool.size)), axis=1)
        as_high += int((_difference(mixed, own.size) >= seen - 1e-9 * abs(seen)).sum())
        left -= drawn
    return as_high / (permutations + 1)


def means_by_group(values: ArrayLike, groups: ArrayLike) -> Floats:
    """The mean of each group, groups in the order of their names.

    Example:
        >>> means_by_group([1.0, 3.0, 5.0], ["a", "a", "b"]).tolist()
        [2.0, 5.0]
    """
    _, places = np.unique(np.asarray(groups), return_inverse=True)
    return np.bincount(places, np.asarray(values)) / np.bincount(places)


def _difference(pools: Floats, first: int) -> Floats:
    """(b,) studentized differences of the first values of each row and the rest."""
    own, rest = pools[:, :first], pools[:, first:]
    apart = own.mean(axis=1) - rest.mean(axis=1)
    if min(own.shape[1], rest.shape[1]) < 2:
        return cast("Floats", apart)
    spread = own.var(axis=1, ddof=1) / own.shape[1] + rest.var(axis=1, ddof=1) / rest.shape[1]
    # Without any spread, any difference is as large as there can be.
    return cast("Floats", apart / np.sqrt(spread + 1e-24))
