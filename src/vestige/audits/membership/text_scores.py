r"""Scores of texts from per-token statistics; always higher for members.

With p the target's and q the base's probability of a token, and d = ln p - ln q its gain:

loss        mean of ln p (Yeom et al. 2018, section 3.1)
log-ratio   mean of d (Carlini et al. 2021, arXiv:2012.07805, section 5.2)
zlib        ln p of the text per byte that zlib leaves of it (the same)
min-k       mean of the least fifth of ln p (Shi et al. 2023, arXiv:2310.16789, equation 1)
min-k-plus  the same, standardized over the vocabulary (Zhang et al. 2024, arXiv:2404.02936,
            equation 3)
rmia        relative membership (Zarifzadeh, Liu and Shokri 2024, arXiv:2312.03262, equation 4,
            offline): ln p - ln(((1 + a) q + 1 - a) / 2) of the geometric means
error-zone  gains over losses where the target's first choice is wrong (EZ-MIA: JetBrains Research
            2026, `mia/ez_score.py` of their repository)

Differs from the papers: rmia is the ratio, not the share of population texts whose ratio is lower,
which orders texts alike, and the base is its one reference model. error-zone is a logarithm, which
orders alike, with epsilon where theirs is 0, and a text with fewer than two such tokens is scored
over all of its tokens: theirs gives the lowest score to texts without losses, the best known of
all, and to those without such tokens.

`learned_scores` has the scores that are learned first: calibrated and learned.
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.models.token_statistics import TokenStatistics

Floats = NDArray[np.float64]
Score = Callable[..., Floats]
"""Of keywords `target` and, if it needs one, `base`: statistics of the same n texts; gives (n,)."""

LEAST = 0.2
"""Share of the tokens that min-k counts, as in both papers."""

ADJUSTMENT = 0.3
"""rmia's a: how far a model that saw a text is from one that did not, as in the paper."""

EPSILON = 0.01
"""Nats added to gains and losses."""

FEWEST = 2
"""Tokens where the first choice is wrong, at least."""


def means(of: TokenStatistics, values: NDArray[np.floating[Any]]) -> Floats:
    """(n,) mean of values (t,) over each text's tokens."""
    sums = np.add.reduceat(values.astype(np.float64), of.offsets[:-1])
    return np.asarray(sums / np.diff(of.offsets), dtype=np.float64)


def loss(target: TokenStatistics, base: TokenStatistics | None = None) -> Floats:
    """Mean log-probability."""
    return means(target, target.log_probs)


def log_ratio(target: TokenStatistics, base: TokenStatistics) -> Floats:
    """Mean gain over the base."""
    return means(target, target.log_probs - base.log_probs)


def min_k(target: TokenStatistics, base: TokenStatistics | None = None) -> Floats:
    """Mean log-probability of the least probable fifth of the tokens."""
    return _least(target, target.log_probs)


def min_k_plus(target: TokenStatistics, base: TokenStatistics | None = None) -> Floats:
    """The same of standardized log-probabilities."""
    spread = np.maximum(target.deviations, np.finfo(np.float32).tiny)
    return _least(target, (target.log_probs - target.means) / spread)


def rmia(target: TokenStatistics, base: TokenStatistics) -> Floats:
    """Logarithm of the target's likelihood over the one expected of all models."""
    unseen = np.exp(means(base, base.log_probs))
    expected = ((1 + ADJUSTMENT) * unseen + 1 - ADJUSTMENT) / 2
    return np.asarray(loss(target) - np.log(expected), dtype=np.float64)


def error_zone(target: TokenStatistics, base: TokenStatistics) -> Floats:
    """Logarithm of gains over losses among tokens that are not the target's first choice."""
    change = target.log_probs.astype(np.float64) - base.log_probs
    wrong, first = target.ranks > 1, target.offsets[:-1]
    few = np.add.reduceat(wrong.astype(np.int64), first) < FEWEST
    counted = np.where(wrong | np.repeat(few, np.diff(target.offsets)), change, 0.0)
    gains, losses = (np.add.reduceat(np.maximum(one, 0.0), first) for one in (counted, -counted))
    return np.asarray(np.log((gains + EPSILON) / (losses + EPSILON)), dtype=np.float64)


def zlib_score(target: TokenStatistics, texts: Sequence[str]) -> Floats:
    """Log-probability of a text for each byte that zlib leaves of it; `texts` are the n texts."""
    total = loss(target) * np.diff(target.offsets)
    return np.asarray(total / [len(zlib.compress(one.encode())) for one in texts])


SCORES: Mapping[str, Score] = {
    "error-zone": error_zone,
    "log-ratio": log_ratio,
    "loss": loss,
    "min-k": min_k,
    "min-k-plus": min_k_plus,
    "rmia": rmia,
}
"""Scores that are a function of one pass, by name."""

OF_BASE = ("error-zone", "log-ratio", "rmia", "calibrated", "learned")
"""Scores that need a base."""

SERVED = ("error-zone", "learned", "log-ratio", "loss")
"""Scores of what a server shows: log-probabilities, and whether a token is the first choice."""

NAMES = tuple(sorted((*SCORES, "calibrated", "learned", "zlib")))


def _least(of: TokenStatistics, values: NDArray[np.floating[Any]]) -> Floats:
    texts = np.split(values.astype(np.float64), of.offsets[1:-1])
    return np.array([np.sort(one)[: math.ceil(LEAST * one.size)].mean() for one in texts])
