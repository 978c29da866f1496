"""Randomness of private trainings, from a secret key.

Differential privacy needs noise and samples that nobody else knows. Anyone who can repeat them
subtracts the noise and sees who was sampled: from a public seed, from a seed of 32 bits by trying
all, or from other outputs of the same generator, such as initial weights. So all randomness of a
private training after its initial weights follows from 256 bits of the operating system's entropy.
BLAKE2 derives keys from them (Aumasson et al. 2013, "BLAKE2: simpler, smaller, fast as MD5",
section 2.8, used as a pseudo-random function): "noise", "sampling" for Poisson sampling, "masks"
for dropout and local orders (`privacy.randomness`), and "step" for other randomness of a step. Keys
of different names or numbers are independent.

Outside the guarantee: dropout masks come from a hash of 64 bits, local orders from torch's own
generators (on the CPU a Mersenne Twister with a fresh state, on an accelerator Philox with 64
bits). None is cryptographic; their outputs are never released.

The keystream is that of ChaCha20: Nir and Langley (2018), "ChaCha20 and Poly1305 for IETF
Protocols", RFC 8439, sections 2.3 and 2.4. It is counter-based: each word follows from key and
position alone, and no part of the stream predicts another. A nonce here is two numbers of 64 and 32
bits, as (low word, high word, second number).
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

from vestige import _validate

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
        _validate.at_least(0, seed=seed)
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
        """A seed of 256 bits."""
        return int.from_bytes(self.key(name), "little")

    def reveal(self) -> bytes:
        """The 32 bytes, for the file from which a training resumes."""
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
    """State for `torch.set_rng_state` of a Mersenne Twister with these words.

    Layout: seed (8 bytes), words left (4; 1: compute new ones first), seeded (4), next word (8),
    words (8 each), cached normals.
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
        """Overwrite a contiguous array with the next part of the keystream."""
        target = words.view(np.uint8).reshape(-1).data
        for begin in range(0, len(target), len(_ZEROS)):
            part = target[begin : begin + len(_ZEROS)]
            self._encryptor.update_into(memoryview(_ZEROS)[: len(part)], part)


def device_words(
    key: bytes, first: int, second: int, *, blocks: range, device: torch.device
) -> Tensor:
    """int32 (16 * blocks,) of the same keystream, computed on a device."""
    low, high, nonce_word = struct.unpack("<3i", struct.pack("<QI", first, second))
    n = len(blocks)
    counters = torch.arange(blocks.start, blocks.stop, device=device).to(torch.int32)
    constants = torch.tensor(
        [*_CONSTANTS, *struct.unpack("<8i", key), 0, low, high, nonce_word],
        dtype=torch.int32,
        device=device,
    )
    state = constants[:, None].repeat(1, n)
    state[12] = counters
    rows = list(state.clone().view(4, 4, n))
    for _ in range(10):
        _quarter_rounds(rows)
        rows = [row.roll(-place, 0) for place, row in enumerate(rows)]  # columns to diagonals
        _quarter_rounds(rows)
        rows = [row.roll(place, 0) for place, row in enumerate(rows)]
    return torch.cat(rows).add_(state).t().reshape(-1)


def _quarter_rounds(rows: list[Tensor]) -> None:
    """Four quarter rounds in parallel, RFC 8439 section 2.1, in place; int32 wraps."""
    a, b, c, d = rows
    for added, addend, rotated, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        added += addend
        rotated ^= added
        right = (rotated >> (32 - bits)) & (
            (1 << bits) - 1
        )  # the shift copies the sign: mask it off
        rotated <<= bits
        rotated |= right
