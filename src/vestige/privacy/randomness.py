r"""Randomness of a private step, from keys: Gaussian noise, and dropout masks by row.

Noise. A private training shows part of its noise: embeddings of words that are in no batch move by
noise alone. With a generator for simulations (Mersenne Twister, or Philox with a seed of 64 bits),
an attacker could compute the rest from that part and subtract it. So the uniforms are the keystream
of ChaCha20 (`training.secret`) under a key of 256 bits. The nonce is the step and the index of the
tensor, so a resumed training needs only key and step. The same key gives the same noise on every
machine and device, up to rounding. Four normals come from five words: with U1, U2, V uniform in
(0, 1) and angles A, B in (-pi, pi),

    S = -2 ln(U1 U2),    (sqrt(V S) (cos A, sin A), sqrt((1 - V) S) (cos B, sin B))

S is chi-square with 4 degrees of freedom, and the share of the first pair is a Beta(1, 1) that is
independent of it: Box and Muller (1958), "A Note on the Generation of Random Normal Deviates",
twice, with one logarithm. Outside the guarantee: a word has 32 bits, the significand of a float 24.
Tails are right within 2 % up to 6 deviations. At 7 deviations, once in 4e11 samples, a third is
missing, and nothing is beyond 9.4. Values lie on a grid that depends on them. Mironov (2012), "On
Significance of the Least Significant Bits for Differential Privacy", shows that Laplace noise leaks
through such a grid; no proof excludes it for Gaussian noise. Here the sum of noise and gradient is
rounded once more, and is visible only after the optimizer has updated the weights.

Masks. torch samples the masks of a batch from one generator. One more row then changes the masks of
the others, and the sum of clipped gradients by several C. Here an element of a mask follows from
the secret, the step, the number of the row in the training set, the call of dropout in the forward
pass, and the position in the row. It does not depend on the other rows, their order, the pass, the
process, or padding on the right. A unit that is read by itself uses torch's generators, seeded from
the secret, the step and the number of its first row.

Why the guarantee holds. Fix all masks m. The gradient of a unit is a function of the unit and the
weights. One more unit adds its own clipped gradient to the sum and changes nothing else, so the
sensitivity is C, and the training, a Poisson-subsampled Gaussian mechanism M_m, is
(epsilon, delta)-private. Noise, batches and masks come from different keys of the secret and are
independent. So the training is a mixture of the M_m, with weights p_m that are equal for both
neighbours, and hockey-stick divergences are jointly convex:

    D(sum_m p_m M_m(x) || sum_m p_m M_m(x')) <= sum_m p_m D(M_m(x) || M_m(x')) <= delta.

Neighbours keep the row numbers that they share. If a row is removed from the middle and later rows
move up, masks and batches of different numbers are independent and identically distributed, so both
trainings can be coupled to agree in all shared rows. The proof needs masks that are secret, never
released, and new in each step; a gradient of a row that depends, given the masks, on that row alone
(`taps` refuses layers that mix rows); recomputed activations with the same masks (torch's
checkpoints reset the generator that numbers the calls); and no other randomness per row, which
`refuse_other_randomness` tests. Randomness shared by all rows, as of LayerDrop, is allowed: all
passes of a step sample the same.

Masks are the bits of a hash (SplitMix64: Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom
Number Generators"), 16 for each element, so a probability is rounded to 2^-16. The hash is not
cryptographic; masks are never released.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vestige.errors import TrainingError
from vestige.training.secret import BLOCK, Keystream, device_words, key_torch

PIECE = 1 << 16
"""Normals computed at once, so that words and intermediate values stay in the cache."""
_SLAB = 1 << 8  # pieces at once on a device
_SMALL = 1 << 20  # normals below which the CPU is faster than launches on a device
_ANGLE = math.pi / 2**31
_ODD_FACTOR = 0x9E3779B97F4A7C15
_MIXING = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)
_PER_HASH = 4
"""Elements of a mask from one hash."""
_LEVELS = 1 << 64 // _PER_HASH

Floats = NDArray[np.float32]


class GaussianNoise:
    """Gaussian noise from a key, for each step and tensor.

    Args:
        key: 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "GaussianNoise(...)"

    @torch.no_grad()
    def fill(self, tensors: Sequence[Tensor], *, step: int, deviation: float) -> None:
        """Overwrite tensors with independent noise of a standard deviation.

        Args:
            tensors: contiguous, of any device and floating type; computed in float32.
            step: in [0, 2^64).
            deviation: at least 0.
        """
        for index, tensor in enumerate(tensors):
            flat = tensor.view(-1)
            if flat.device.type == "cpu" and flat.dtype == torch.float32:
                self._on_cpu(flat.numpy(), step, index, deviation)
            elif flat.device.type == "cpu" or len(flat) <= _SMALL:
                normals = np.empty(len(flat), np.float32)
                self._on_cpu(normals, step, index, deviation)
                flat.copy_(torch.from_numpy(normals))
            else:
                self._on_device(flat, step, index, deviation)

    def _on_cpu(self, out: Floats, step: int, index: int, deviation: float) -> None:
        stream, words = Keystream(self._key, step, index), np.empty((5, 0), np.int32)
        for begin in range(0, len(out), PIECE):
            piece = out[begin : begin + PIECE]
            quarter = -(-len(piece) // 4)
            if words.shape[1] != quarter:  # new memory is as slow as the computation
                words = np.empty((5, quarter), np.int32)
                scratch = np.empty((6, quarter), np.float32)
            stream.fill(words)
            _normals(words, scratch, piece, deviation)

    def _on_device(self, out: Tensor, step: int, index: int, deviation: float) -> None:
        for begin in range(0, len(out), PIECE * _SLAB):
            slab = out[begin : begin + PIECE * _SLAB]
            blocks = range(_words(begin) // BLOCK, -(-_words(begin + len(slab)) // BLOCK))
            words = device_words(self._key, step, index, blocks=blocks, device=out.device)
            full = len(slab) // PIECE * PIECE
            if full:
                pieces = words[: _words(full)].view(-1, 5, PIECE // 4)
                slab[:full] = device_normals(pieces, deviation).flatten()
            if full < len(slab):
                rest = words[_words(full) : _words(len(slab))].view(1, 5, -1)
                slab[full:] = device_normals(rest, deviation).flatten()[: len(slab) - full]


def _words(normals: int) -> int:
    return -(-normals // 4) * 5


def _normals(words: NDArray[np.int32], scratch: Floats, out: Floats, deviation: float) -> None:
    """(5, n) words to at most 4 n normals, one row of n after the other, by (6, n) scratch."""
    floats, wave, n = scratch[:5], scratch[5], words.shape[1]
    product, other, share, *angles = floats
    _scaled(words[:2], 2.0**-31, floats[:2])
    floats[:2] += np.float32(2.0**-32)  # in (-1, 1), and never 0
    _scaled(words[2], 2.0**-32, share)
    share += np.float32(0.5)
    _scaled(words[3:], _ANGLE, floats[3:])
    product *= other
    np.abs(product, out=product)
    np.log(product, out=product)
    product *= np.float32(-2.0)
    share *= product
    np.subtract(product, share, out=product)
    for pair, (radius, angle) in enumerate(zip((share, product), angles, strict=True)):
        np.sqrt(radius, out=radius)
        radius *= np.float32(deviation)
        for offset, function in enumerate((np.cos, np.sin)):
            row = out[(2 * pair + offset) * n : (2 * pair + offset + 1) * n]
            function(angle, out=wave)
            np.multiply(radius[: len(row)], wave[: len(row)], out=row)


def _scaled(words: NDArray[np.int32], factor: float, out: Floats) -> None:
    """Words as float32 times a factor, without float64 in between."""
    np.multiply(words, np.float32(factor), out=out, dtype=np.float32, casting="unsafe")


def device_normals(words: Tensor, deviation: float) -> Tensor:
    """(k, 5, n) words to (k, 4, n) normals, as on the CPU."""
    u1, u2 = (words[:, index].float() * 2.0**-31 + 2.0**-32 for index in (0, 1))
    share = words[:, 2].float() * 2.0**-32 + 0.5
    first_angle, second_angle = (words[:, index].float() * _ANGLE for index in (3, 4))
    radius_squared = (u1 * u2).abs().log() * -2.0
    first_squared = share * radius_squared
    first_radius, second_radius = (
        radius.sqrt() * deviation for radius in (first_squared, radius_squared - first_squared)
    )
    return torch.stack(
        [
            first_radius * first_angle.cos(),
            first_radius * first_angle.sin(),
            second_radius * second_angle.cos(),
            second_radius * second_angle.sin(),
        ],
        1,
    )


class StepRandomness:
    """Randomness of a private step other than noise and batches.

    Args:
        key: 32 secret bytes, new for each step.
        device: of the model.
    """

    def __init__(self, key: bytes, device: torch.device) -> None:
        self._key, self.device = key, device

    def keys(self, numbers: Tensor) -> Tensor:
        """int64 (rows,) on the device: keys of the masks of rows with these numbers."""
        digests = [self._hashed(number)[:8] for number in numbers.tolist()]
        words = [int.from_bytes(digest, "little", signed=True) for digest in digests]
        return torch.tensor(words, dtype=torch.int64, device=self.device)

    @contextmanager
    def by_row(self, numbers: Tensor) -> Iterator[None]:
        """Sample dropout masks of rows by their numbers, in forward and backward passes.

        Args:
            numbers: int64 (rows,) of all rows of the passes, in order.
        """
        keys = self.keys(numbers)
        dropout, attention = functional.dropout, functional.scaled_dot_product_attention

        def keyed(
            inputs: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
        ) -> Tensor:
            if not training or not p or p == 1:
                return dropout(inputs, p, training, inplace)
            if inputs.dim() < 2 or len(inputs) != len(keys):
                raise TrainingError(
                    f"dropout has a tensor of shape {tuple(inputs.shape)} for {len(keys)} rows, so "
                    "masks per row are unknown",
                    remedy="Set that layer's dropout to 0.",
                )
            return inputs.where(kept(keys, next_call(), inputs.shape, p), 0) * scale(p)

        def attended(
            query: Tensor,
            key: Tensor,
            value: Tensor,
            attn_mask: Tensor | None = None,
            dropout_p: float = 0.0,
            is_causal: bool = False,
            **more: Any,
        ) -> Tensor:
            if not dropout_p:
                options = {"attn_mask": attn_mask, "is_causal": is_causal, **more}
                return attention(query, key, value, **options)
            weights = _attention_weights(query, key, attn_mask, is_causal, **more)
            return keyed(weights, dropout_p) @ _repeated(value, query)

        with self._generators(self._key):
            library: Any = functional  # layers look up both functions here at each call
            library.dropout, library.scaled_dot_product_attention = keyed, attended
            try:
                yield
            finally:
                library.dropout, library.scaled_dot_product_attention = dropout, attention

    @contextmanager
    def for_unit(self, number: int) -> Iterator[None]:
        """Seed torch's generators for a unit read by itself, by the number of its first row."""
        with self._generators(self._hashed(number)):
            yield

    def _hashed(self, number: int) -> bytes:
        return hashlib.blake2b(b"%d" % number, key=self._key, digest_size=32).digest()

    @contextmanager
    def _generators(self, key: bytes) -> Iterator[None]:
        """Seed torch's generators from a key, and restore them afterwards."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            key_torch(key, self.device)
            yield


def next_call() -> int:
    """Number of a call of dropout: the same when activations are recomputed."""
    return int(torch.randint(1 << 62, (), device="cpu").item())


def kept(keys: Tensor, call: int, shape: Sequence[int], p: float) -> Tensor:
    """Dropout mask: True for elements to keep.

    Args:
        keys: int64 (rows,).
        call: number of the call of dropout.
        shape: of the mask, (rows, ..., n).
        p: dropout probability, rounded to 2^-16.
    """
    dropped, dimensions = _dropped(p), len(shape)
    sizes = [*shape[:-1], -(-shape[-1] // _PER_HASH)]
    bits = _along(keys ^ call, 0, dimensions)
    for dimension in range(1, dimensions):
        steps = torch.arange(sizes[dimension], device=keys.device) * _signed(_ODD_FACTOR**dimension)
        bits = bits + _along(steps, dimension, dimensions)
    for shift, factor in _MIXING:
        high = (bits >> shift).bitwise_and_((1 << 64 - shift) - 1)  # the shift copies the sign
        bits = high.bitwise_xor_(bits).mul_(_signed(factor))
    return bits.view(torch.int16)[..., : shape[-1]] >= dropped - _LEVELS // 2


def scale(p: float) -> float:
    """Factor of kept elements that preserves the expectation."""
    return _LEVELS / (_LEVELS - _dropped(p))


def _dropped(p: float) -> int:
    """Levels of 2^16 at which an element is dropped; at most all but one."""
    return min(round(p * _LEVELS), _LEVELS - 1)


def refuse_other_randomness(randomness: StepRandomness, read: Callable[[Tensor], object]) -> None:
    """Refuse a model that uses randomness per row other than dropout.

    One row and two copies of it must leave torch's generator in the same state, and must not use
    the generator of an accelerator, which kernels advance in blocks.

    Args:
        randomness: of any step.
        read: runs the model in training mode on rows (k,) of the batch.

    Raises:
        TrainingError: the model uses such randomness.
    """
    states, moved = list[Tensor](), False
    for count in (1, 2):
        rows = torch.zeros(count, dtype=torch.int64)
        with torch.enable_grad(), randomness.by_row(rows):
            before = _accelerator(randomness.device)
            read(rows)
            moved = moved or not torch.equal(before, _accelerator(randomness.device))
            states.append(torch.get_rng_state())
    if moved or not torch.equal(*states):
        raise TrainingError(
            "the model or its data collator uses randomness per row other than "
            "torch.nn.functional.dropout, so one row more changes the others",
            remedy=(
                "Set such a dropout to 0 (between LSTM layers, or in an attention kernel, where "
                "attn_implementation='sdpa' can keep it), and use a collator without randomness."
            ),
        )


def _accelerator(device: torch.device) -> Tensor:
    """State of the generator of an accelerator; empty for a CPU."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.empty(0)


def _attention_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,  # the shapes tell
) -> Tensor:
    """Attention weights (..., t, s), which attention kernels do not return."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ _repeated(key, query).mT * scale
    lowest = torch.finfo(scores.dtype).min
    if is_causal:
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(~causal.tril(), lowest)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, lowest)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.float().softmax(-1).to(query.dtype)


def _repeated(heads: Tensor, query: Tensor) -> Tensor:
    """Key or value heads repeated to the number of query heads."""
    if heads.dim() < 4 or heads.shape[-3] == query.shape[-3]:
        return heads
    return heads.repeat_interleave(query.shape[-3] // heads.shape[-3], -3)


def _along(values: Tensor, dimension: int, dimensions: int) -> Tensor:
    return values.view([-1 if index == dimension else 1 for index in range(dimensions)])


def _signed(word: int) -> int:
    return (word + 2**63) % 2**64 - 2**63
