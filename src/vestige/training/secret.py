"""Randomness of private trainings, from a secret key.

A guarantee of differential privacy needs noise and samples that nobody knows. Whoever can repeat
them (a public seed; a seed of 32 bits, which can be tried out; a generator whose other draws are
seen, as initial weights are) subtracts the noise and sees who was drawn. So everything that a
private training draws after its initial weights follows from 256 bits of the operating system's
entropy, through keys that BLAKE2 derives from them (Aumasson et al. 2013, "BLAKE2: simpler,
smaller, fast as MD5", section 2.8, used as a pseudo-random function): "noise" for the noise,
"sampling" for Poisson sampling, "masks" for dropout and local orders (`privacy.randomness`), "step"
for whatever else a step draws. Keys of different names or
numbers tell nothing of one another, and none of them comes from a seed, on which initial weights
depend.

What remains outside: dropout masks come from a hash of 64 bits, local orders from torch's own
generators, the CPU's Mersenne Twister with all of its state filled anew, an accelerator's Philox
with 64 bits. None is a cryptographic generator; what they draw is never released.
"""

import hashlib
import hmac
import secrets
from typing import Self

import numpy as np
import torch

from vestige import _validate

BYTES = 32
_WORDS = 624  # of MT19937's state


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
        """Secret from a seed, for tests only: it voids the guarantee.

        Whoever tries the seeds finds it, and with it the noise.
        """
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
        said = " ".join([name, *map(str, numbers)]).encode()
        return hashlib.blake2b(said, key=self._material, digest_size=BYTES).digest()

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


def twister_words(key: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """(624,) words of a Mersenne Twister's state: 19,968 bits of SHAKE-256 over the key.

    `torch.manual_seed` would take no more than 32 bits of it.
    """
    return np.frombuffer(hashlib.shake_256(key).digest(4 * _WORDS), "<u4")


def twister_state(words: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> torch.Tensor:
    """What `torch.set_rng_state` takes, for a Mersenne Twister about to use these words.

    torch's layout: its seed (8 bytes), how many words are left (4; 1 says that new ones come
    first), whether it was seeded (4), the next (8), the words (8 each), and normals it has kept.
    """
    state = torch.Generator().manual_seed(0).get_state().clone()
    state[24 : 24 + 8 * _WORDS] = torch.from_numpy(words.astype("<u8").view(np.uint8).copy())
    return state
