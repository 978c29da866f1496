r"""Conformal p-values for membership, and the false-discovery rate among many of them.

A conformal p-value compares one score with those of known non-members (Vovk, Gammerman and Shafer
2005, "Algorithmic Learning in a Random World", section 2.2):

.. math:: p = \frac{1 + \#\{i : c_i \ge s\}}{n + 1}

If the tested user is a non-member exchangeable with the others, P(p <= alpha) <= alpha. Many
p-values against one set of others are positively dependent, and the Benjamini-Hochberg procedure
still bounds the false-discovery rate (Bates, Candès, Lei, Romano and Sesia 2023, "Testing for
Outliers with Conformal p-values", Annals of Statistics 51, theorem 2). The theorem does not cover
p-values against different sets, such as those who have as much text as each user:
`benchmarks/claims_of_users.py` measures the rate there.
"""

import math
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from vestige import _validate
from vestige.metrics.separation import finite_scores

Floats = NDArray[np.float64]


def conformal_p_values(
    scores: ArrayLike, calibration: ArrayLike, *, seed: int | None = None
) -> Floats:
    """A p-value for each score: small where few of the calibration scores reach it.

    Args:
        scores: (m,) finite, high for members.
        calibration: (n,) finite scores of non-members who had no part in fitting the score.
        seed: break ties at random, and spread each p-value over its step of 1 / (n + 1): exactly
            uniform under the null, for tests of that. None: never too small, and deterministic.

    Returns:
        (m,) in (0, 1]; without a seed at least 1 / (n + 1).

    Raises:
        ValueError: an argument is empty or not finite.

    Example:
        >>> conformal_p_values([2.5, 0.0], [0.0, 1.0, 2.0, 3.0]).tolist()
        [0.4, 1.0]
    """
    asked = finite_scores(scores, "scores")
    known = np.sort(finite_scores(calibration, "calibration"))
    reached = known.size - np.searchsorted(known, asked, side="left")
    if seed is None:
        return cast("Floats", (1.0 + reached) / (known.size + 1.0))
    above = known.size - np.searchsorted(known, asked, side="right")
    uniform = 1.0 - np.random.default_rng(seed).random(asked.size)
    return (above + uniform * (1.0 + reached - above)) / (known.size + 1.0)


def benjamini_hochberg(p_values: ArrayLike, rate: float) -> NDArray[np.bool_]:
    """Users to flag as members at a false-discovery rate of at most `rate`.

    Benjamini and Hochberg (1995), "Controlling the False Discovery Rate".

    Args:
        p_values: (m,) in [0, 1].
        rate: the false-discovery rate, in (0, 1).

    Returns:
        (m,) True for users flagged.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> benjamini_hochberg([0.01, 0.5, 0.02, 0.9], 0.05).tolist()
        [True, False, True, False]
    """
    values = finite_scores(p_values, "p_values")
    if values.min() < 0 or values.max() > 1:
        raise ValueError(f"p_values must lie in [0, 1], got {values.min()} to {values.max()}")
    _validate.open_fraction(rate=rate)
    ordered = np.sort(values)
    passed = np.flatnonzero(ordered <= rate * np.arange(1, values.size + 1) / values.size)
    if not passed.size:
        return np.zeros(values.size, dtype=bool)
    return cast("NDArray[np.bool_]", values <= ordered[passed[-1]])


def calibration_needed(rate: float, *, tested: int = 1) -> int:
    """Number of calibration users needed before any of `tested` users can be flagged.

    The least p-value is 1 / (n + 1), and Benjamini-Hochberg calls a single one of m at rate / m.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> calibration_needed(0.05), calibration_needed(0.05, tested=10)
        (19, 199)
    """
    _validate.open_fraction(rate=rate)
    _validate.at_least(1, tested=tested)
    return math.ceil(tested / rate - 1e-9) - 1


def most_by_chance(
    rate: float, *, calibration: int, tested: int, confidence: float = 0.975
) -> float:
    r"""Upper quantile of the share of non-members whose p-value is at or below a rate.

    All are measured against the same calibration set, and one that lies low by chance brings many
    down together. With n calibration scores the number of m is beta-binomial,

    .. math:: X \sim \mathrm{BetaBinomial}(m, a, n + 1 - a), \quad
        a = \lfloor \mathrm{rate} \, (n + 1) \rfloor

    Args:
        rate: in (0, 1).
        calibration: n, number of non-members.
        tested: m, p-values against them.
        confidence: how often the share is at most what is returned, at least; in (0, 1).

    Returns:
        A fraction of m; 0 where n is so small that no p-value can be at or below the rate.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> most_by_chance(0.05, calibration=100, tested=200)
        0.11
    """
    _validate.open_fraction(rate=rate, confidence=confidence)
    _validate.at_least(1, calibration=calibration, tested=tested)
    below = math.floor(rate * (calibration + 1) + 1e-9)
    if below == 0:
        return 0.0
    return float(stats.betabinom.ppf(confidence, tested, below, calibration + 1 - below)) / tested
