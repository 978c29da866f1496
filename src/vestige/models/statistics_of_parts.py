"""Token statistics of some texts, of their first tokens, and of several sets of texts together."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import ArrayLike

from vestige.models.token_statistics import TokenStatistics

_BY_TOKEN = tuple(one.name for one in fields(TokenStatistics) if one.name != "offsets")


def first_tokens(
    statistics: TokenStatistics,
    places: ArrayLike,
    tokens: ArrayLike | None = None,
    *,
    skipped: int = 0,
) -> TokenStatistics:
    """What a model says of the first tokens of some texts; it had not read on.

    Args:
        statistics: of n texts.
        places: (k,) of the texts, in [0, n).
        tokens: how many of each at most, one number or (k,); None for all.
        skipped: tokens at the beginning of each that are left out, fewer than any has.
    """
    index = np.asarray(places, dtype=np.int64)
    starts, lengths = statistics.offsets[index], np.diff(statistics.offsets)[index]
    starts, lengths = starts + skipped, lengths - skipped
    if tokens is not None:
        lengths = np.minimum(lengths, tokens)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    read = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return TokenStatistics(
        offsets=offsets, **{name: getattr(statistics, name)[read] for name in _BY_TOKEN}
    )


def joined(parts: Sequence[TokenStatistics]) -> TokenStatistics:
    """The statistics of all texts of the parts, one part after the other."""
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    return TokenStatistics(
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _BY_TOKEN},
    )
