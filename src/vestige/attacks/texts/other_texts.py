"""Scores that ask the target of each text twice, or know its characters.

zlib and lower-case: Carlini et al. (2021), "Extracting Training Data from Large Language Models",
arXiv:2012.07805, section 5.2. ReCaLL: Xie et al. (2024), arXiv:2406.15968, equation 1.

These stand beside the registered scores, which need the statistics of one list of ids only.
"""

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts.scores.loss import loss
from vestige.attacks.texts.token_statistics import TokenStatistics

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


def lower_case(target: TokenStatistics, lower: TokenStatistics) -> Floats:
    """Loss of the texts in lower case over that of the texts: high where letters are remembered.

    Args:
        target: statistics of n texts.
        lower: of the same texts in lower case, under the same model.
    """
    return loss(lower) / np.minimum(loss(target), -np.finfo(np.float32).tiny)


def recall(target: TokenStatistics, after_prefix: TokenStatistics) -> Floats:
    """Loss after a prefix of never-seen texts, over the loss without it.

    Args:
        target: statistics of n texts.
        after_prefix: of the same tokens, each text behind the prefix; the prefix is not counted.
    """
    return loss(after_prefix) / np.minimum(loss(target), -np.finfo(np.float32).tiny)
