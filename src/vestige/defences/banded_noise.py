r"""Correlated noise: DP-FTRL by a banded matrix factorization.

A training moves by the sum of its noisy gradients. Where the noise of a step takes back some of the
noise of the steps before it, that sum has less of it. With C a lower triangular matrix with `bands`
diagonals, whose columns have norm 1, the noise of the steps is

.. math:: \hat Z = C^{-1} Z, \qquad Z_{tj} \sim N(0, \sigma^2)

and whoever sees the gradients X with it sees C X + Z as well: a unit that is read once contributes
as much as without C, and so does one that is read again `bands` steps later, since no row of C
reaches both. Units are sampled so that they are (`training.sequences.in_turn`), and what is spent
is that of DP-SGD with as many times fewer steps at a sample rate as many times higher:
Choquette-Choo et al. (2023), "(Amplified) Banded Matrix Factorization: A unified approach to
private training", Theorem 4. Gradients may depend on earlier noise: Denisov et al. (2022),
"Improved Differential Privacy for SGD via Optimal Private Linear Operators on Adaptive Streams".

C is the square root of the matrix of prefix sums, cut to its first diagonals: Kalinin and Lampert
(2024), "Banded Square Root Matrix Factorization for Differentially Private Model Training". Its
numbers have a closed form, and a step needs the noise of `bands` - 1 steps before it.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige import _validate
from vestige.defences.noise import GaussianNoise


def square_root_bands(bands: int) -> NDArray[np.float64]:
    r"""(bands,) the first column of C, of norm 1, from the diagonal down.

    In proportion to :math:`\binom{2k}{k} / 4^k`, the series of :math:`(1 - x)^{-1/2}`.

    Example:
        >>> (square_root_bands(3) / square_root_bands(3)[0]).round(9).tolist()
        [1.0, 0.5, 0.375]
    """
    _validate.at_least(1, bands=bands)
    k = np.arange(1, bands)
    column = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    return np.asarray(column / math.sqrt(float(column @ column)))


class BandedNoise:
    """Noise of a key, correlated over steps; with one band, that of `GaussianNoise`.

    What earlier steps added follows from the key, so that a training which is resumed draws it
    again, and no checkpoint holds any.

    Args:
        key: 32 bytes.
        bands: steps over which noise is correlated.
    """

    def __init__(self, key: bytes, bands: int = 1) -> None:
        self._independent = GaussianNoise(key)
        self._column = square_root_bands(bands).tolist()
        self._earlier: list[list[Tensor]] = []  # of the steps before the next one, latest first
        self._next = 0

    @torch.no_grad()
    def fill(self, tensors: Sequence[Tensor], *, step: int, deviation: float) -> None:
        """Overwrite tensors with the noise of a step.

        Args:
            tensors: contiguous, of any device and floating type; the same ones at every step.
            step: in [0, 2^64).
            deviation: of Z.
        """
        if len(self._column) == 1:
            self._independent.fill(tensors, step=step, deviation=deviation)
            return
        if step < self._next:
            self._earlier, self._next = [], 0
        while self._next <= step:
            self._advance(tensors)
        torch._foreach_copy_(list(tensors), self._earlier[0])
        torch._foreach_mul_(list(tensors), deviation)

    def _advance(self, like: Sequence[Tensor]) -> None:
        """Draw the next step's: z less what C puts on it of the steps before, over its diagonal."""
        drawn = [torch.empty_like(t, dtype=torch.float32) for t in like]
        self._independent.fill(drawn, step=self._next, deviation=1.0)
        diagonal, *below = self._column
        for factor, earlier in zip(below, self._earlier, strict=False):
            torch._foreach_add_(drawn, earlier, alpha=-factor)
        torch._foreach_div_(drawn, diagonal)
        self._earlier = [drawn, *self._earlier[: len(below) - 1]]
        self._next += 1
