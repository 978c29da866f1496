"""The zlib score of texts, which needs their characters.

Carlini et al. (2021), "Extracting Training Data from Large Language Models", arXiv:2012.07805,
section 5.2.
"""

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts.scores.loss import loss
from vestige.models.token_statistics import TokenStatistics

Floats = NDArray[np.float64]


def zlib_score(target: TokenStatistics, texts: Sequence[str]) -> Floats:
    """Log-probability of a text for each byte that zlib leaves of it.

    Args:
        target: statistics of n texts.
        texts: the n texts themselves.

    Raises:
        ValueError: as many texts are needed as there are statistics of.
    """
    total = loss(target) * np.diff(target.offsets)
    if len(texts) != len(total):
        raise ValueError(f"texts must be {len(total)}, as there are statistics, got {len(texts)}")
    return np.asarray(total / [len(zlib.compress(one.encode())) for one in texts])
