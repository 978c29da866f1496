r"""What a target that shows only its likeliest tokens is expected to say of the others.

The shown leave the mass :math:`1 - \sum_{v \in K} p(v)`, and the base says how it is divided:

.. math:: \ln \hat p(w) = \ln \Big(1 - \sum_{v \in K} p(v)\Big) + \ln q(w)
    - \ln \Big(1 - \sum_{v \in K} q(v)\Big)

for a token w that is not among the k shown, K; no more than the least likely of them. Of q, the
base, the k likeliest are known, and what K has besides is left out.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vestige.models.token_statistics import TokenStatistics

BASE_LIKELIEST = 100
"""Of the base so many of the likeliest are worth asking for: what it says of those shown."""

LEAST = 1e-6
"""Mass that is left at least: what rounding hides."""


def shown_only(
    target: TokenStatistics, base: TokenStatistics, *, likeliest: int
) -> TokenStatistics:
    """Statistics as of a target that showed its likeliest tokens alone, the others expected.

    Args:
        target: statistics of n texts, of as many likeliest tokens or more.
        base: of the same texts.
        likeliest: k, the tokens shown.

    Returns:
        the target's, with expected log-probabilities of tokens that are not shown and rank k for
        each of them; means and deviations are unknown, NaN.

    Raises:
        ValueError: the target has fewer of the likeliest tokens.
    """
    known = target.likeliest.shape[1]
    if not 1 <= likeliest <= known:
        raise ValueError(f"likeliest must be in [1, {known}], got {likeliest}")
    unknown = np.full_like(target.means, np.nan)
    hidden = (target.ranks >= likeliest) & np.isfinite(target.likeliest_log_probs[:, 0])
    shown = replace(
        target,
        log_probs=np.where(hidden, np.nan, target.log_probs).astype(np.float32),
        ranks=np.minimum(target.ranks, likeliest).astype(np.int32),
        means=unknown,
        deviations=unknown,
        likeliest=target.likeliest[:, :likeliest],
        likeliest_log_probs=target.likeliest_log_probs[:, :likeliest],
    )
    return with_expected(shown, base)


def with_expected(target: TokenStatistics, base: TokenStatistics) -> TokenStatistics:
    """Statistics with an expected log-probability where it is NaN and likeliest tokens are shown.

    Args:
        target: of n texts; a column of the likeliest is NaN where fewer are shown.
        base: of the same texts, all of its tokens.
    """
    hidden = np.isnan(target.log_probs) & ~np.isnan(target.likeliest_log_probs).all(1)
    ids, logs = target.likeliest[hidden], target.likeliest_log_probs[hidden].astype(np.float64)
    same = ids[:, :, None] == base.likeliest[hidden][:, None, :]
    taken = (same.any(1) * np.exp(base.likeliest_log_probs[hidden].astype(np.float64))).sum(1)
    divided = base.log_probs[hidden] - _log_rest(taken)
    rest = _log_rest(np.nansum(np.exp(logs), axis=1))
    log_probs = target.log_probs.copy()
    log_probs[hidden] = np.minimum(rest + divided, np.nanmin(logs, axis=1, initial=0.0))
    return replace(target, log_probs=log_probs)


def _log_rest(mass: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.log(np.maximum(1 - mass, LEAST)))
