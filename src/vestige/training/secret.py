"""Randomness of private trainings, from a secret key.

A guarantee of differential privacy needs noise and samples that nobody knows: anyone who can
repeat them (a public seed; a seed of 32 bits, which can be tried out; a generator whose other draws
are seen, as initial weights are) subtracts the noise and sees who was sampled. So everything that a
private training draws after its initial weights follows from 256 bits of the operating system's
entropy, through keys that BLAKE2 derives from them (Aumasson et al. 2013, "BLAKE2: simpler,
smaller, fast as MD5", section 2.8, used as a pseudo-random function): "noise", "sampling" for
Poisson sampling, "masks" for dropout and local orders (`privacy.masks`), and "step" for whatever
else a step draws. Keys of different names or numbers say nothing about one another.

What remains outside: dropout masks come from a hash of 64 bits, local orders from torch's own
generators, the CPU's Mersenne Twister with all of its state filled anew, an accelerator's Philox
with 64 bits. None is a cryptographic generator; what they draw is never released.

The keystream is ChaCha20's: Nir and Langley (2018), "ChaCha20 and Poly1305 for IETF Protocols", RFC
8439, sections 2.3 and 2.4. It is counter-based: each draw follows from key and position alone,
and some of it does not help to compute any other. A nonce is two numbers here, one of 64 bits and
one of 32, as (low word, high word, second number).
"""

import hashlib
import hmac
import secrets
import struct
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BYTES = 32
BLOCK = 16
"""Words of 32 bits in a block of the keystream."""
_WORDS = 624  # of MT19937's state
_ZEROS = bytes(1 << 20)
_CONSTANTS = struct.unpack("<4i", b"expand 32-byte k")


class Secret:
    """Secret key of 256 bits, hidden in repr and str."""

    __slots__ = ("_material",)

    def __init__(self, material: bytes) -> None:
        if len(material) != BYTES:
            raise ValueError(f"material must be {BYTES} bytes, got {len(material)}")
        self._material = bytes(material)

    @classmethod
    def fresh(cls) -> Self:
        """Secret from the operating system's entropy."""
        return cls(secrets.token_bytes(BYTES))

    @classmethod
    def of_seed(cls, seed: int) -> Self:
        """Secret from a seed, for tests only: it voids the guarantee."""
        return cls(hashlib.blake2b(f"no guarantee {seed}".encode(), digest_size=BYTES).digest())

    def key(self, name: str, *numbers: int) -> bytes:
        """32 bytes that depend on the secret, the name and the numbers.

        Example:
            >>> secret = Secret.of_seed(0)
            >>> secret.key("noise") == secret.key("noise"), len(secret.key("noise"))
            (True, 32)
            >>> secret.key("noise") == secret.key("sampling")
            False
        """
        label = " ".join([name, *map(str, numbers)]).encode()
        return hashlib.blake2b(label, key=self._material, digest_size=BYTES).digest()

    def number(self, name: str) -> int:
        """256 bits as an integer, in place of a seed."""
        return int.from_bytes(self.key(name), "little")

    def reveal(self) -> bytes:
        """The 32 bytes, for the file that a training is resumed with."""
        return self._material

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._material, other._material)

    def __hash__(self) -> int:
        return hash(self.key("hash"))

    def __repr__(self) -> str:
        return "Secret(...)"


def key_torch(key: bytes, device: torch.device) -> None:
    """Seed torch's generators, the CPU's and a device's, from a key of 32 bytes."""
    torch.set_rng_state(twister_state(twister_words(key)))
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(int.from_bytes(key[:8], "little"))
    elif device.type == "mps":
        torch.mps.manual_seed(int.from_bytes(key[:8], "little"))


def twister_words(key: bytes) -> NDArray[np.uint32]:
    """(624,) words of a Mersenne Twister's state: 19,968 bits of SHAKE-256 over the key.

    `torch.manual_seed` would take no more than 32 bits of it.
    """
    return np.frombuffer(hashlib.shake_256(key).digest(4 * _WORDS), "<u4")


def twister_state(words: NDArray[np.uint32]) -> Tensor:
    """What `torch.set_rng_state` takes, for a Mersenne Twister about to use these words.

    torch's layout: its seed (8 bytes), how many words are left (4; 1 says that new ones come
    first), whether it was seeded (4), the next (8), the words (8 each), and normals it has kept.
    """
    state = torch.Generator().manual_seed(0).get_state().clone()
    state[24 : 24 + 8 * _WORDS] = torch.from_numpy(words.astype("<u8").view(np.uint8).copy())
    return state


class Keystream:
    """Keystream of a key and a nonce, on the CPU."""

    def __init__(self, key: bytes, first: int, second: int) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        nonce = struct.pack("<IQI", 0, first, second)  # a block's counter comes first
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
