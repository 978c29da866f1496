"""Gaussian noise that follows from a key, and from which nothing else of it follows.

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
        stream = Keystream(self._key, step, place)
        for begin in range(0, len(out), PIECE):
            piece = out[begin : begin + PIECE]
            words = np.empty((5, -(-len(piece) // 4)), np.int32)
            stream.fill(words)
            _normals(words, piece, deviation)

    def _on_device(self, out: Tensor, step: int, place: int, deviation: float) -> None:
        per_piece = PIECE // 4 * 5 // BLOCK
        for begin in range(0, len(out), PIECE * _SLAB):
            slab = out[begin : begin + PIECE * _SLAB]
            rest = len(slab) % PIECE
            words = device_words(
                self._key,
                step,
                place,
                blocks=range(
                    first := begin // PIECE * per_piece,
                    first + len(slab) // PIECE * per_piece + -(-(-(-rest // 4) * 5) // BLOCK),
                ),
                device=out.device,
            )
            whole = len(slab) - rest
            used = whole // 4 * 5
            if whole:
                drawn = device_normals(words[:used].view(-1, 5, PIECE // 4), deviation)
                slab[:whole] = drawn.flatten()
            if rest:
                last = words[used : used + -(-rest // 4) * 5].view(1, 5, -1)
                slab[whole:] = device_normals(last, deviation).flatten()[:rest]


def _normals(words: NDArray[np.int32], out: Floats, deviation: float) -> None:
    """(5, n) words to at most 4 n normals, one row of n after the other."""
    n = words.shape[1]
    scaled = np.empty_like(words, np.float32)
    product, other, share, *angles = scaled
    np.multiply(words[:2], np.float32(2.0**-31), out=scaled[:2], casting="unsafe")
    scaled[:2] += np.float32(2.0**-32)  # in (-1, 1), and never 0
    np.multiply(words[2], np.float32(2.0**-32), out=share, casting="unsafe")
    share += np.float32(0.5)
    np.multiply(words[3:], np.float32(_TURN), out=scaled[3:], casting="unsafe")
    product *= other
    np.abs(product, out=product)
    np.log(product, out=product)
    product *= np.float32(-2.0)
    share *= product
    np.subtract(product, share, out=product)
    trigonometric = np.empty(n, np.float32)
    for pair, (radius, angle) in enumerate(zip((share, product), angles, strict=True)):
        np.sqrt(radius, out=radius)
        radius *= np.float32(deviation)
        for half, function in enumerate((np.cos, np.sin)):
            row = out[(2 * pair + half) * n : (2 * pair + half + 1) * n]
            function(angle, out=trigonometric)
            np.multiply(radius[: len(row)], trigonometric[: len(row)], out=row)


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
