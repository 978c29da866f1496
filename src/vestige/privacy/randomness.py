r"""Randomness of a private step, from keys: Gaussian noise, and dropout masks by row.

Noise. A private training shows part of it: embeddings of words that are in no batch move by their
noise alone. Out of a generator made for simulations (Mersenne Twister, or Philox with 64 bits of
seed) the rest could be computed from that, and subtracted. Here the uniforms are ChaCha20's
keystream (`training.secret`) under a key of 256 bits; the nonce is the step and the tensor's
place, so that a training that is resumed needs key and step only. The same key gives the same
noise on every machine and device, up to rounding. Four normals come from five words: with U1, U2, V
uniform in (0, 1) and angles A, B in (-pi, pi),

    S = -2 ln(U1 U2),    (sqrt(V S) (cos A, sin A), sqrt((1 - V) S) (cos B, sin B))

since S is a chi-square of 4 degrees of freedom, and its share of the first pair, a Beta(1, 1), is
independent of it: Box and Muller (1958), "A Note on the Generation of Random Normal Deviates",
twice, for one logarithm. Outside the guarantee: a word has 32 bits, a float's significand 24. Tails
are right within 2 % up to 6 deviations; at 7, once in 4e11 draws, a third is missing, and nothing
is beyond 9.4. Values lie on a grid that depends on them: Mironov (2012), "On Significance of the
Least Significant Bits for Differential Privacy", shows that Laplace noise leaks through such a
grid, and no proof says that Gaussian noise does not; here its sum with a gradient is rounded once
more, and seen only after the optimizer has moved weights by it.

Masks. torch draws those of a batch from one generator, so that one row more moves the masks of the
others, and the sum of clipped gradients by several C. Here a mask's element follows from the
secret, the step, the row's number in the training set, the call of dropout in the forward pass, and
the element's place in the row: the same whichever rows are read with it, in whatever order, pass or
process, and however far they are padded on the right. A unit that is read alone takes torch's
generators, seeded from the secret, the step and the number of its first row.

Why the guarantee holds. Fix all masks m. The gradient of a unit is a function of the unit and the
weights; one unit more adds its own clipped gradient to the sum and changes nothing else, so that
the sensitivity is C, and the training, a Poisson-subsampled Gaussian mechanism M_m, is
(epsilon, delta)-private. Noise, batches and masks come from different keys of the secret and are
independent. So the training is a mixture of the M_m with weights p_m that are the same for both
neighbours, and hockey-stick divergences are jointly convex:

    D(sum_m p_m M_m(x) || sum_m p_m M_m(x')) <= sum_m p_m D(M_m(x) || M_m(x')) <= delta.

Neighbours keep the numbers of the rows that both have. Where a row is taken from the middle and
those after it move up, masks and batches of different numbers are independent and equally
distributed, so that both worlds can be coupled to have the same ones in all rows that they share.
This needs masks that are secret, never released, and new in each step; a row's gradient that
depends, given the masks, on that row alone (`taps` refuses layers that mix rows); recomputed
activations with the same masks (torch's checkpoints set back the generator that numbers the calls);
and no other randomness of each row, which `refuse_other_randomness` looks for. What is drawn once
for all rows, as by LayerDrop, may stay: all passes of a step draw the same.

A mask has a hash's bits (SplitMix64: Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom
Number Generators"), four elements to 64 bits, so that a probability is rounded to 2^-16. This is no
cryptographic generator; masks are never released.
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
"""Normals that are made at once: words and what becomes of them then stay in the cache."""
_SLAB = 1 << 8  # pieces at once on a device
_SMALL = 1 << 20  # normals below which a device is handed the CPU's: it would wait for launches
_TURN = math.pi / 2**31
_ODD = 0x9E3779B97F4A7C15
_MIXING = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)
_TOGETHER = 4
"""Elements of a mask for which one hash has bits."""
_CHANCES = 1 << 64 // _TOGETHER

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
        stream, words = Keystream(self._key, step, place), np.empty((5, 0), np.int32)
        for begin in range(0, len(out), PIECE):
            piece = out[begin : begin + PIECE]
            quarter = -(-len(piece) // 4)
            if words.shape[1] != quarter:  # fresh memory costs as much as the normals
                words = np.empty((5, quarter), np.int32)
                scratch = np.empty((6, quarter), np.float32)
            stream.fill(words)
            _normals(words, scratch, piece, deviation)

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
    return -(-normals // 4) * 5


def _normals(words: NDArray[np.int32], scratch: Floats, out: Floats, deviation: float) -> None:
    """(5, n) words to at most 4 n normals, one row of n after the other, by (6, n) scratch."""
    floats, turned, n = scratch[:5], scratch[5], words.shape[1]
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
            function(angle, out=turned)
            np.multiply(radius[: len(row)], turned[: len(row)], out=row)


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


class StepRandomness:
    """Randomness of a private step besides noise and batches.

    Args:
        key: 32 secret bytes, others for each step.
        device: of the model.
    """

    def __init__(self, key: bytes, device: torch.device) -> None:
        self._key, self.device = key, device

    def keys(self, numbers: Tensor) -> Tensor:
        """int64 (rows,) on the device: what the masks of rows with these numbers follow from."""
        found = [self._hashed(number)[:8] for number in numbers.tolist()]
        words = [int.from_bytes(one, "little", signed=True) for one in found]
        return torch.tensor(words, dtype=torch.int64, device=self.device)

    @contextmanager
    def by_row(self, numbers: Tensor) -> Iterator[None]:
        """Draw the dropout masks of rows by their numbers, in forward and backward passes.

        Args:
            numbers: int64 (rows,) of all rows of the passes, in order.
        """
        keys = self.keys(numbers)
        dropout, attention = functional.dropout, functional.scaled_dot_product_attention

        def keyed(
            given: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
        ) -> Tensor:
            if not training or not p or p == 1:
                return dropout(given, p, training, inplace)
            if given.dim() < 2 or len(given) != len(keys):
                raise TrainingError(
                    f"dropout has a tensor of shape {tuple(given.shape)} for {len(keys)} rows, so "
                    "masks per row are unknown",
                    remedy="Set that layer's dropout to 0.",
                )
            return given.where(kept(keys, next_call(), given.shape, p), 0) * scale(p)

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
                given = {"attn_mask": attn_mask, "is_causal": is_causal, **more}
                return attention(query, key, value, **given)
            weights = _attention_weights(query, key, attn_mask, is_causal, **more)
            return keyed(weights, dropout_p) @ _repeated(value, query)

        with self._generators(self._key):
            library: Any = functional  # found by every layer where it is called
            library.dropout, library.scaled_dot_product_attention = keyed, attended
            try:
                yield
            finally:
                library.dropout, library.scaled_dot_product_attention = dropout, attention

    @contextmanager
    def alone(self, number: int) -> Iterator[None]:
        """Draw from torch's generators for a unit read by itself, by its first row's number."""
        with self._generators(self._hashed(number)):
            yield

    def _hashed(self, number: int) -> bytes:
        return hashlib.blake2b(b"%d" % number, key=self._key, digest_size=32).digest()

    @contextmanager
    def _generators(self, key: bytes) -> Iterator[None]:
        """Torch's generators from a key, and afterwards as they were before."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            key_torch(key, self.device)
            yield


def next_call() -> int:
    """The number of a call of dropout: the same in a pass and where it is computed again."""
    return int(torch.randint(1 << 62, (), device="cpu").item())


def kept(keys: Tensor, call: int, shape: Sequence[int], p: float) -> Tensor:
    """Which elements a dropout mask keeps.

    Args:
        keys: int64 (rows,).
        call: another one gives another mask.
        shape: of the mask, (rows, ..., n).
        p: the probability that one is dropped, which is rounded to 2^-16.
    """
    dropped, dimensions = _dropped(p), len(shape)
    sizes = [*shape[:-1], -(-shape[-1] // _TOGETHER)]
    bits = _along(keys ^ call, 0, dimensions)
    for dimension in range(1, dimensions):
        steps = torch.arange(sizes[dimension], device=keys.device) * _signed(_ODD**dimension)
        bits = bits + _along(steps, dimension, dimensions)
    for shift, factor in _MIXING:
        high = (bits >> shift).bitwise_and_((1 << 64 - shift) - 1)  # the shift copies the sign
        bits = high.bitwise_xor_(bits).mul_(_signed(factor))
    return bits.view(torch.int16)[..., : shape[-1]] >= dropped - _CHANCES // 2


def scale(p: float) -> float:
    """What kept elements are multiplied by, so that their expectation stays."""
    return _CHANCES / (_CHANCES - _dropped(p))


def _dropped(p: float) -> int:
    """How many of the chances drop an element; where all should, nearly all."""
    return min(round(p * _CHANCES), _CHANCES - 1)


def refuse_other_randomness(randomness: StepRandomness, read: Callable[[Tensor], object]) -> None:
    """Refuse a model that uses randomness for each row in another way than by dropout.

    One row and two copies of it must leave torch's generator in the same state, and must not touch
    an accelerator's: kernels draw from that in blocks, whatever the number of rows.

    Args:
        randomness: of any step.
        read: runs the model, in training mode, on rows of places (k,).

    Raises:
        TrainingError: the model does.
    """
    states, moved = list[Tensor](), False
    for count in (1, 2):
        places = torch.zeros(count, dtype=torch.int64)
        with torch.enable_grad(), randomness.by_row(places):
            before = _accelerator(randomness.device)
            read(places)
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
    """The state of its generator; nothing of a CPU."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.empty(0)


def _attention_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,  # `_repeated` sees it from the shapes
) -> Tensor:
    """Softmax of scaled products, (..., t, s), which attention kernels do not show."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ _repeated(key, query).mT * scale
    lowest = torch.finfo(scores.dtype).min
    if is_causal:
        places = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(~places.tril(), lowest)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, lowest)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.float().softmax(-1).to(query.dtype)


def _repeated(heads: Tensor, query: Tensor) -> Tensor:
    """Key or value heads, as many as the query has."""
    if heads.dim() < 4 or heads.shape[-3] == query.shape[-3]:
        return heads
    return heads.repeat_interleave(query.shape[-3] // heads.shape[-3], -3)


def _along(values: Tensor, dimension: int, dimensions: int) -> Tensor:
    return values.view([-1 if one == dimension else 1 for one in range(dimensions)])


def _signed(word: int) -> int:
    return (word + 2**63) % 2**64 - 2**63
