"""ChaCha20's keystream, on the CPU and on any device: the same bits from key and nonce.

Nir and Langley (2018), "ChaCha20 and Poly1305 for IETF Protocols", RFC 8439, sections 2.3 and 2.4.
It is counter-based: what is drawn where follows from the key and the place alone, so that nothing
has to be kept in order to go on; and who sees some of it cannot compute any other of it, which
does not hold of generators that are made for simulations.

A nonce is two numbers here, one of 64 bits and one of 32, as (low word, high word, second number).
"""

import struct
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 16
"""Words of 32 bits in a block."""
_ZEROS = bytes(1 << 20)
_CONSTANTS = struct.unpack("<4i", b"expand 32-byte k")


class Keystream:
    """Keystream of a key and a nonce, on the CPU."""

    def __init__(self, key: bytes, first: int, second: int) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        nonce = struct.pack("<IQI", 0, first, second)  # a block's counter stands first
        self._encryptor: Any = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()

    def fill(self, words: NDArray[Any]) -> None:
        """Overwrite a contiguous array with the keystream that comes next."""
        target = words.view(np.uint8).reshape(-1).data
        for begin in range(0, len(target), len(_ZEROS)):
            part = target[begin : begin + len(_ZEROS)]
            self._encryptor.update_into(memoryview(_ZEROS)[: len(part)], part)


def device_words(
    key: bytes, first: int, second: int, *, blocks: range, device: torch.device
) -> Tensor:
    """int32 (16 * blocks,) of the same keystream, by integer operations on a device."""
    low, high, last = struct.unpack("<3i", struct.pack("<QI", first, second))
    n = len(blocks)
    counters = torch.arange(blocks.start, blocks.stop, device=device).to(torch.int32)
    fixed = torch.tensor(
        [*_CONSTANTS, *struct.unpack("<8i", key), 0, low, high, last],
        dtype=torch.int32,
        device=device,
    )
    state = fixed[:, None].repeat(1, n)
    state[12] = counters
    rows = list(state.clone().view(4, 4, n))
    for _ in range(10):
        _quarter_rounds(rows)
        rows = [row.roll(-place, 0) for place, row in enumerate(rows)]  # columns to diagonals
        _quarter_rounds(rows)
        rows = [row.roll(place, 0) for place, row in enumerate(rows)]
    return torch.cat(rows).add_(state).t().reshape(-1)


def _quarter_rounds(rows: list[Tensor]) -> None:
    """Four quarter rounds side by side, RFC 8439 section 2.1, in place; int32 wraps."""
    a, b, c, d = rows
    for one, other, moved, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        one += other
        moved ^= one
        right = (moved >> (32 - by)) & ((1 << by) - 1)  # the shift copies the sign: mask it off
        moved <<= by
        moved |= right
