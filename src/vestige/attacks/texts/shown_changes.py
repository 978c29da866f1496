r"""What the changes of the tokens that a target shows tell of those that it hides.

Training moves the hidden vector h of a place, and the logit of token v is :math:`w_v \cdot h`. So
tokens whose rows of the output layer are alike are raised together: with :math:`\Delta h` taken for
normal of one variance in every direction, the changes :math:`\delta_v` of log-probabilities covary
as :math:`w_u \cdot w_v`, plus what the normalization changes for all, and those of the shown tokens
predict that of a hidden one by Gaussian-process regression (kriging):

.. math:: \hat\delta_w = k_w^\top (K + \lambda I)^{-1} \delta_K

A token that was trained on in its place is so noticed while it is still hidden.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts.token_statistics import TokenStatistics

SHIFT = 25.0
"""Variance of what changes all tokens of a place alike, in terms of a token's own."""

NOISE = 0.1
"""Variance, likewise, of what the output layer does not explain."""

UNKNOWN = 1e4
"""Noise of a change that is not known, because the base does not tell of the token."""

BLOCK = 2000

Floats = NDArray[np.float64]


def shown_features(
    target: TokenStatistics, base: TokenStatistics, outputs: NDArray[np.float32] | None = None
) -> Floats:
    """What the shown tokens say of each place beside its own token.

    Args:
        target: statistics of n texts, t tokens, and of its k likeliest.
        base: of the same texts; the more likeliest it has, the more changes are known.
        outputs: (v, d) rows of the base's output layer; without them nothing is predicted.

    Returns:
        (t, 9): what is left beside the shown, under target and base, and the least shown, as
        natural logs; how far this is above the token under the base; divergence of the shown; the
        predicted change and its variance; the mean change of the token where it is shown but does
        not stand in the same text, and in how many places.
    """
    logs, own = target.likeliest_log_probs.astype(np.float64), base_of_shown(target, base)
    changes = logs - own
    left = log_rest(np.exp(logs).sum(1))
    predicted = _predicted(target, changes, outputs)
    elsewhere, places = _in_other_places(target, changes)
    columns = (
        left,
        log_rest(np.nansum(np.exp(own), 1)),
        logs[:, -1],
        logs[:, -1] - base.log_probs,
        np.nansum(np.exp(logs) * changes, 1),
        *predicted,
        elsewhere,
        places,
    )
    return np.stack(columns, axis=1)


def base_of_shown(target: TokenStatistics, base: TokenStatistics) -> Floats:
    """(t, k) log-probabilities under the base of the tokens shown; NaN where it does not tell."""
    found = np.full(target.likeliest.shape, np.nan)
    for part in _blocks(len(found)):
        same = target.likeliest[part, :, None] == base.likeliest[part, None, :]
        told = np.take_along_axis(base.likeliest_log_probs[part], same.argmax(2), 1)
        found[part] = np.where(same.any(2), told, np.nan)
    return found


def log_rest(mass: Floats) -> Floats:
    """Natural log of what a probability leaves, at least what rounding hides."""
    return np.asarray(np.log(np.maximum(1 - mass, 1e-6)))


def _predicted(
    target: TokenStatistics, changes: Floats, outputs: NDArray[np.float32] | None
) -> tuple[Floats, Floats]:
    """(t,) changes of the places' own tokens, predicted, and their variances."""
    found, spread = np.full((2, len(changes)), np.nan)
    if outputs is None:
        return found, spread
    rows = np.asarray(outputs - outputs.mean(0), dtype=np.float64)
    rows /= np.sqrt((rows**2).sum(1).mean())
    diagonal = np.arange(changes.shape[1])
    for part in _blocks(len(changes)):
        shown, own = rows[target.likeliest[part]], rows[target.tokens[part]]
        known = np.isfinite(changes[part])
        between = shown @ shown.transpose(0, 2, 1) + SHIFT
        between[:, diagonal, diagonal] += np.where(known, NOISE, UNKNOWN)
        to_own = (shown @ own[:, :, None]) + SHIFT
        weights = np.linalg.solve(between, to_own)[:, :, 0]
        found[part] = (weights * np.where(known, changes[part], 0.0)).sum(1)
        spread[part] = (own**2).sum(1) + SHIFT - (weights * to_own[:, :, 0]).sum(1)
    return found, spread


def _in_other_places(target: TokenStatistics, changes: Floats) -> tuple[Floats, Floats]:
    """(t,) mean change of each token in places of its text that show it and hold another."""
    text = np.repeat(np.arange(len(target.offsets) - 1), np.diff(target.offsets))
    size = 1 + max(int(target.tokens.max()), int(target.likeliest.max()))
    wanted, own = np.unique(text * size + target.tokens, return_inverse=True)
    shown = text[:, None] * size + target.likeliest
    place = np.minimum(np.searchsorted(wanted, shown), len(wanted) - 1)
    counted = (wanted[place] == shown) & np.isfinite(changes)
    counted &= target.likeliest != target.tokens[:, None]
    sums = np.bincount(place[counted], weights=changes[counted], minlength=len(wanted))
    places = np.bincount(place[counted], minlength=len(wanted)).astype(np.float64)
    return (sums / (places + 1))[own], places[own]  # one place without change is added


def _blocks(size: int) -> Iterator[slice]:
    return (slice(first, first + BLOCK) for first in range(0, size, BLOCK))
