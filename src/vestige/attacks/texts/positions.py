r"""Values of tokens or passages, compared at the same position of a text.

Later tokens are easier to predict than earlier ones, so the mean of a short text is not comparable
with that of a long one. From each value the mean at its position is subtracted,

.. math:: r_{it} = x_{it} - \frac{\sum_j w_j x_{jt}}{\sum_j w_j},

over all texts j that reach position t, audited and reference alike, each independent unit with the
same weight. A text counts with the mean of its r. The subtracted means do not depend on which text
is on which side, so a permutation test of units is exact as before.

Positions that fewer than `FEWEST` units of either side reach are left out.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.claims.duplicates import FEWEST

Floats = NDArray[np.float64]


def common_length(lengths: ArrayLike, units: ArrayLike, audited: int) -> int:
    """Positions that enough units of both sides reach.

    Args:
        lengths: (n,) values of each text, the audited texts first.
        units: (n,) the independent unit of each.
        audited: how many of the texts are audited; the rest are the reference.

    Example:
        >>> common_length([9] * 8 + [3] * 8, range(16), 8)
        3
    """
    sizes, owners = np.asarray(lengths, dtype=np.int64), np.asarray(units)
    reached = []
    for side in (slice(audited), slice(audited, None)):
        _, unit = np.unique(owners[side], return_inverse=True)
        longest = np.zeros(unit.max(initial=-1) + 1, dtype=np.int64)
        np.maximum.at(longest, unit, sizes[side])
        ordered = np.sort(longest)[::-1]
        reached.append(int(ordered[min(FEWEST, ordered.size) - 1]) if ordered.size else 0)
    return min(reached)


def above_position_mean(
    values: ArrayLike, lengths: ArrayLike, units: ArrayLike, *, cut: int
) -> Floats:
    """(n,) mean of each text's values less the means at their positions; NaN without a value.

    Args:
        values: (t,) of all texts, one text after the other.
        lengths: (n,) values of each text.
        units: (n,) the independent unit of each.
        cut: positions that are compared, as of `common_length`.

    Example:
        >>> above_position_mean([1, 5, 3], [2, 1], [0, 1], cut=2).tolist()
        [-0.5, 1.0]
    """
    own, sizes = np.asarray(values, dtype=np.float64), np.asarray(lengths, dtype=np.int64)
    _, unit = np.unique(np.asarray(units), return_inverse=True)
    weights = 1 / np.bincount(unit)[unit]
    text = np.repeat(np.arange(sizes.size), sizes)
    position = np.arange(own.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    used = position < cut
    own, text, position = own[used], text[used], position[used]
    means = np.bincount(position, weights[text] * own) / np.bincount(position, weights[text])
    counts = np.bincount(text, minlength=sizes.size).astype(np.float64)
    counts[counts == 0] = np.nan
    found: Floats = np.bincount(text, own - means[position], minlength=sizes.size) / counts
    return found
