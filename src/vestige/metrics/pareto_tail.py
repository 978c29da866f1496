r"""A generalised Pareto tail of a sample, with its parameters' uncertainty carried.

Hosking and Wallis (1987), "Parameter and quantile estimation for the generalized Pareto
distribution", Technometrics 29(3): excesses over a high base have, with shape xi and scale sigma,

.. math:: P(X > x) = (1 + \xi x / \sigma)^{-1/\xi}, \quad
    \xi = 2 - \frac{a_0}{a_0 - 2 a_1}, \quad \sigma = \frac{2 a_0 a_1}{a_0 - 2 a_1}

by the probability-weighted moments a_0 = E[X] and a_1 = E[X P(X > x)].

Differs from the paper: a probability is the mean over parameters fitted to samples that the fit
itself draws (a parametric bootstrap), since few excesses say little about the shape. It remains an
extrapolation: nothing in the sample checks it beyond its largest value.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vestige import _validate

REFITS = 200
"""Samples of the fit, each fitted again."""


@dataclass(frozen=True)
class ParetoTail:
    """Generalised Pareto tails above a base.

    Attributes:
        base: the value that the excesses exceed.
        shapes: (REFITS,) xi of each refit; positive is heavier than exponential.
        scales: (REFITS,) sigma of each.
    """

    base: float
    shapes: tuple[float, ...]
    scales: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float], *, above: int) -> "ParetoTail":
        """The tail of the `above` largest of a sample.

        Args:
            values: finite, at least above + 1 of them, in any order.
            above: how many are fitted to, at least 2.

        Raises:
            ValueError: `above` is out of range, or a value used is not finite.
        """
        _validate.at_least(2, above=above)
        _validate.at_least(above + 1, values=len(values))
        ranked = np.sort(np.asarray(values, dtype=np.float64))[::-1]
        if not np.isfinite(ranked[: above + 1]).all():
            raise ValueError("values must be finite")
        base = float(ranked[above])
        shape, scale = _moments(ranked[None, :above] - base)
        uniform = np.random.default_rng(0).random((REFITS, above))
        drawn = scale * np.expm1(-shape * np.log1p(-uniform)) / shape
        shapes, scales = _moments(drawn)
        return cls(base, tuple(shapes.tolist()), tuple(scales.tolist()))

    def survival(self, value: float) -> float:
        """The probability that an excess goes beyond `value`, at least `base`; in [0, 1]."""
        if value <= self.base:
            return 1.0
        reach = 1 + np.array(self.shapes) * (value - self.base) / np.array(self.scales)
        beyond = np.zeros_like(reach)  # a negative shape ends somewhere
        inside = reach > 0
        beyond[inside] = reach[inside] ** (-1 / np.array(self.shapes)[inside])
        return math.fsum(beyond.tolist()) / len(beyond)


def _moments(excesses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(r, k) excesses -> (r,) shapes, never quite 0, and (r,) scales, positive."""
    k = excesses.shape[1]
    exceeded = 1 - (np.arange(1, k + 1) - 0.35) / k
    ordered = np.sort(excesses, axis=1)
    a0, a1 = ordered.mean(axis=1), (ordered * exceeded).mean(axis=1)
    tiny = np.finfo(np.float64).tiny
    denominator = np.maximum(a0 - 2 * a1, 1e-9 * a0 + tiny)
    shape = 2 - a0 / denominator
    shape = np.where(np.abs(shape) < 1e-6, 1e-6, shape)
    return shape, np.maximum(2 * a0 * a1 / denominator, tiny)
