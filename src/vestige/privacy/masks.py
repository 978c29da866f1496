r"""Dropout whose mask of a row depends on that row alone.

torch draws the masks of a batch one after another from one generator, so that one row more moves
the masks of the others, and with them their gradients: the sum of clipped gradients then changes by
several C. Here a mask's element follows from the secret, the step, the row's number in the training
set, the call of dropout in the forward pass, and the element's place in the row: the same whichever
rows are read with it, in whatever order, pass or process, and however far they are padded on the
right. A unit that is read alone (a user with more rows than fit, a user of DP-FedAvg) takes torch's
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
and no other randomness of each row, which `refuse_other_chance` looks for. What is drawn once for
all rows, as by LayerDrop, may stay: all passes of a step draw the same.

A mask has a hash's bits (SplitMix64: Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom
Number Generators"), four elements to 64 bits, so that a probability is rounded to 2^-16. This is no
cryptographic generator; masks are never released.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vestige.errors import TrainingError
from vestige.training.secret import key_torch

_ODD = 0x9E3779B97F4A7C15
_MIXING = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)
_TOGETHER = 4
"""Elements of a mask for which one hash has bits."""
_CHANCES = 1 << 64 // _TOGETHER


@dataclass(frozen=True, repr=False)
class StepChance:
    """Randomness of a private step besides noise and batches.

    Attributes:
        key: 32 secret bytes, others for each step.
        device: of the model.
    """

    key: bytes
    device: torch.device

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

        with self._generators(self.key):
            library: Any = functional  # found by every layer where it is called
            library.dropout, library.scaled_dot_product_attention = keyed, attended
            try:
                yield
            finally:
                library.dropout, library.scaled_dot_product_attention = dropout, attention

    @contextmanager
    def alone(self, number: int) -> Iterator[None]:
        """Draw from torch's generators for a unit that is read by itself.

        Args:
            number: of its first row.
        """
        with self._generators(self._hashed(number)):
            yield

    def _hashed(self, number: int) -> bytes:
        return hashlib.blake2b(b"%d" % number, key=self.key, digest_size=32).digest()

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


def refuse_other_chance(chance: StepChance, read: Callable[[Tensor], object]) -> None:
    """Refuse a model that draws chance for each row in another way than by dropout.

    One row and two copies of it must leave torch's generator in the same state, and must not touch
    an accelerator's: kernels draw from that in blocks, whatever the number of rows.

    Args:
        chance: of any step.
        read: runs the model, in training mode, on rows of places (k,).

    Raises:
        TrainingError: the model does.
    """
    states, moved = list[Tensor](), False
    for count in (1, 2):
        places = torch.zeros(count, dtype=torch.int64)
        with torch.enable_grad(), chance.by_row(places):
            before = _accelerator(chance.device)
            read(places)
            moved = moved or not torch.equal(before, _accelerator(chance.device))
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
