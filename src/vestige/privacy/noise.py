"""Gaussian noise from a key: reproducible with it, and no help in guessing the rest.

Noise of a private training is partly seen: embeddings of words that are in no batch move by their
noise alone. Out of a generator made for simulations (Mersenne Twister, or Philox with 64 bits of
seed) the rest could be computed from that, and subtracted. Here the uniforms are ChaCha20's
keystream (`training.keystream`) under a key of 256 bits; the nonce is the step and the tensor's
place, so that a training that is resumed needs key and step only. The same key gives the same
noise on every machine and device, up to rounding.

Four normals come from five words. With U1, U2, V uniform in (0, 1) and angles A, B in (-pi, pi),

    S = -2 ln(U1 U2),    (sqrt(V S) (cos A, sin A), sqrt((1 - V) S) (cos B, sin B))

since S is a chi-square of 4 degrees of freedom, and its share of the first pair, a Beta(1, 1), is
independent of it. That is Box and Muller (1958), "A Note on the Generation of Random Normal
Deviates", twice, for one logarithm.

What remains outside the guarantee: a word has 32 bits, a float's significand 24. Tails are right
within 2 % up to 6 deviations; at 7, once in 4e11 draws, a third is missing, and nothing is beyond
9.4. Values lie on a grid that depends on them: Mironov (2012), "On Significance of the Least
Significant Bits for Differential Privacy", shows that Laplace noise in floating point leaks through
such a grid, and no proof says that Gaussian noise does not; here its sum with a gradient is rounded
once more, and seen only after the optimizer has moved weights by it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.training.keystream import BLOCK, Keystream, device_words

PIECE = 1 << 16
"""Normals that are made at once: words and what becomes of them then stay in the cache."""
_SLAB = 1 << 8  # pieces at once on a device
_SMALL = 1 << 20  # normals below which a device is handed the CPU's: it would wait for launches
_TURN = math.pi / 2**31

Floats = NDArray[np.float32]


class GaussianNoise:
    """Normals of a key, step and tensor after tensor.

    Args:
        key: 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "GaussianNoise(...)"

    @torch.no_grad()
    def fill(self, tensors: Sequence[Tensor], *, step: int, deviation: float) -> None:
        """Overwrite tensors with independent noise of a deviation.

        Args:
            tensors: contiguous, of any device and floating type; drawn in float32.
            step: in [0, 2^64).
            deviation: at least 0.
        """
        for place, tensor in enumerate(tensors):
            flat = tensor.view(-1)
            if flat.device.type == "cpu" and flat.dtype == torch.float32:
                self._on_cpu(flat.numpy(), step, place, deviation)
            elif flat.device.type == "cpu" or len(flat) <= _SMALL:
                drawn = np.empty(len(flat), np.float32)
                self._on_cpu(drawn, step, place, deviation)
                flat.copy_(torch.from_numpy(drawn))
            else:
                self._on_device(flat, step, place, deviation)

    def _on_cpu(self, out: Floats, step: int, place: int, deviation: float) -> None:
        stream, scratch = Keystream(self._key, step, place), _Scratch.of(min(len(out), PIECE))
        for begin in range(0, len(out), PIECE):
            piece = out[begin : begin + PIECE]
            if len(piece) < min(len(out), PIECE):
                scratch = _Scratch.of(len(piece))
            stream.fill(scratch.words)
            _normals(scratch, piece, deviation)

    def _on_device(self, out: Tensor, step: int, place: int, deviation: float) -> None:
        for begin in range(0, len(out), PIECE * _SLAB):
            slab = out[begin : begin + PIECE * _SLAB]
            blocks = range(_words(begin) // BLOCK, -(-_words(begin + len(slab)) // BLOCK))
            words = device_words(self._key, step, place, blocks=blocks, device=out.device)
            whole = len(slab) // PIECE * PIECE
            if whole:
                pieces = words[: _words(whole)].view(-1, 5, PIECE // 4)
                slab[:whole] = device_normals(pieces, deviation).flatten()
            if whole < len(slab):
                last = words[_words(whole) : _words(len(slab))].view(1, 5, -1)
                slab[whole:] = device_normals(last, deviation).flatten()[: len(slab) - whole]


def _words(normals: int) -> int:
    """How many words normals are made of; a piece's are whole blocks."""
    return -(-normals // 4) * 5


@dataclass(frozen=True)
class _Scratch:
    """Memory for a piece, the same for all: fresh pages would cost as much as the normals.

    Attributes:
        words: (5, n).
        floats: (5, n).
        turned: (n,).
    """

    words: NDArray[np.int32]
    floats: Floats
    turned: Floats

    @classmethod
    def of(cls, normals: int) -> Self:
        n = -(-normals // 4)
        return cls(
            np.empty((5, n), np.int32), np.empty((5, n), np.float32), np.empty(n, np.float32)
        )


def _normals(scratch: _Scratch, out: Floats, deviation: float) -> None:
    """(5, n) words to at most 4 n normals, one row of n after the other."""
    words, floats = scratch.words, scratch.floats
    n = words.shape[1]
    product, other, share, *angles = floats
    _scaled(words[:2], 2.0**-31, floats[:2])
    floats[:2] += np.float32(2.0**-32)  # in (-1, 1), and never 0
    _scaled(words[2], 2.0**-32, share)
    share += np.float32(0.5)
    _scaled(words[3:], _TURN, floats[3:])
    product *= other
    np.abs(product, out=product)
    np.log(product, out=product)
    product *= np.float32(-2.0)
    share *= product
    np.subtract(product, share, out=product)
    for pair, (radius, angle) in enumerate(zip((share, product), angles, strict=True)):
        np.sqrt(radius, out=radius)
        radius *= np.float32(deviation)
        for half, function in enumerate((np.cos, np.sin)):
            row = out[(2 * pair + half) * n : (2 * pair + half + 1) * n]
            function(angle, out=scratch.turned)
            np.multiply(radius[: len(row)], scratch.turned[: len(row)], out=row)


def _scaled(words: NDArray[np.int32], by: float, out: Floats) -> None:
    """Words as floats, times a number; numpy would take the way through float64."""
    np.multiply(words, np.float32(by), out=out, dtype=np.float32, casting="unsafe")


def device_normals(words: Tensor, deviation: float) -> Tensor:
    """(k, 5, n) words to (k, 4, n) normals, as the CPU makes them."""
    u1, u2 = (words[:, place].float() * 2.0**-31 + 2.0**-32 for place in (0, 1))
    share = words[:, 2].float() * 2.0**-32 + 0.5
    first, second = (words[:, place].float() * _TURN for place in (3, 4))
    total = (u1 * u2).abs().log() * -2.0
    of_first = share * total
    one, two = (radius.sqrt() * deviation for radius in (of_first, total - of_first))
    return torch.stack(
        [one * first.cos(), one * first.sin(), two * second.cos(), two * second.sin()], 1
    )
